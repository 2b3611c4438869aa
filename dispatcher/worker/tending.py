"""Room: what the partitions of this worker hold in memory and in their commits' maps, who stops reading, and what is moved aside for it."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from typing import Protocol

from dispatcher.core.lanes.buffer import Amount, Buffer, Flow
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.settings import WorkerSettings
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Command, Pause, Resume
from dispatcher.worker.protocols import Observer

# Looking for what can be parked goes through all lanes of a partition: not more often than this.
TEND_S = 0.25


class Holder(Protocol):
    """Who publishes, and lets lanes have their turn: the engine."""

    partitions: dict[int, Partition]

    def publish(self, *outcomes: Outcome) -> None: ...
    def release(self, partition: Partition, *, thorough: bool = False) -> None: ...


class Tending:
    """Owned by the engine, on its event loop."""

    def __init__(
        self, holder: Holder, room: Room, settings: WorkerSettings, poller: SimpleQueue[Command], observer: Observer, clock: Clock
    ) -> None:
        self._holder = holder
        self._room = room
        self._poller = poller
        self._observer = observer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._buffer = Buffer(Amount(settings.buffer_max_records, settings.buffer_max_bytes))
        self._tending: set[Owner] = set()  # partitions in which room is looked for again soon
        self._full: set[Owner] = set()  # partitions whose commits cannot carry more

    def note(self, *changed: Partition) -> None:
        """These hold more or less than before: who has to stop, and who may go on, also where others have given them room."""
        gave = [self._buffer.note(partition.owner.strand, partition.held) for partition in changed]
        own = Amount(self._room.records, self._room.size_bytes)
        for partition in self._holder.partitions.values() if any(gave) else changed:
            partition.limit = self._buffer.limit(partition.owner.strand, own)
            match partition.flow():
                case Flow.PAUSE:
                    self._poller.put(Pause(partition.owner))
                case Flow.RESUME:
                    self._poller.put(Resume(partition.owner))
                case None:
                    pass

    def came(self, partition: Partition) -> None:
        """A partition is new here."""
        self._buffer.note(partition.owner.strand, partition.held)

    def went(self, owner: Owner) -> None:
        """It is gone."""
        self._buffer.forget(owner.strand)

    def closed(self, owner: Owner) -> None:
        """It starts nothing more."""
        self._full.discard(owner)
        self._tending.discard(owner)

    def tend(self, partition: Partition) -> None:
        """Make room in a partition that needs it, now or soon, and until it needs none: that a full map has emptied is told too."""
        if partition.closed or not partition.is_restored or partition.owner in self._tending:
            return
        if partition.is_pressed or partition.owner in self._full:
            self._tending.add(partition.owner)
            self._loop.call_later(TEND_S, self._tend_again, partition)
            self._make_room(partition)

    def _tend_again(self, partition: Partition) -> None:
        # Its time is not compared with the clock: timers of a busy uvloop come up to a millisecond early.
        self._tending.discard(partition.owner)
        self.tend(partition)

    def _make_room(self, partition: Partition) -> None:
        if partition.is_map_full != (partition.owner in self._full):
            self._full ^= {partition.owner}
            self._observer.map_full(partition, is_full=partition.is_map_full)
        outcomes = partition.park(self._clock.now())
        self._holder.publish(*outcomes)
        # What was withheld may have come with it.
        if moved := [outcome for outcome in outcomes if outcome.parks]:
            self._observer.parked(partition, moved)
        self.note(partition)
        self._holder.release(partition, thorough=True)
