"""Which partitions are not fetched from: pauses that waste nothing.

A pause throws away what the client has fetched ahead of a partition, and it is fetched again. So a partition that is full is paused only
once what was fetched ahead has been taken. It then holds more than its room for a moment: what one fetch brings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dispatcher.adapters.kafka.source import Batch
from dispatcher.settings import MIB

# A pause waits for no more than this: four fetches of one partition (`max.partition.fetch.bytes`). Where others' records are so many that
# a poll never takes all that is there, memory counts for more than what is fetched twice.
OVERSHOOT_MAX_BYTES = 8 * MIB


class Source(Protocol):
    """What is braked."""

    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...


class Brakes:
    """Owned by the poller. A partition is forgotten when it goes: the source ends its pause itself."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._full: dict[int, int] = {}  # to be paused: bytes that came since that was asked for
        self._paused: set[int] = set()

    def pause(self, partition: int) -> None:
        """Fetch no more of it, once what was fetched ahead is taken."""
        if partition not in self._paused:
            self._full.setdefault(partition, 0)

    def resume(self, partition: int) -> None:
        """Fetch again; nothing has to be done where the pause had not come to be."""
        if self._full.pop(partition, None) is None:
            self._paused.discard(partition)
            self._source.resume(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """These went: a late pause would meet their next assignment."""
        for n in partitions:
            self._full.pop(n, None)
            self._paused.discard(n)

    def took(self, batch: Batch) -> None:
        """This was taken; pause what is full, if nothing else of it waits in the client."""
        if not self._full:
            return
        for record in batch.records:
            if record.partition in self._full:
                self._full[record.partition] += record.size_bytes
        for n, size in list(self._full.items()):
            if batch.is_all or size >= OVERSHOOT_MAX_BYTES:
                del self._full[n]
                self._paused.add(n)
                self._source.pause(n)
