"""What stands in one lane: the requests of a key that have not ended, parked or in the log, in the order of their turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from dispatcher.adapters.kafka.admin import Cluster, TopicFacts
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.client import parked
from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.positions import START, Span
from dispatcher.core.progress.headway import Headway
from dispatcher.settings import Settings

# A person waits: beyond so many offsets behind the group's position a queue is not counted on.
COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that has not ended. `entry` where it is parked, `record` where it is not."""

    offset: int
    entry: Entry | None = None
    record: Record | None = None


class LaneQueue:
    """One key's requests that have not ended, as they stand when this is made. `headway` is the group's, read before."""

    def __init__(
        self, settings: Settings, cluster: Cluster, facts: TopicFacts, partition: int, key: bytes | None, headway: Headway
    ) -> None:
        self._settings = settings
        self._timeout_s = cluster.timeout_s
        self._partition = partition
        self._key = key
        self._headway = headway
        index = parked.index(settings, cluster, (partition,), facts.topic_id_text).get(partition, {})
        # What the group has not settled is void there: a worker that did not commit had moved it.
        self.parked = {offset: entry for offset, entry in sorted(index.items()) if self._is_ours(entry.key) and headway.is_settled(offset)}

    def turns(self) -> Iterator[Turn]:
        """The requests in the order of their turns, up to the end of the log that is there now."""
        aside = iter(self.parked.items())
        next_aside = next(aside, None)
        for record in self._unsettled():
            while next_aside is not None and next_aside[0] < record.offset:
                yield Turn(next_aside[0], entry=next_aside[1])
                next_aside = next(aside, None)
            yield Turn(record.offset, record=record)
        for offset, entry in chain([next_aside] if next_aside is not None else [], aside):
            yield Turn(offset, entry=entry)

    def count(self) -> tuple[int, bool]:
        """How many there are, and whether that is all; what stands far behind the group's position is not counted."""
        count = len(self.parked)
        for record in self._unsettled():
            if record.offset - (self._headway.position or 0) > COUNTED_MAX:
                return count, False
            count += 1
        return count, True

    def _unsettled(self) -> Iterator[Record]:
        """The records of the key from the group's position on, but for what is settled."""
        with LogReader(self._settings, self._settings.topics.requests, self._timeout_s) as reader:
            extent = reader.extents(Span(START), (self._partition,))[self._partition]
        start = max(extent.first, self._headway.position or 0)
        if start >= extent.end:
            return
        with LogReader(self._settings, self._settings.topics.requests, self._timeout_s) as reader:
            for record in reader.read_ranges({self._partition: (start, extent.end)}):
                if self._is_ours(record.key) and not self._headway.is_settled(record.offset):
                    yield record

    def _is_ours(self, key: bytes | None) -> bool:
        return self._key is None or key == self._key
