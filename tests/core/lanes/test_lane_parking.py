"""Moving aside what waits, and taking it back: order, what is written and what is not, what is too large, what has been lost."""

from __future__ import annotations

from itertools import count

import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.parked import read_parked
from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.parking import FETCH_MAX, Bounds
from dispatcher.core.lanes.steps import Busy, Closed, Idle, Ready, Wait
from dispatcher.core.messages.status import Reason
from tests.core.aside import Aside
from tests.core.keyed import (
    BOUNDS,
    DECODER,
    KEY,
    Hold,
    ask,
    content,
    fail,
    fetch,
    finish,
    keyed,
    offsets,
    park,
    place,
    run,
    settle,
    start,
)
from tests.specimens import MONO, OWNER, REQUESTS, TOPIC_ID, WALL, answer, noted, now, record


def test_a_waiting_head_goes_first() -> None:
    """It was tried and waits: it leaves with all that queues behind it, in order, and nothing is left in memory."""
    lane, aside = keyed(5, 6, 7), Aside()
    fail(lane, wait_s=60)
    assert ([5, 6, 7], []) == park(lane, aside)
    assert (0, 3) == (len(lane), lane.parked)
    assert 5 == lane.first_offset
    assert Wait(MONO + 60, "retry_after") == noted(lane, now(1))


def test_what_is_written_is_the_request_and_what_has_happened_to_it() -> None:
    """Byte for byte, with its tries and when it is due; one that only queued is due at once."""
    lane, aside = keyed(5, 6), Aside()
    fail(lane, later_s=2, wait_s=60)
    park(lane, aside, later_s=4)
    first, second = (read_parked(written, TOPIC_ID, REQUESTS) for written in aside.log)
    assert first is not None
    assert second is not None
    assert (record(offset=5), Tries(calls=1), WALL + 62, "retry_after") == (first.record, first.tries, first.due, first.why)
    assert (WALL + 2, WALL + 2) == (first.hinted_wall, first.started_wall)
    assert (record(offset=6), Tries(), 0, "queued", None) == (second.record, second.tries, second.due, second.why, second.started_wall)


def test_a_busy_lane_keeps_its_first_ones() -> None:
    """It runs on with those: the call in hand, and eight that queue."""
    lane, aside = keyed(*range(20)), Aside()
    start(lane)
    assert (list(range(9, 20)), []) == park(lane, aside, keep=8)
    assert (9, 11) == (len(lane), lane.parked)
    lane.answered(answer(), now(), 0.5)
    assert [*range(1, 20)] == run(lane, aside)


def test_where_something_is_kept_a_waiting_head_stays() -> None:
    """It is before all of them."""
    lane, aside = keyed(5, 6, 7), Aside()
    fail(lane)
    assert ([7], []) == park(lane, aside, keep=1)
    assert (2, 1) == (len(lane), lane.parked)


def test_a_busy_lane_that_keeps_nothing_keeps_its_call() -> None:
    """What is in a call cannot leave."""
    lane, aside = keyed(5, 6), Aside()
    start(lane)
    assert ([6], []) == park(lane, aside)
    lane.answered(answer(), now(), 0.5)
    assert 5 == offsets([settle(lane)])[0]


def test_newer_ones_queue_behind() -> None:
    """Front, parked, back: what comes while some are parked is called after them, and goes the same way when room is made again."""
    lane, aside = keyed(*range(12)), Aside()
    start(lane)
    park(lane, aside, keep=8)
    for offset in (12, 13):
        lane.add(record(offset=offset), MONO)
    assert (11, 3) == (len(lane), lane.parked)
    assert ([12, 13], []) == park(lane, aside, keep=8)
    assert (9, 5) == (len(lane), lane.parked)
    lane.answered(answer(), now(), 0.5)
    assert [*range(1, 14)] == run(lane, aside)


def test_what_stands_in_the_parked_topic_is_not_written_again() -> None:
    """Read back and not called: they only leave memory once more, and are found at the same places."""
    lane, aside = keyed(5, 6, 7), Aside()
    park(lane, aside)
    assert [5, 6, 7] == fetch(lane, aside)
    assert (3, 0) == (len(lane), lane.parked)
    assert ([], [5, 6, 7]) == park(lane, aside)
    assert 3 == len(aside.log)
    assert [5, 6, 7] == run(lane, aside)


def test_but_one_that_was_tried_is_written_anew() -> None:
    """Its tries and its time have changed; the others' have not. What is read back then is the newer record."""
    lane, aside = keyed(5, 6), Aside()
    park(lane, aside)
    fetch(lane, aside)
    fail(lane, wait_s=60)
    assert ([5], [6]) == park(lane, aside)
    assert 3 == len(aside.log)
    assert [5, 6] == fetch(lane, aside, 60)
    step = noted(lane, now(60))
    assert 2 == getattr(step, "attempt", None)


def test_no_more_than_a_few_are_read_back_at_once() -> None:
    """Little memory for many lanes: the rest stays parked until they have been called."""
    lane, aside = keyed(*range(FETCH_MAX + 4)), Aside()
    park(lane, aside)
    assert [*range(FETCH_MAX)] == fetch(lane, aside)
    assert (FETCH_MAX, 4) == (len(lane), lane.parked)
    assert [*range(FETCH_MAX + 4)] == run(lane, aside)


def test_nothing_is_read_back_before_it_is_written() -> None:
    """The lane is busy until the first one's place is told; later ones that have none yet stay where they are."""
    lane, aside = keyed(5, 6), Aside()
    first, second = lane.park(0, BOUNDS, now())[0]
    assert isinstance(noted(lane, now()), Busy)
    place(lane, aside, [first])
    assert [5] == fetch(lane, aside)
    assert 5 == finish(lane)
    place(lane, aside, [second])
    assert [6] == run(lane, aside)


def test_a_place_that_is_not_known_is_looked_for() -> None:
    """-1: the one who reads has to find it."""
    lane, aside = keyed(5), Aside()
    (outcome,) = lane.park(0, BOUNDS, now())[0]
    aside.publish(outcome)
    lane.placed(5, -1)
    assert [-1] == [entry.place for entry in ask(lane).entries]


def test_who_may_not_call_asks_for_nothing() -> None:
    """Reading back is for a call that can start."""
    lane, aside = keyed(5), Aside()
    park(lane, aside)
    assert isinstance(noted(lane, now(), may_call=False), Ready)
    assert [5] == fetch(lane, aside)


def test_what_is_on_its_way_back_keeps_all_in_place() -> None:
    """Nothing is moved meanwhile, nothing overtakes, and newer ones wait."""
    lane, aside = keyed(5, 6), Aside()
    park(lane, aside)
    asked = ask(lane)
    lane.add(record(offset=7), MONO)
    assert ([], []) == park(lane, aside)
    assert isinstance(noted(lane, now()), Busy)
    assert (1, 2) == (len(lane), lane.parked)
    lane.fetched(*aside.read(asked.entries), now())
    assert [5, 6, 7] == run(lane, aside)


def test_what_is_lost_is_passed() -> None:
    """Some of them, or all: the lane goes on with what there is."""
    lane, aside = keyed(5, 6, 7), Aside()
    park(lane, aside)
    lane.add(record(offset=8), MONO)
    asked = ask(lane)
    lane.fetched(*aside.read(asked.entries, lost=[5, 7]), now())
    assert (2, 0) == (len(lane), lane.parked)
    assert [6, 8] == run(lane, aside)
    assert lane.is_empty


@pytest.mark.parametrize("keep", [0, 1])
def test_what_does_not_fit_stays_in_its_place(keep: int) -> None:
    """It alone is in memory: those in front of it and behind it leave, newer ones too, and all are called in the order of the log."""
    lane, aside = keyed(*range(keep + 2)), Aside()
    lane.add(content(2000, 5), MONO)
    lane.add(record(offset=6), MONO)
    lane.add(content(2000, 7), MONO)
    lane.add(record(offset=8), MONO)
    outcomes, _ = lane.park(keep, Bounds(1000), now())
    place(lane, aside, outcomes)
    assert [keep, keep + 1, 6, 8] == offsets(outcomes)
    assert (keep + 2, 4) == (len(lane), lane.parked)
    lane.add(record(offset=9), MONO)
    outcomes, _ = lane.park(keep, Bounds(1000), now())
    place(lane, aside, outcomes)
    assert [9] == offsets(outcomes)
    assert ([], []) == lane.park(keep, Bounds(1000), now())
    assert [*range(keep + 2), 5, 6, 7, 8, 9] == run(lane, aside)
    assert lane.is_empty


def test_a_waiting_head_that_does_not_fit_stays_alone() -> None:
    """It was called, and holds neither its queue in memory nor its turn back."""
    lane, aside = keyed(), Aside()
    lane.add(content(2000), MONO)
    for offset in (6, 7):
        lane.add(record(offset=offset), MONO)
    fail(lane, wait_s=60)
    outcomes, _ = lane.park(0, Bounds(1000), now())
    place(lane, aside, outcomes)
    assert [6, 7] == offsets(outcomes)
    assert (1, 2, 5) == (len(lane), lane.parked, lane.first_offset)
    assert Wait(MONO + 60, "retry_after") == noted(lane, now(1))
    assert [5, 6, 7] == run(lane, aside, 60)


def test_no_more_go_than_may() -> None:
    """The first of them, in order; the rest stays in memory behind them."""
    lane, aside = keyed(5, 6, 7, 8), Aside()
    outcomes, _ = lane.park(0, Bounds(1 << 20, records=2), now())
    place(lane, aside, outcomes)
    assert ([5, 6], 2, 2) == (offsets(outcomes), len(lane), lane.parked)
    outcomes, _ = lane.park(0, Bounds(1 << 20, records=1), now())
    place(lane, aside, outcomes)
    assert ([7], 1, 3) == (offsets(outcomes), len(lane), lane.parked)
    assert [5, 6, 7, 8] == run(lane, aside)


def test_what_is_too_large_to_be_a_request_ends_where_it_cannot_be_moved() -> None:
    """No turn is waited for: it is not called, and many of them would fill the memory. Where there is room it ends in its turn."""
    lane, aside = keyed(5), Aside()
    lane.add(content(DECODER.settings.topics.request_max_bytes, 6), MONO)
    lane.add(record(offset=7), MONO)
    outcomes, _ = lane.park(1, BOUNDS, now())
    letters = {outcome.record.offset: outcome.letter.reason for outcome in outcomes if outcome.record and outcome.letter}
    assert {6: Reason.TOO_LARGE} == letters
    place(lane, aside, [outcome for outcome in outcomes if outcome.parks])
    assert (1, 1) == (len(lane), lane.parked)
    assert [5, 7] == run(lane, aside)


def test_what_was_parked_undecoded_is_refused_when_its_turn_comes() -> None:
    """Nobody looks into a request that only waits; one that makes no sense ends as it would have, in its place."""
    lane, aside = keyed(5), Aside()
    lane.add(record(b"{", 6), MONO)
    park(lane, aside)
    assert 5 == (fetch(lane, aside), finish(lane))[1]
    outcome = settle(lane)
    assert outcome.letter is not None
    assert (6, Reason.MALFORMED) == (offsets([outcome])[0], outcome.letter.reason)


def test_memory_is_given_back_whatever_the_lane_had_before() -> None:
    """Parked, read back, called in part: what is left in front and behind leaves again, and the order stays."""
    lane, aside = keyed(*range(FETCH_MAX)), Aside()
    park(lane, aside)
    for offset in range(FETCH_MAX, 40):
        lane.add(record(offset=offset), MONO)
    fetch(lane, aside)
    assert [finish(lane) for _ in range(FETCH_MAX - 3)] == [*range(FETCH_MAX - 3)]
    park(lane, aside, keep=8)
    assert (8, 19) == (len(lane), lane.parked)
    assert [*range(FETCH_MAX - 3, 40)] == run(lane, aside)


def test_how_long_a_queue_takes_goes_by_the_calls() -> None:
    """By the last one, and by the one in hand if that takes longer; what is parked does not count."""
    lane = keyed(1, 2, 3, 4)
    assert 0 == lane.queue_s(MONO)
    start(lane)
    assert 3 * 5 == lane.queue_s(MONO + 5)
    lane.answered(answer(), now(7), 0.5)
    settle(lane, 7)
    assert 3 * 7 == lane.queue_s(MONO + 7)


# --- closing --------------------------------------------------------------------------------------------------------------------------


def queued(aside: Aside) -> Lane:
    """Nothing was called yet."""
    return keyed(5, 6)


def waiting(aside: Aside) -> Lane:
    """The head waits for its next try."""
    lane = keyed(5, 6)
    fail(lane)
    return lane


def unplaced(aside: Aside) -> Lane:
    """Parked, and nobody knows yet whether it is written."""
    lane = keyed(5, 6)
    lane.park(0, BOUNDS, now())
    return lane


def parked_and_newer(aside: Aside) -> Lane:
    """Two in the parked topic, one in memory behind them."""
    lane = keyed(5, 6)
    park(lane, aside)
    lane.add(record(offset=7), MONO)
    return lane


def on_its_way(aside: Aside) -> Lane:
    """Those two are being read, one of them only to be answered."""
    lane = parked_and_newer(aside)
    ask(lane)
    lane.end(5, Skipped("no need"), now())
    return lane


def halted_overflow(aside: Aside) -> Lane:
    """One waits behind a halt, one is to be refused."""
    hold = Hold()
    hold.why = "halted"
    lane = Lane(OWNER, DECODER, KEY, hold.of)
    lane.add(record(offset=5), MONO)
    lane.refuse(record(offset=6))
    return lane


@pytest.mark.parametrize("state", [queued, waiting, unplaced, parked_and_newer, on_its_way, halted_overflow])
def test_a_closed_lane_keeps_nothing(state: object) -> None:
    """Whatever it had is the next owner's: nothing settles, nothing is asked for, late letters land on nothing."""
    assert callable(state)
    aside = Aside()
    lane: Lane = state(aside)
    lane.close()
    assert (0, 0, None) == (len(lane), lane.parked, lane.first_offset)
    assert lane.is_empty
    assert lane.placed(5, 0) is None
    assert [] == lane.fetched(*aside.read(aside.entries()), now())
    assert ([], []) == lane.park(0, BOUNDS, now())
    assert [Closed(), Closed()] == [noted(lane, now(later_s)) for later_s in (0, 1000)]


def test_a_closed_lane_settles_the_call_in_hand() -> None:
    """And that alone: neither what is parked behind it, nor what queues."""
    lane, aside = keyed(5, 6, 7), Aside()
    start(lane)
    park(lane, aside, keep=1)
    lane.close()
    assert isinstance(noted(lane, now()), Busy)
    lane.answered(answer(), now(), 0.5)
    assert [5] == offsets([settle(lane)])
    assert isinstance(noted(lane, now()), Closed)
    assert lane.is_empty


def test_a_lane_forgets_what_is_over() -> None:
    """Round after round of parking and reading back leaves nothing behind."""
    lane, aside = keyed(), Aside()
    for offset in (numbers := count()):
        lane.add(record(offset=offset), MONO)
        lane.add(record(offset=next(numbers)), MONO)
        park(lane, aside)
        assert 2 == len(run(lane, aside))
        assert lane.is_empty
        if offset > 100:
            break
    assert (0, 0) == (len(lane.parking.places), len(lane._early))
    assert isinstance(noted(lane, now()), Idle)
