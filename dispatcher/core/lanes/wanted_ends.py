"""Requests of a lane that are to end early, and cannot yet: one is in its call, others are parked and have to be read for that."""

from __future__ import annotations

from dispatcher.core.lanes.ending import Cancelled, Early, Expired
from dispatcher.core.lanes.lane_queue import LaneQueue
from dispatcher.core.lanes.parking import Parking
from dispatcher.core.lanes.steps import CUT_OFF, CutOff, Fetch


class WantedEnds:
    """Owned by one Lane: offsets, and why they are to end."""

    __slots__ = ("_early", "_parking", "_queue")

    def __init__(self, queue: LaneQueue, parking: Parking) -> None:
        self._queue = queue
        self._parking = parking
        self._early: dict[int, Early] = {}

    def __len__(self) -> int:
        return len(self._early)

    def __contains__(self, offset: int) -> bool:
        return offset in self._early

    def pop(self, offset: int) -> Early | None:
        """Why the request at `offset` is to end, which it does now; None where it need not."""
        return self._early.pop(offset, None)

    def get(self, offset: int) -> Early | None:
        """Why the request at `offset` is to end."""
        return self._early.get(offset)

    def in_call(self, offset: int, early: Early) -> CutOff | None:
        """The request in its call is to end; whether that is to be cut off now. A deadline cuts it off by itself."""
        known = self._early.get(offset)
        if not isinstance(early, Expired) and not isinstance(known, Cancelled):
            self._early[offset] = early
        return CUT_OFF if isinstance(early, Cancelled) and not isinstance(known, Cancelled) else None

    def parked(self, offset: int, early: Early, *, has_head: bool) -> Fetch | None:
        """A request that is parked, or on its way back, is to end; what has to be read for that, as `read`."""
        self._early[offset] = early
        return self.read(offset, has_head=has_head)

    def read(self, offset: int, *, has_head: bool) -> Fetch | None:
        """What has to be read so that a parked request can be answered; None where that is under way, or cannot be done yet.

        Where the first of all expires it is waited for: it may have been called, and then its end may halt those behind it.
        """
        is_first = isinstance(self._early.get(offset), Expired) and self._queue.is_foremost(offset, has_head=has_head)
        entry = self._parking.take(offset)
        if entry is None:
            return None
        if is_first:
            self._queue.awaited = (*self._queue.awaited, entry)
        return Fetch((entry,))

    def keep(self, offset: int | None) -> None:
        """Forget all but this one."""
        self._early = {one: early for one, early in self._early.items() if one == offset}
