"""Skipping a request: it ends `cancelled`, without a further call, wherever it is; and nothing else is touched by that."""

from __future__ import annotations

from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Fetch, Idle
from dispatcher.core.messages.status import Reason, Status
from tests.core.aside import Aside
from tests.core.keyed import BOUNDS, ask, fail, fetch, finish, keyed, offsets, park, place, run, settle, start
from tests.specimens import MONO, answer, now, record, value

REASON = "skipped by ann: no need"
SKIPPED = Skipped(REASON)


def assert_cancelled(outcome: object, offset: int, attempts: int = 0) -> None:
    """It is the end of the request at `offset`, after so many calls: a reply that says who wanted that, no dead letter."""
    assert isinstance(outcome, Outcome)
    assert outcome.reply is not None
    assert outcome.letter is None
    assert outcome.reply.fault is not None
    assert ([offset], Status.CANCELLED, attempts) == (offsets([outcome]), outcome.reply.status, outcome.reply.attempts)
    assert ("cancelled", REASON) == (outcome.reply.fault.kind, outcome.reply.fault.message)


def test_one_that_is_queued_ends_at_once() -> None:
    """Out of turn; those before and behind it run as if it had not been there."""
    lane, aside = keyed(5, 6, 7), Aside()
    assert_cancelled(lane.end(6, SKIPPED, now()), 6)
    assert not lane.holds(6)
    assert [5, 7] == run(lane, aside)


def test_the_head_in_front_of_its_retry_ends_at_once() -> None:
    """Its calls are counted; the next one's turn has come."""
    lane = keyed(5, 6)
    fail(lane)
    assert_cancelled(lane.end(5, SKIPPED, now()), 5, attempts=1)
    assert 6 == start(lane)


def test_one_that_makes_no_sense_ends_as_it_would_have() -> None:
    """A dead letter, `malformed`: nobody could have cancelled what could not have been called."""
    lane = keyed(5)
    lane.add(record(b"{", 6), MONO)
    outcome = lane.end(6, SKIPPED, now())
    assert isinstance(outcome, Outcome)
    assert outcome.letter is not None
    assert Reason.MALFORMED is outcome.letter.reason


def test_its_metadata_and_its_agent_come_back() -> None:
    """As with every reply."""
    lane = keyed()
    lane.add(record(value(metadata={"m": 1}, agent="planner"), 5), MONO)
    outcome = lane.end(5, SKIPPED, now())
    assert isinstance(outcome, Outcome)
    assert outcome.reply is not None
    assert (b'{"m":1}', "planner") == (outcome.reply.metadata, outcome.reply.agent)


def test_in_a_call_an_answer_stays_an_answer() -> None:
    """The call cannot be taken back: what it gave is the reply."""
    for status, expected in ((200, Status.OK), (404, Status.ERROR)):
        lane = keyed(5, 6)
        start(lane)
        assert lane.end(5, SKIPPED, now()) is None
        assert lane.holds(5)
        lane.answered(answer(status), now(), 0.5)
        outcome = settle(lane)
        assert outcome.reply is not None
        assert expected is outcome.reply.status
        assert 6 == finish(lane)
        assert lane.is_empty


def test_in_a_call_that_fails_there_is_no_other_try() -> None:
    """Neither after a failure nor after a hint; its last failure is a dead letter as ever."""
    for status, attempts_max in ((500, 3), (429, 3)):
        lane = keyed()
        lane.add(record(value(attempts_max=attempts_max), 5), MONO)
        start(lane)
        lane.end(5, SKIPPED, now())
        lane.answered(answer(status), now(), 0.5)
        assert_cancelled(settle(lane), 5, attempts=1)
        assert isinstance(lane.next(now(100)), Idle)
    lane = keyed()
    lane.add(record(value(attempts_max=1), 5), MONO)
    start(lane)
    lane.end(5, SKIPPED, now())
    lane.answered(answer(500), now(), 0.5)
    assert settle(lane).letter is not None


def test_also_when_the_lane_is_closed_meanwhile() -> None:
    """The call in hand is this owner's to end: it does not leave a request that nobody wants to the next one."""
    lane = keyed(5, 6)
    start(lane)
    lane.end(5, SKIPPED, now())
    lane.close()
    lane.answered(answer(500), now(), 0.5)
    assert_cancelled(settle(lane), 5, attempts=1)
    assert lane.is_empty


def test_one_that_is_answered_and_not_fetched_has_ended() -> None:
    """Too late: its reply is what it is."""
    lane = keyed(5)
    start(lane)
    lane.answered(answer(), now(), 0.5)
    assert not lane.holds(5)
    assert lane.end(5, SKIPPED, now()) is None
    assert settle(lane).reply is not None


def test_a_parked_one_is_read_again_to_be_answered() -> None:
    """Without waiting for its turn or its time; those before and behind it stay where they are."""
    lane, aside = keyed(5, 6, 7), Aside()
    fail(lane, wait_s=100)
    park(lane, aside)
    for offset, attempts in ((5, 1), (6, 0)):
        asked = lane.end(offset, SKIPPED, now())
        assert isinstance(asked, Fetch)
        assert [offset] == [entry.offset for entry in asked.entries]
        assert lane.holds(offset)
        assert not lane.is_empty
        (outcome,) = lane.fetched(*aside.read(asked.entries), now())
        assert_cancelled(outcome, offset, attempts)
    assert [7] == run(lane, aside)


def test_the_next_one_does_not_wait_for_the_skipped_ones_time() -> None:
    """The first of those that are parked was to wait 100 s: it is gone, and the one behind it may go at once."""
    lane, aside = keyed(5, 6), Aside()
    fail(lane, wait_s=100)
    park(lane, aside)
    lane.end(5, SKIPPED, now())
    assert [6] == fetch(lane, aside)


def test_one_on_its_way_back_is_answered_when_it_comes() -> None:
    """It was read to be called, and is not; those that came with it are."""
    lane, aside = keyed(5, 6, 7), Aside()
    park(lane, aside)
    asked = ask(lane)
    assert lane.end(6, SKIPPED, now()) is None
    assert lane.holds(6)
    (outcome,) = lane.fetched(*aside.read(asked.entries), now())
    assert_cancelled(outcome, 6)
    assert [5, 7] == run(lane, aside)
    assert lane.is_empty


def test_one_that_is_lost_on_its_way_leaves_nothing() -> None:
    """Nobody can answer it any more."""
    lane, aside = keyed(5), Aside()
    park(lane, aside)
    asked = lane.end(5, SKIPPED, now())
    assert isinstance(asked, Fetch)
    assert [] == lane.fetched(*aside.read(asked.entries, lost=[5]), now())
    assert lane.is_empty


def test_one_that_is_being_parked_is_read_once_it_is_written() -> None:
    """Nothing could be found before; its place comes with the acknowledgement."""
    lane, aside = keyed(5, 6), Aside()
    first, second = lane.park(0, BOUNDS, now())[0]
    assert lane.end(6, SKIPPED, now()) is None
    place(lane, aside, [first])
    published = aside.publish(second)
    asked = lane.placed(6, published.place)
    assert isinstance(asked, Fetch)
    assert [(6, published.place)] == [(entry.offset, entry.place) for entry in asked.entries]
    (outcome,) = lane.fetched(*aside.read(asked.entries), now())
    assert_cancelled(outcome, 6)
    assert [5] == run(lane, aside)


def test_twice_is_once() -> None:
    """The second finds it ended, or on its way."""
    lane, aside = keyed(5, 6), Aside()
    park(lane, aside)
    asked = lane.end(6, SKIPPED, now())
    assert isinstance(asked, Fetch)
    assert lane.end(6, SKIPPED, now()) is None
    assert 1 == len(lane.fetched(*aside.read(asked.entries), now()))
    assert lane.end(6, SKIPPED, now()) is None


def test_what_is_not_here_is_nobodys() -> None:
    """Another lane's, or one that has ended."""
    lane = keyed(5)
    assert lane.end(4, SKIPPED, now()) is None
    assert not lane.holds(4)
    assert 5 == finish(lane)
    assert lane.end(5, SKIPPED, now()) is None
    assert lane.is_empty
