"""When nothing is fetched, and when nothing is taken: the poller's side of back-pressure, which wastes nothing.

A pause throws away what the client has fetched ahead of a partition, and it is fetched again. So a partition that is full is paused only
once what was fetched ahead has been taken; and that is done once the fetch that is under way has come in. The client sends no further one
while its answer lies there, nor for a while after (`fetch.queue.backoff.ms`): the pause falls into that gap. A partition then holds more
than its room, by what one or two fetches bring.

Records are handed to the engine one poll at a time. An event loop that is busy would find all that was fetched meanwhile in its memory
before it could say that it has enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from dispatcher.adapters.kafka.source import Batch
from dispatcher.core.messages.record import Record
from dispatcher.settings import MIB

# A pause waits for no more than this: eight times what the client fetches ahead (`queued.max.messages.kbytes`). Where others' records are
# so many that a poll never takes all that is there, or one fetch unpacks to that much, memory counts for more than what is fetched twice.
OVERSHOOT_MAX_BYTES = 8 * MIB
# The client has sent its next fetch by the time that somebody finds a partition full. The answer takes some milliseconds; one that takes
# longer than this is thrown away. Nobody starves meanwhile: partitions live on their buffers.
HOLD_S = 0.05
# After so long there is a poll although the engine has not taken the last one's records, since a poll is what answers a rebalance.
TAKEN_S = 1.0
# How long at once there is no poll; a word of the engine ends it.
WAIT_S = 0.05


class Source(Protocol):
    """What is braked."""

    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...


class Brakes:
    """Owned by the poller. A partition is forgotten when it goes: the source ends its pause itself. Times are monotonic seconds.

    Partitions are known by their strands, `strand_of` tells a record's.
    """

    def __init__(self, source: Source, strand_of: Callable[[Record], int] = lambda record: record.partition) -> None:
        self._source = source
        self._strand_of = strand_of
        self._full: dict[int, int] = {}  # to be paused: bytes that came since that was asked for
        self._asked_at = 0.0  # since when something is to be paused
        self._paused: set[int] = set()
        self._unheard: set[int] = set()  # paused, and the engine does not know yet
        self._untaken = 0
        self._handed_at = 0.0

    def wait_s(self, now: float) -> float:
        """For how long nothing should be taken; 0 or less: there may be a poll."""
        if self._untaken and now < self._handed_at + TAKEN_S:
            return WAIT_S
        return self._asked_at + HOLD_S - now if self._full else 0.0

    def pause(self, partition: int, now: float) -> None:
        """Fetch no more of it, once what was fetched ahead is taken."""
        self._unheard.discard(partition)
        if partition in self._paused:
            return
        if not self._full:
            self._asked_at = now
        self._full.setdefault(partition, 0)

    def resume(self, partition: int) -> None:
        """Fetch again; nothing has to be done where the pause had not come to be."""
        self._unheard.discard(partition)
        if self._full.pop(partition, None) is None:
            self._paused.discard(partition)
            self._source.resume(partition)

    def introduce(self, partition: int) -> None:
        """A partition that was paused before the engine knew of it: fetch again, unless the engine finds it full as well."""
        self._unheard.add(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """These went: a late pause would meet their next assignment."""
        for n in partitions:
            self._full.pop(n, None)
            self._paused.discard(n)
            self._unheard.discard(n)

    def handed(self, now: float) -> None:
        """Something was handed to the engine, which will say when it has taken it."""
        self._untaken += 1
        self._handed_at = now

    def taken(self) -> None:
        """The engine has taken what was handed over first, and has said what it thinks of that."""
        self._untaken -= 1
        if not self._untaken:
            for n in list(self._unheard):
                self.resume(n)

    def took(self, batch: Batch) -> None:
        """This was taken; pause what is full, if nothing else of it waits in the client."""
        if not self._full:
            return
        for record in batch.records:
            if (n := self._strand_of(record)) in self._full:
                self._full[n] += record.size_bytes
        for n, size in list(self._full.items()):
            if batch.is_all or size >= OVERSHOOT_MAX_BYTES:
                del self._full[n]
                self._paused.add(n)
                self._source.pause(n)
