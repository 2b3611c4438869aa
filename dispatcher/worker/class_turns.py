"""The classes of this worker's lanes take turns: lets the engine go on with whoever has one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

from dispatcher.core.lanes.floor import Floors, Share
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.worker.admission import Driver


class ClassTurns:
    """Owned by the engine, on its event loop. All that it holds of a key, in partitions of one number, is one lane for people.

    `shares`: of each class, in the order of the request topics; none where there are no classes, and then everybody has its turn.
    """

    def __init__(self, driver: Driver, shares: Sequence[Share], partition_of: Callable[[Owner], Partition | None]) -> None:
        self._driver = driver
        self._floors: Floors[Lane] | None = Floors(shares) if shares else None
        self._partition_of = partition_of
        self._loop = asyncio.get_running_loop()

    def claim(self, lane: Lane) -> bool:
        """Whether a lane that could call has the turn; else it goes on once it has.

        One that was let go of, and that a late timer moves, takes nobody's place: its key may have another lane by now.
        """
        if self._floors is None:
            return True
        if not self._is_there(lane):
            return False
        has_it = self._floors.claim(_name(lane), lane.owner.source, lane)
        self._tell()
        return has_it

    def holds(self, lane: Lane) -> bool:
        """Whether it has the turn."""
        return self._floors is None or self._floors.holds(_name(lane), lane)

    def leave(self, lane: Lane) -> None:
        """It could not call now."""
        if self._floors is not None:
            self._floors.leave(_name(lane), lane.owner.source, lane)
            self._tell()

    def begin(self, lane: Lane) -> None:
        """Its call begins, or will as soon as its intent stands."""
        if self._floors is not None:
            self._floors.begin(_name(lane), lane.owner.source, lane)

    def end(self, lane: Lane, *, is_made: bool = True) -> None:
        """That has ended, or was not made; the lane goes on next."""
        if self._floors is not None:
            self._floors.end(_name(lane), lane.owner.source, lane, is_made=is_made)
            self._tell()

    def forget(self, owner: Owner) -> None:
        """An assignment is over, and so are those of its siblings."""
        if self._floors is not None:
            for name in self._floors.names():
                if isinstance(name, tuple) and name[0] == owner.partition:
                    self._floors.forget(name)

    def _tell(self) -> None:
        assert self._floors is not None
        for lane in self._floors.called():
            self._loop.call_soon(self._go_on, lane)

    def _go_on(self, lane: Lane) -> None:
        partition = self._partition_of(lane.owner)
        if partition is not None and self._is_there(lane):
            self._driver.advance(partition, lane)
        else:
            self.leave(lane)

    def _is_there(self, lane: Lane) -> bool:
        partition = self._partition_of(lane.owner)
        return partition is not None and partition.lanes.get(lane.key) is lane


def _name(lane: Lane) -> Hashable:
    return lane.owner.partition, lane.key
