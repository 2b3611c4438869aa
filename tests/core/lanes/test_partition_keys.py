"""A partition with a lane per key: what it holds, what may start where a commit can carry no more, what it moves aside, when it ends."""

from __future__ import annotations

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import HALTED
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.buffer import Flow
from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.partition import KEEP, Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Fetch, Settle, Start
from tests.core.aside import PARKED, Aside
from tests.core.keyed import DECODER, Hold, content
from tests.specimens import MONO, OWNER, answer, now, record, settled

ROOM = Room(records=20, size_bytes=1 << 20, unpublished_s=10, ranges=3)
ALPHABET = [b"%c" % letter for letter in range(ord("a"), ord("z") + 1)]


def partition(room: Room = ROOM, hold: Hold | None = None, settled: list[tuple[int, int]] | None = None) -> Partition:
    """An assignment from offset 0 on, of which nothing is parked."""
    held = Partition(OWNER, 0, DECODER, room, settled or [], (hold or Hold()).of)
    assert [] == held.restore([], now())
    return held


def accept(held: Partition, keys: bytes, first: int = 0) -> list[Lane]:
    """Records come: one for each letter, which is its key."""
    return held.accept([record(offset=first + n, key=b"%c" % letter) for n, letter in enumerate(keys)], MONO)


def lane(held: Partition, key: bytes) -> Lane:
    """The lane of a key, which has something."""
    found = held.lane_of(key)
    assert found is not None
    return found


def start(held: Partition, key: bytes, later_s: float = 0) -> int:
    """Start the next call of a key; which request it is for."""
    assert held.may_start(lane(held, key))
    step = lane(held, key).next(now(later_s))
    assert isinstance(step, Start), step
    return step.request.record.offset


def end(held: Partition, key: bytes, later_s: float = 0) -> Outcome:
    """The call in hand of a key is answered; its outcome."""
    lane(held, key).answered(answer(), now(later_s), 0.5)
    step = lane(held, key).next(now(later_s))
    assert isinstance(step, Settle)
    return settled(held, step.outcome, MONO + later_s)


def settle(held: Partition, key: bytes) -> Outcome:
    """Execute the next request of a key."""
    start(held, key)
    return end(held, key)


def wait(held: Partition, key: bytes, wait_s: int = 100) -> None:
    """Call the next request of a key, which is told to come again later."""
    start(held, key)
    lane(held, key).answered(answer(503, headers=(("retry-after", str(wait_s)),)), now(), 0.5)


def publish(held: Partition, aside: Aside, outcomes: list[Outcome]) -> None:
    """These are published and acknowledged."""
    for outcome in outcomes:
        assert held.acknowledge(aside.publish(outcome)) is None


# --- lanes and counts -----------------------------------------------------------------------------------------------------------------


def test_a_lane_for_each_key_while_it_has_anything() -> None:
    """In the order in which their records came; an idle key costs nothing."""
    held = partition()
    assert [b"a", b"b", b"c"] == [one.key for one in accept(held, b"abac")]
    assert held.lane_of(b"d") is None
    held.acknowledge(settle(held, b"b"))
    held.retire(lane(held, b"b"))
    assert [b"a", b"c"] == list(held.lanes)
    held.retire(lane(held, b"a"))
    assert [b"a", b"c"] == list(held.lanes)


def test_what_is_parked_is_held_until_it_is_written_and_again_once_it_is_read() -> None:
    """Records in memory are those that wait, and those whose publication is not acknowledged; parked ones are counted beside."""
    held, aside = partition(), Aside()
    accept(held, b"aaabbbbbbb")
    wait(held, b"a")
    moved = held.park(now(1))
    assert ([0, 1, 2], 10, 3) == ([one.record.offset for one in moved if one.record is not None], held.held_records, held.parked)
    publish(held, aside, moved)
    assert (7, 3) == (held.held_records, held.parked)
    asked = lane(held, b"a").next(now(100))
    assert isinstance(asked, Fetch)
    lanes, outcomes = held.fetched(*aside.read(asked.entries), now(100))
    assert ([b"a"], []) == ([one.key for one in lanes], outcomes)
    assert (10, 3) == (held.held_records, held.parked)
    start(held, b"a", 100)
    ended = end(held, b"a", 100)
    assert (10, 2) == (held.held_records, held.parked)
    publish(held, aside, [ended])
    assert (9, [1, 2]) == (held.held_records, aside.offsets)
    lane(held, b"a").next(now(100))
    wait_again = lane(held, b"a")
    wait_again.answered(answer(503, headers=(("retry-after", "100"),)), now(100), 0.5)
    publish(held, aside, held.park(now(101)))
    assert (7, 2) == (held.held_records, held.parked)


def test_what_is_lost_is_not_counted_any_more() -> None:
    """Gone from the parked topic: no tombstone, no reply, nothing held."""
    held, aside = partition(), Aside()
    accept(held, b"aabbbbbbbbbb")
    wait(held, b"a")
    publish(held, aside, held.park(now(1)))
    asked = lane(held, b"a").next(now(100))
    assert isinstance(asked, Fetch)
    held.fetched(*aside.read(asked.entries, lost=[0, 1]), now(100))
    assert (10, 0) == (held.held_records, held.parked)
    held.retire(lane(held, b"a"))
    assert held.lane_of(b"a") is None


def test_what_comes_back_settles_nothing_of_the_log() -> None:
    """Its move has settled it: its end only moves the position as far as the others have, and removes it from the parked topic."""
    held, aside = partition(), Aside()
    accept(held, b"abbbbbbbbbb")
    wait(held, b"a")
    (moved,) = held.park(now(1))
    assert ((0, 1), 1) == (moved.span, moved.position)
    publish(held, aside, [moved])
    asked = lane(held, b"a").next(now(100))
    assert isinstance(asked, Fetch)
    held.fetched(*aside.read(asked.entries), now(100))
    start(held, b"a", 100)
    ended = end(held, b"a", 100)
    assert (None, 1) == (ended.span, ended.position)
    assert [(PARKED, None)] == [(message.topic, message.value) for message in ended.extra]


def test_what_still_stands_in_the_log_is_not_restored() -> None:
    """Its parked copy is void: a tombstone, and the log's own record is executed. What the map says was settled is restored."""
    held = Partition(OWNER, 5, DECODER, ROOM, [(7, 8)])
    held.accept([record(offset=8, key=b"a")], MONO)
    entries = [Entry(offset, b"a", offset, 100, 0, "queued") for offset in (3, 6, 7, 9)]
    void = held.restore(entries, now())
    keys = [message.key for one in void for message in one.extra]
    assert [6, 9] == [int((key or b"").rsplit(b"/", 1)[1]) for key in keys]
    assert (2, 2, 1) == (held.parked, lane(held, b"a").parked, held.held_records)
    assert 3 == lane(held, b"a").first_offset


# --- what a commit can carry ----------------------------------------------------------------------------------------------------------


def test_a_full_map_lets_only_those_start_that_fill_its_gaps() -> None:
    """Three ranges at most: a waits, every second of the others has ended. What touches one may start, what would be one more may not."""
    held = partition()
    accept(held, b"abcdefghi")
    for key in (b"b", b"d", b"f"):
        settle(held, key)
    assert (3, True) == (held.progress.ranges, held.is_map_full)
    allowed = {one.key for one in held.lanes.values() if len(one) and held.may_start(one)}
    assert {b"a", b"c", b"e", b"g"} == allowed
    settle(held, b"c")
    assert not held.is_map_full
    assert all(held.may_start(one) for one in held.lanes.values())


def test_a_full_map_lets_parked_ones_come_back() -> None:
    """They have left the log: their end adds nothing to the map."""
    held, aside = partition(), Aside()
    accept(held, b"abcdefghi")
    wait(held, b"a")
    publish(held, aside, held.park(now(1)))
    assert [0] == aside.offsets
    for key in (b"c", b"e", b"g"):
        settle(held, key)
    assert held.is_map_full
    assert not held.may_start(lane(held, b"i"))
    assert held.may_start(lane(held, b"a"))


def test_an_earlier_owner_s_ranges_count() -> None:
    """They stand in the map until the position has passed them; what they say has ended is dropped when it is delivered."""
    held = partition(settled=[(1, 2), (3, 4), (5, 6)])
    assert held.is_map_full
    assert [b"a", b"c", b"e", b"g", b"h"] == [one.key for one in accept(held, b"abcdefgh")]
    assert not held.may_start(lane(held, b"h"))
    assert [2, 4, 6] == [settle(held, key).position for key in (b"a", b"c", b"e")]
    assert [7, 8] == [settle(held, key).position for key in (b"g", b"h")]


def test_ten_slow_keys_do_not_stop_the_others() -> None:
    """Each has a tenth of half of all requests, and its calls take a minute: their queues are moved aside before the map is full."""
    room = Room(records=4000, size_bytes=1 << 30, unpublished_s=1e9, ranges=200)
    held, aside = partition(room), Aside()
    slow = ALPHABET[:10]
    for n in range(2000):
        key = slow[n // 2 % 10] if n % 2 == 0 else b"k%d" % n
        held.accept([record(offset=n, key=key)], MONO)
        if n < 20 and key in slow:
            start(held, key)
        if key not in slow:
            assert held.may_start(lane(held, key)), f"{n}: {held.progress.ranges} ranges"
            publish(held, aside, [settle(held, key)])
            held.retire(lane(held, key))
        if held.is_pressed:
            publish(held, aside, held.park(now(60)))
    assert held.progress.ranges <= 101
    assert 500 < len(aside.offsets) < 1000


def test_no_more_queues_are_moved_than_the_map_needs() -> None:
    """The longest first: with that of a gone there is room, and b keeps its own."""
    held, aside = partition(Room(records=4000, size_bytes=1 << 30, unpublished_s=1e9, ranges=20)), Aside()
    accept(held, b"axbyaxayazawavbu")
    start(held, b"a")
    start(held, b"b")
    for key in (b"x", b"y", b"x", b"y", b"z", b"w", b"v", b"u"):
        settle(held, key)
    assert (8, False) == (held.progress.ranges, held.is_pressed)
    accept(held, b"xbxbxbx", first=16)
    for _ in range(4):
        settle(held, b"x")
    assert held.is_pressed
    publish(held, aside, held.park(now(60)))
    assert (False, [6, 8, 10, 12]) == (held.is_pressed, aside.offsets)


# --- room -----------------------------------------------------------------------------------------------------------------------------


def test_what_presses_is_memory_the_map_or_the_distance() -> None:
    """More than half of what it may hold, half of the ranges, or far ahead of the mark."""
    held = partition()
    accept(held, b"aaaaaaaaaa")
    assert not held.is_pressed
    accept(held, b"a", first=10)
    assert held.is_pressed
    held = partition()
    accept(held, b"abcd")
    settle(held, b"b")
    assert not held.is_pressed
    settle(held, b"d")
    assert held.is_pressed
    held = partition(Room(records=1000, size_bytes=1 << 20, unpublished_s=10, distance=4))
    accept(held, b"abcd")
    assert held.is_pressed
    settle(held, b"a")
    assert not held.is_pressed


def test_who_waits_a_moment_is_left_in_memory() -> None:
    """A write and a read back are not worth it; nor where the call is in flight, and the queue short."""
    held = partition()
    accept(held, b"ab")
    wait(held, b"a", wait_s=1)
    start(held, b"b")
    assert [] == held.park(now(0.5))
    assert [] == held.park(now(1000))


def test_a_busy_lane_s_long_queue_is_moved_but_for_its_beginning() -> None:
    """As its calls take so long that most of it waits for half a minute and more."""
    held, aside = partition(Room(records=40, size_bytes=1 << 20, unpublished_s=10)), Aside()
    accept(held, b"a" * 21)
    start(held, b"a")
    assert [] == held.park(now(1))
    publish(held, aside, held.park(now(2)))
    assert [*range(1 + KEEP, 21)] == aside.offsets


def test_no_more_is_parked_than_can_be_known() -> None:
    """Beyond the bound the partition stands: a new owner has to know them all."""
    hold = Hold()
    hold.why = "paused"
    held, aside = partition(Room(records=20, size_bytes=1 << 20, unpublished_s=10, parked=3), hold), Aside()
    accept(held, b"abcdefghijklmn")
    publish(held, aside, held.park(now()))
    assert [0, 1, 2] == aside.offsets
    publish(held, aside, held.park(now()))
    assert (11, 3, True) == (held.held_records, held.parked, held.short_of == "parked limit")


def test_that_what_cannot_be_moved_fills_the_memory_is_told() -> None:
    """Nothing else is read until it goes on: too large for the parked topic, and not refused for that."""
    hold = Hold()
    hold.why = "paused"
    held = partition(Room(records=1000, size_bytes=10_000, unpublished_s=10, parked_max_bytes=4000), hold)
    held.accept([content(3000, 0), content(3000, 1), record(offset=2), content(3000, 3)], MONO)
    aside = Aside()
    publish(held, aside, held.park(now()))
    assert ([2], "") == (aside.offsets, held.short_of)
    held.accept([content(3000, 4)], MONO)
    assert Flow.PAUSE == held.flow()
    assert [] == held.park(now())
    assert "memory" == held.short_of


def test_what_no_request_may_be_ends_where_room_is_needed() -> None:
    """It is in nobody's way: what is larger than any request is answered before its turn, and the others of its key are parked."""
    hold = Hold()
    hold.why = "paused"
    held, aside = partition(Room(records=1000, size_bytes=4 << 20, unpublished_s=10, parked_max_bytes=1 << 20), hold), Aside()
    held.accept([record(offset=0), content(1 << 21, 1), record(offset=2), content(1 << 21, 3)], MONO)
    assert Flow.PAUSE == held.flow()
    outcomes = held.park(now())
    assert [1, 3] == [outcome.record.offset for outcome in outcomes if outcome.record and outcome.letter]
    publish(held, aside, outcomes)
    assert ([0, 2], 0, Flow.RESUME, "") == (aside.offsets, held.held_records, held.flow(), held.short_of)


def test_flow_follows_what_is_held() -> None:
    """Full at 20: paused, until what waits has been moved aside and written."""
    hold = Hold()
    hold.why = "paused"
    held, aside = partition(hold=hold), Aside()
    accept(held, b"a" * 20)
    assert Flow.PAUSE is held.flow()
    moved = held.park(now())
    assert held.flow() is None
    publish(held, aside, moved)
    assert Flow.RESUME is held.flow()
    assert (0, 20) == (held.held_records, held.parked)


def test_looking_for_room_passes_over_what_has_left_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done four times a second, and a hundred thousand keys may be parked; where no more can be parked, nobody is asked."""
    asked: list[bytes | None] = []
    waits = Lane.is_waiting_long

    def noted(of: Lane, instant: Instant, long_s: float) -> bool:
        asked.append(of.key)
        return waits(of, instant, long_s)

    monkeypatch.setattr(Lane, "is_waiting_long", noted)
    held, aside = partition(Room(records=20, size_bytes=1 << 20, unpublished_s=10, parked=3)), Aside()
    accept(held, b"abc")
    for key in (b"a", b"b"):
        wait(held, key)
    publish(held, aside, held.park(now()))
    assert (2, [b"a", b"b", b"c"]) == (held.parked, asked)
    publish(held, aside, held.park(now()))
    assert [b"c"] == asked[3:]
    wait(held, b"c")
    publish(held, aside, held.park(now()))
    accept(held, b"d", first=3)
    asked.clear()
    assert ([], []) == (held.park(now()), asked)


def test_behind_a_halted_key_only_so_many_wait() -> None:
    """In memory and parked together; newer ones are refused at once, those of other keys are not. A pause refuses nothing."""
    hold = Hold()
    held, aside = partition(Room(records=100, size_bytes=1 << 20, unpublished_s=10, halted=3), hold), Aside()
    hold.why = HALTED
    accept(held, b"aa")
    publish(held, aside, held.park(now()))
    accept(held, b"aaa", first=2)
    refused = []
    while isinstance(step := lane(held, b"a").next(now()), Settle):
        refused.append(settled(held, step.outcome, MONO))
    assert [3, 4] == [one.record.offset for one in refused if one.record is not None]
    publish(held, aside, refused)
    assert (1, 2) == (held.held_records, held.parked)
    hold.why = "paused"
    accept(held, b"a", first=5)
    assert 2 == len(lane(held, b"a"))


def test_what_is_larger_than_the_parked_topic_takes_stays() -> None:
    """With all of its key that would pass it."""
    hold = Hold()
    hold.why = "paused"
    held = partition(Room(records=10, size_bytes=1 << 20, unpublished_s=10, parked_max_bytes=3000), hold)
    held.accept([content(4000)], MONO)
    assert [] == held.park(now())
    assert 1 == held.held_records


# --- its end --------------------------------------------------------------------------------------------------------------------------


def test_it_is_drained_when_nothing_of_any_lane_is_in_flight() -> None:
    """What is queued, waits, is parked or comes back is the next owner's; calls and publications are awaited."""
    held, aside = partition(), Aside()
    accept(held, b"abbcdddddddd")
    wait(held, b"a")
    start(held, b"b")
    start(held, b"c")
    moved = held.park(now(1))
    held.close()
    assert [b"b", b"c"] == [one.key for one in held.busy()]
    assert [b"b", b"c"] == list(held.lanes)
    ended = [end(held, b"b"), end(held, b"c")]
    assert not held.is_drained
    publish(held, aside, [*moved, *ended])
    assert held.is_drained
    assert [0] == aside.offsets


def test_a_closed_partition_takes_nothing_in() -> None:
    """Neither records, nor what was parked further up in the log: no lane is made any more."""
    held = Partition(OWNER, 0, DECODER, ROOM, [(5, 6)])
    held.restore([Entry(5, b"a", 0, 100, 0, "queued")], now())
    held.close()
    assert [] == accept(held, b"abcdefgh")
    assert [] == held.admit(100)
    assert held.reach_end(100, MONO) is None
    assert {} == held.lanes
    assert held.is_drained


def test_a_hundred_rounds_leave_nothing() -> None:
    """Whatever went through it: no lane, no count, no range."""
    held, aside = partition(Room(records=20, size_bytes=1 << 20, unpublished_s=1e9)), Aside()
    for n in range(100):
        accept(held, b"%c%c" % (ALPHABET[n % 26][0], ALPHABET[n % 7][0]), first=2 * n)
        for one in list(held.lanes.values()):
            while isinstance(step := one.next(now(n)), Start):
                one.answered(answer(), now(n), 0.5)
                ended = one.next(now(n))
                assert isinstance(ended, Settle)
                publish(held, aside, [settled(held, ended.outcome, MONO + n)])
                assert step.first
            held.retire(one)
    assert (0, 0, {}, 200, 0) == (held.held_records, held.parked, held.lanes, held.progress.acknowledged, held.progress.ranges)


def test_nothing_is_published_that_no_commit_could_tell_of() -> None:
    """Calls in hand end far above one that does not: what does not fit beside it waits with its reply, until older ones have ended."""
    held = partition(Room(records=10_000, size_bytes=1 << 30, unpublished_s=1e9, map_bytes=100))
    keys = [b"k%d" % n for n in range(200)]
    lanes = [lane for n, key in enumerate(keys) for lane in held.accept([record(offset=n, key=key)], MONO)]
    for one in lanes:
        assert isinstance(one.next(now()), Start)
    published: list[Outcome] = []
    withheld = 0
    # Every second one ends, the youngest first: each would be a range of its own.
    for one in [*lanes[199::-2], *lanes[2::2]]:
        one.answered(answer(), now(), 0.5)
        step = one.next(now())
        assert isinstance(step, Settle)
        published += held.settle(step.outcome, MONO)
        assert held.progress.map_bytes <= 100
        withheld = max(withheld, held.withheld)
    assert (0, 199) == (held.withheld, len(published))
    assert withheld > 50
    lanes[0].answered(answer(), now(), 0.5)
    step = lanes[0].next(now())
    assert isinstance(step, Settle)
    published += held.settle(step.outcome, MONO)
    assert (200, 0, 200) == (len(published), held.withheld, published[-1].position)


def test_what_is_younger_in_the_lane_waits_with_it() -> None:
    """Replies of a lane stand in its order; an older request of the same lane may end meanwhile, and nothing younger starts."""
    held = partition(Room(records=10_000, size_bytes=1 << 30, unpublished_s=1e9, map_bytes=20))
    (lane,) = held.accept([record(offset=n, key=b"a") for n in (1, 2, 3)], MONO)
    for offset, is_first in ((2, False), (1, True)):
        outcome = lane.end(offset, Skipped("no"), now())
        assert isinstance(outcome, Outcome)
        done = [one.record.offset for one in held.settle(outcome, MONO) if one.record is not None]
        assert ([1, 2] if is_first else []) == done
        assert held.may_start(lane)
