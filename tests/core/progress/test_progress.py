"""Progress against a model that keeps every offset in a set: holes, duplicates, settling in any order, ends."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.progress.progress import Progress


def test_a_position_is_the_next_offset_to_read() -> None:
    """One record at 7, settled: 8 may be committed."""
    progress = Progress(7)
    assert progress.deliver(7)
    assert (progress.settle(7), progress.planned, progress.acknowledged) == (8, 8, 7)


def test_holes_are_stepped_over() -> None:
    """Markers and compaction leave holes: completions in the order 0, 2, 6, 4 end behind the last record."""
    progress = Progress(0)
    for offset in (0, 2, 4, 6):
        assert progress.deliver(offset)
    assert [progress.settle(offset) for offset in (0, 2, 6, 4)] == [1, 3, 3, 7]
    assert progress.reach_end(9) == 9


def test_settling_from_behind_moves_once() -> None:
    """2, 1, 0 settle: the last completion carries the position, and no more traffic is needed."""
    progress = Progress(0)
    for offset in range(3):
        progress.deliver(offset)
    assert [progress.settle(offset) for offset in (2, 1, 0)] == [0, 0, 3]


def test_what_was_delivered_is_dropped() -> None:
    """A second delivery of an offset, also of a settled one, is none; nor is one from before the start."""
    progress = Progress(5)
    assert progress.deliver(6)
    assert not progress.deliver(6)
    assert not progress.deliver(5)
    assert not progress.deliver(4)
    progress.settle(6)
    assert not progress.deliver(6)
    assert len(progress._open) == 0


def test_the_end_waits_for_what_is_outstanding() -> None:
    """An end that is seen early moves the position with the last outcome; a later delivery forgets it."""
    progress = Progress(0)
    progress.deliver(0)
    assert progress.reach_end(5) is None
    assert progress.settle(0) == 5
    progress.deliver(5)
    assert progress.reach_end(8) is None
    progress.deliver(8)
    assert [progress.settle(5), progress.settle(8)] == [6, 9]


def test_a_record_below_an_end_forgets_it() -> None:
    """Whatever comes after an end was seen is the newer truth: the position does not pass what may still come."""
    progress = Progress(5)
    progress.deliver(5)
    assert progress.reach_end(10) is None
    progress.deliver(7)
    assert [progress.settle(5), progress.settle(7)] == [6, 8]


def test_an_end_that_is_not_ahead_says_nothing() -> None:
    """An empty partition, a repeated end, and one below what was delivered since move nothing back."""
    progress = Progress(3)
    assert progress.reach_end(3) is None
    assert progress.reach_end(2) is None
    assert progress.reach_end(4) == 4
    assert progress.reach_end(4) is None
    assert progress.planned == 4


@pytest.mark.parametrize("position", [2, 6, -1])
def test_an_acknowledgement_from_nowhere_is_an_error(position: int) -> None:
    """Below what was acknowledged, or beyond what was planned, it belongs to somebody else: never booked."""
    progress = Progress(3)
    progress.deliver(3)
    progress.deliver(4)
    progress.settle(3)
    progress.settle(4)
    with pytest.raises(AssertionError):
        progress.acknowledge(position)
    progress.acknowledge(5)


def test_over_a_million_records_behind_one_slow_one() -> None:
    """1.2 million records, the first slow, the rest done in order: nothing in the tracker runs out, and the end is reached.

    A tracker that was re-based by index stopped committing after a million (knative PR 3023).
    """
    count = 1_200_000
    progress = Progress(0)
    assert all(progress.deliver(offset) for offset in range(count))
    planned = {progress.settle(offset) for offset in range(1, count)}
    assert planned == {0}
    assert len(progress._open) == 1
    assert progress.settle(0) == count
    assert progress.reach_end(count + 1) == count + 1
    progress.acknowledge(count + 1)
    assert not progress._open
    assert progress.ranges == 0


def test_what_an_earlier_owner_settled_is_dropped() -> None:
    """Its map lets the records in it go by, also where they are the last ones, and the mark runs over them."""
    progress = Progress(5, [(7, 9), (12, 20)])
    assert [progress.deliver(offset) for offset in (5, 6, 7, 8, 10, 12, 19)] == [True, True, False, False, True, False, False]
    assert (len(progress._open), progress.is_settled(8), progress.is_settled(10)) == (3, True, False)
    assert [progress.settle(offset) for offset in (10, 5, 6)] == [5, 6, 20]
    assert progress.ranges == 0


def test_a_hole_below_a_map_keeps_nothing_apart() -> None:
    """Records that compaction removed since are neither delivered nor missed."""
    progress = Progress(5, [(7, 9)])
    assert progress.deliver(9)
    assert progress.settle(9) == 10


def test_lost_records_are_stepped_over_once() -> None:
    """What retention removed is settled by nobody; what is in hand below it still holds the mark."""
    progress = Progress(3)
    progress.deliver(3)
    assert progress.skip_to(50) == (4, 50)
    assert progress.skip_to(20) is None
    assert not progress.deliver(30)
    assert progress.deliver(50)
    assert [progress.settle(50), progress.settle(3)] == [3, 51]


class ProgressMachine(RuleBasedStateMachine):
    """The model: which offsets were delivered and settled, and which positions were handed out and not acknowledged."""

    @initialize(start=st.integers(0, 2**40))
    def begin(self, start: int) -> None:
        self.start = start
        self.progress = Progress(start)
        self.delivered: set[int] = set()
        self.settled: set[int] = set()
        self.handed_out: deque[int] = deque()
        self.acknowledged = start
        self.end = start

    @rule(hole=st.integers(0, 5), count=st.integers(1, 4))
    def deliver(self, hole: int, count: int) -> None:
        first = max(self.end, self.progress.delivered) + hole
        for offset in range(first, first + count):
            assert self.progress.deliver(offset)
            self.delivered.add(offset)
        self.end = first + count

    @rule(back=st.integers(1, 6))
    def deliver_again(self, back: int) -> None:
        assert not self.progress.deliver(self.progress.delivered - back)

    @precondition(lambda self: self.delivered - self.settled)
    @rule(data=st.data(), in_order=st.booleans())
    def settle(self, data: st.DataObject, in_order: bool) -> None:  # noqa: FBT001 - drawn
        waiting = sorted(self.delivered - self.settled)
        offset = waiting[0] if in_order else data.draw(st.sampled_from(waiting))
        self.settled.add(offset)
        self.handed_out.append(self.progress.settle(offset))

    @rule(markers=st.integers(0, 3))
    def reach_end(self, markers: int) -> None:
        self.end += markers
        if (position := self.progress.reach_end(self.end)) is not None:
            self.handed_out.append(position)

    @precondition(lambda self: self.handed_out)
    @rule()
    def acknowledge(self) -> None:
        self.acknowledged = self.handed_out.popleft()
        self.progress.acknowledge(self.acknowledged)

    @invariant()
    def marks_are_in_order(self) -> None:
        if not hasattr(self, "progress"):
            return
        progress, waiting = self.progress, self.delivered - self.settled
        assert self.start <= progress.acknowledged <= progress.planned <= max(progress.delivered, self.end)
        assert self.acknowledged == progress.acknowledged
        assert list(self.handed_out) == sorted(self.handed_out)
        assert progress.planned == (self.handed_out[-1] if self.handed_out else progress.acknowledged)
        assert all(offset >= progress.planned for offset in waiting)
        assert all(offset < progress.planned for offset in self.settled if not any(other < offset for other in waiting))
        assert len(waiting) == len(progress._open)

    def teardown(self) -> None:
        if not hasattr(self, "progress"):
            return
        for offset in sorted(self.delivered - self.settled, reverse=True):
            self.progress.settle(offset)
        self.progress.reach_end(self.end)
        assert max(self.end, self.start) == self.progress.planned
        self.progress.acknowledge(self.progress.planned)


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
