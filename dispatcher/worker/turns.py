"""Whose turn it is to make a call: slots of the worker and of each partition, and the lanes that stand in line for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from dispatcher.core.lane import Lane
from dispatcher.core.outcome import Owner
from dispatcher.core.partition import Partition


class Turns:
    """Owned by the engine. A lane stands in line only while its next step is a call: the first that came is the first that goes.

    One whose partition keeps it (its own slots are taken, its commit's map is full, it may not start calls) stands aside, so that it does
    not stop the line; `release` brings it back, to the end.
    """

    def __init__(self, slots: int, partition_slots: int) -> None:
        self._slots = slots
        self._partition_slots = partition_slots
        self._taken = 0
        self._line: OrderedDict[Lane, Partition] = OrderedDict()
        self._aside: dict[Partition, OrderedDict[Lane, None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether there is a slot, and a lane in line for it."""
        return bool(self._line) and self._taken < self._slots

    def has_slot(self, partition: Partition, *, has_turn: bool) -> bool:
        """Whether a lane of this partition may call now: there is a slot, and nobody came before."""
        if self._taken >= self._slots or partition.calls >= self._partition_slots:
            return False
        return has_turn or not (self._line or partition in self._aside)

    def take(self, partition: Partition) -> None:
        """A call begins."""
        self._taken += 1
        partition.calls += 1

    def give_back(self, partition: Partition) -> None:
        """A call has ended."""
        self._taken -= 1
        partition.calls -= 1

    def stand(self, partition: Partition, lane: Lane, *, aside: bool) -> None:
        """Stand in line, or aside; a lane that stands there already keeps its place."""
        if aside or partition.calls >= self._partition_slots:
            self._line.pop(lane, None)
            self._aside.setdefault(partition, OrderedDict()).setdefault(lane)
        elif lane not in self._line:
            self.leave(partition, lane)
            self._line[lane] = partition

    def leave(self, partition: Partition, lane: Lane) -> None:
        """Its next step is no call: a turn that it had no use for would be another one's."""
        self._line.pop(lane, None)
        if (aside := self._aside.get(partition)) is not None:
            aside.pop(lane, None)
            if not aside:
                del self._aside[partition]

    def release(self, partition: Partition, may_start: Callable[[Lane], bool]) -> None:
        """Bring lanes of a partition back into the line: as many as it has slots for, of those that may start as far as it knows."""
        aside = self._aside.get(partition)
        if aside is None:
            return
        free = max(0, self._partition_slots - partition.calls)
        for lane in list(islice(filter(may_start, aside), free)):
            del aside[lane]
            self._line[lane] = partition
        if not aside:
            del self._aside[partition]

    def next(self) -> tuple[Partition, Lane] | None:
        """The lane whose turn it is, which is not in line any more; None where there is no slot, or no lane."""
        if not self.is_free:
            return None
        lane, partition = self._line.popitem(last=False)
        return partition, lane

    def forget(self, owner: Owner) -> None:
        """An assignment is over: none of its lanes stands here any more."""
        for lane in [lane for lane in self._line if lane.owner == owner]:
            del self._line[lane]
        for partition in [partition for partition in self._aside if partition.owner == owner]:
            del self._aside[partition]
