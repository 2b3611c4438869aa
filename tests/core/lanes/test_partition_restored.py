"""What is parked comes back into its lane where it stood: behind older requests of its key that the log still holds, before newer ones."""

from __future__ import annotations

from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Busy, Fetch, Idle, Settle, Start
from dispatcher.core.messages.record import Record
from tests.specimens import MONO, OWNER, answer, decoder, now, record, settings

DECODER = decoder(settings(worker={"ordering": "key"}))
ROOM = Room(records=100, size_bytes=1 << 20, unpublished_s=10)
KEY = b"doc:1"


def partition() -> Partition:
    """A new assignment from 5 on, where an earlier owner had 5 in hand, has parked 6 and 9, and was done with 7 and 8."""
    held = Partition(OWNER, 5, DECODER, ROOM, [(6, 10)])
    assert held.restore([entry(6), entry(9)], now()) == []
    return held


def entry(offset: int) -> Entry:
    """A parked request that is due."""
    return Entry(offset, KEY, offset, 100, 0.0, "queued")


def sent(offset: int) -> Record:
    """A request of the same key."""
    return record(offset=offset, key=KEY)


def test_an_older_request_that_the_log_still_holds_comes_first() -> None:
    """The one that was in hand when its owner was killed: parked ones wait until the log has been read up to them."""
    held = partition()
    assert held.lane_of(KEY) is None
    (lane,) = held.accept([sent(5)], MONO)
    step = lane.next(now())
    assert isinstance(step, Start)
    assert step.request.record.offset == 5
    assert held.accept([sent(6), sent(7), sent(8), sent(9), sent(10)], MONO) == [lane]
    lane.answered(answer(), now(), 0.5)
    assert isinstance(lane.next(now()), Settle)
    assert lane.next(now()) == Fetch((entry(6), entry(9)))
    assert isinstance(lane.next(now()), Busy)


def test_without_an_older_one_the_next_of_another_key_is_enough() -> None:
    """Reading has gone beyond it."""
    held = partition()
    other = record(offset=7, key=b"doc:2")
    assert [lane.key for lane in held.accept([other], MONO)] == [KEY]
    lane = held.lane_of(KEY)
    assert lane is not None
    assert lane.next(now()) == Fetch((entry(6),))


def test_the_end_of_the_log_is_enough() -> None:
    """What compaction removed is not waited for."""
    held = partition()
    held.reach_end(12, MONO)
    (lane,) = held.admit(12)
    assert lane.next(now()) == Fetch((entry(6), entry(9)))
    assert isinstance(lane.next(now()), Busy)
    assert not isinstance(lane.next(now()), Idle)


def test_what_lies_below_the_mark_waits_for_nothing() -> None:
    """Everything older has ended."""
    held = Partition(OWNER, 20, DECODER, ROOM)
    held.restore([entry(6)], now())
    lane = held.lane_of(KEY)
    assert lane is not None
    assert lane.next(now()) == Fetch((entry(6),))


def test_its_own_record_is_enough() -> None:
    """Who wants a parked request skipped asks for it as soon as its record has been read: it has to be in its lane by then."""
    held = partition()
    held.accept([sent(5), sent(6)], MONO)
    lane = held.lane_of(KEY)
    assert lane is not None
    assert lane.holds(6)
