"""Whose turn it is to make a call: slots of the worker and of each partition, and the lanes that stand in line for one."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from itertools import islice

from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition


class Turns:
    """Owned by the engine. A lane stands in line only while its next step is a call: the first that came is the first that goes.

    One whose partition keeps it (its own slots are taken, it may not start calls) stands aside, so that it does not stop the line;
    `release` brings it back, to the end. One that a full map keeps stands above it; `rise` brings it back.
    """

    def __init__(self, slots: int, partition_slots: int) -> None:
        self._slots = slots
        self._partition_slots = partition_slots
        self._taken = 0
        self._line: OrderedDict[Lane, Partition] = OrderedDict()
        self._lined: Counter[Partition] = Counter()  # lanes of each partition in that
        self._aside: dict[Partition, OrderedDict[Lane, None]] = {}
        self._above: dict[Partition, OrderedDict[Lane, None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether there is a slot, and a lane in line for it."""
        return bool(self._line) and self._taken < self._slots

    @property
    def has_spare(self) -> bool:
        """Whether there is a slot that nobody stands in line for."""
        return not self._line and self._taken < self._slots

    def has_slot(self, partition: Partition, *, has_turn: bool) -> bool:
        """Whether a lane of this partition may call now: there is a slot, and nobody came before."""
        if self._taken >= self._slots or partition.calls >= self._partition_slots:
            return False
        return has_turn or not (self._line or partition in self._aside or partition in self._above)

    def take(self, partition: Partition) -> None:
        """A call begins."""
        self._taken += 1
        partition.calls += 1

    def give_back(self, partition: Partition) -> None:
        """A call has ended."""
        self._taken -= 1
        partition.calls -= 1

    def stand(self, partition: Partition, lane: Lane, *, aside: bool = False, above: bool = False) -> None:
        """Stand in line, aside or above; a lane that stands there already keeps its place."""
        if lane in self._line and not (above or aside):
            return
        kept = above or aside or partition.calls + self._lined[partition] >= self._partition_slots
        place = self._above if above else self._aside
        if kept or partition in self._aside:
            if lane not in place.get(partition, ()):
                self._leave(partition, lane)
                place.setdefault(partition, OrderedDict())[lane] = None
            if not aside:  # its turn is another one's
                self.release(partition)
        else:
            self._leave(partition, lane)
            self._join(partition, lane)

    def leave(self, partition: Partition, lane: Lane) -> None:
        """Its next step is no call, or it has begun one: a turn that it has no use for is another one's."""
        self._leave(partition, lane)
        self.release(partition)

    def release(self, partition: Partition) -> None:
        """Bring lanes back that stand aside: as many as their partition has slots for, the first that came."""
        self._bring(self._aside, partition, lambda _: True)

    def rise(self, partition: Partition, may_start: Callable[[Lane], bool]) -> None:
        """The same with those that a full map kept, of which only some may start: looks at all of them, while it is full still."""
        self._bring(self._above, partition, may_start)

    def next(self) -> tuple[Partition, Lane] | None:
        """The lane whose turn it is, which is not in line any more; None where there is no slot, or no lane."""
        if not self.is_free:
            return None
        lane, partition = next(iter(self._line.items()))
        self._leave(partition, lane)
        return partition, lane

    def _join(self, partition: Partition, lane: Lane) -> None:
        self._line[lane] = partition
        self._lined[partition] += 1

    def _leave(self, partition: Partition, lane: Lane) -> None:
        if self._line.pop(lane, None) is not None:
            self._lined[partition] -= 1
            if not self._lined[partition]:
                del self._lined[partition]
        for place in (self._aside, self._above):
            if (standing := place.get(partition)) is not None:
                standing.pop(lane, None)
                if not standing:
                    del place[partition]

    def _bring(self, place: dict[Partition, OrderedDict[Lane, None]], partition: Partition, may_start: Callable[[Lane], bool]) -> None:
        standing = place.get(partition)
        if standing is None:
            return
        free = max(0, self._partition_slots - partition.calls - self._lined[partition])
        for lane in list(islice(filter(may_start, standing), free)):
            self._leave(partition, lane)
            self._join(partition, lane)

    def forget(self, owner: Owner) -> None:
        """An assignment is over: none of its lanes stands here any more."""
        for lane, partition in [(lane, of) for lane, of in self._line.items() if lane.owner == owner]:
            self._leave(partition, lane)
        for place in (self._aside, self._above):
            for partition in [partition for partition in place if partition.owner == owner]:
                del place[partition]
