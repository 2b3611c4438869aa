"""Whose turn it is to make a call: slots of the worker and of each partition, and the lanes that stand in line for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.priority_line import PriorityLine


class Turns:
    """Owned by the engine. A lane stands in line only while its next step is a call. Its priority is that of the request whose turn it is.

    The most urgent goes first, of equals the first that came; and the least urgent has its turn within ten times as many turns as lanes
    stood before it, and ten more (`PriorityLine`).

    One whose partition keeps it (its own slots are taken, it may not start calls) stands aside, so that it does not stop the line;
    `release` brings it back, to the end. One that a full map keeps stands above it; `rise` brings it back. Both in the same order.
    """

    def __init__(self, slots: int, partition_slots: int) -> None:
        self._slots = slots
        self._partition_slots = partition_slots
        self._taken = 0
        self._line: PriorityLine[Lane] = PriorityLine()
        self._partitions: dict[Lane, Partition] = {}  # of the lanes in that
        self._lined: Counter[Partition] = Counter()  # how many of each
        self._aside: dict[Partition, PriorityLine[Lane]] = {}
        self._above: dict[Partition, PriorityLine[Lane]] = {}

    @property
    def is_free(self) -> bool:
        """Whether there is a slot, and a lane in line for it."""
        return bool(self._line) and self._taken < self._slots

    @property
    def has_spare(self) -> bool:
        """Whether there is a slot that nobody stands in line for."""
        return self.spare > 0

    @property
    def spare(self) -> int:
        """How many slots there are that nobody stands in line for."""
        return 0 if self._line else max(0, self._slots - self._taken)

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
            self._line.join(lane, lane.priority)
            return
        kept = above or aside or partition.calls + self._lined[partition] >= self._partition_slots
        place = self._above if above else self._aside
        if kept or partition in self._aside:
            if lane not in place.get(partition, ()):
                self._leave(partition, lane)
            place.setdefault(partition, PriorityLine()).join(lane, lane.priority)
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
        """Bring lanes back that stand aside: as many as their partition has slots for."""
        self._bring(self._aside, partition, lambda _: True)

    def rise(self, partition: Partition, may_start: Callable[[Lane], bool]) -> None:
        """The same with those that a full map kept, of which only some may start: looks at all of them, while it is full still."""
        self._bring(self._above, partition, may_start)

    def next(self) -> tuple[Partition, Lane] | None:
        """The lane whose turn it is, which is not in line any more; None where there is no slot, or no lane."""
        if not self.is_free:
            return None
        lane = self._line.take()
        assert lane is not None
        partition = self._partitions[lane]
        self._left(partition, lane)
        return partition, lane

    def _join(self, partition: Partition, lane: Lane) -> None:
        self._line.join(lane, lane.priority)
        self._partitions[lane] = partition
        self._lined[partition] += 1

    def _leave(self, partition: Partition, lane: Lane) -> None:
        if self._line.leave(lane):
            self._left(partition, lane)
        for place in (self._aside, self._above):
            if (standing := place.get(partition)) is not None:
                standing.leave(lane)
                if not standing:
                    del place[partition]

    def _left(self, partition: Partition, lane: Lane) -> None:
        del self._partitions[lane]
        self._lined[partition] -= 1
        if not self._lined[partition]:
            del self._lined[partition]

    def _bring(self, place: dict[Partition, PriorityLine[Lane]], partition: Partition, may_start: Callable[[Lane], bool]) -> None:
        standing = place.get(partition)
        if standing is None:
            return
        free = self._partition_slots - partition.calls - self._lined[partition]
        for lane in standing.take_some(free, may_start):
            self._join(partition, lane)
        if not standing:
            del place[partition]

    def forget(self, owner: Owner) -> None:
        """An assignment is over: none of its lanes stands here any more."""
        for lane, partition in list(self._partitions.items()):
            if lane.owner == owner:
                self._leave(partition, lane)
        for place in (self._aside, self._above):
            for partition in [partition for partition in place if partition.owner == owner]:
                del place[partition]
