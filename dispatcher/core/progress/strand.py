"""Strands: the partitions of all the topics that a worker takes requests from, as numbers.

There is one such topic, and then a strand is the number of its partition. Or there are several with as many partitions each; those that
have the same number there are siblings: they hold the same keys, and have one owner.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dispatcher.core.messages.record import Record

# More partitions than a topic can have: a strand is made of its topic's place in the list and its partition's number without knowing more.
STRIDE = 1 << 20


def strand_of(source: int, partition: int) -> int:
    """The strand of a partition of the topic that stands at `source` in the list."""
    return source * STRIDE + partition


def source_of(strand: int) -> int:
    """Where its topic stands in the list."""
    return strand // STRIDE


def number_of(strand: int) -> int:
    """The number of its partition, which its siblings share."""
    return strand % STRIDE


def id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools print it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


@dataclass(frozen=True, slots=True)
class RequestTopic:
    """One of them. `topic_id` (16 bytes) tells a re-created topic from the old one of the same name; `kind`: what it is for, if it says."""

    name: str
    topic_id: bytes
    kind: str = ""

    @property
    def id_text(self) -> str:
        """The id as Kafka's tools print it."""
        return id_text(self.topic_id)

    def label(self, partition: int) -> int | str:
        """What people call a partition of it."""
        return f"{self.kind}/{partition}" if self.kind else partition


class RequestTopics:
    """All of them, in an order that holds for one process. Each has `partitions`."""

    __slots__ = ("_sources", "ids", "of", "partitions")

    def __init__(self, topics: Sequence[RequestTopic], partitions: int) -> None:
        self.of = tuple(topics)
        self.partitions = partitions
        self.ids = tuple(id_text(topic.topic_id) for topic in topics)
        self._sources = {topic.name: n for n, topic in enumerate(topics)}

    def strand(self, record: Record) -> int:
        """Where a record stands."""
        return record.partition if len(self.of) == 1 else strand_of(self._sources[record.topic], record.partition)

    def strands(self, source: int) -> Iterable[int]:
        """Those of one topic."""
        first = strand_of(source, 0)
        return range(first, first + self.partitions)

    def siblings(self, strand: int) -> tuple[int, ...]:
        """All that have its number, itself among them."""
        number = number_of(strand)
        return tuple(strand_of(source, number) for source in range(len(self.of)))

    def topic_id(self, strand: int) -> bytes:
        """The id of its topic."""
        return self.of[source_of(strand)].topic_id

    def label(self, strand: int) -> int | str:
        """What people call it: its number; and where there are several topics what its own is for."""
        return self.of[source_of(strand)].label(number_of(strand))

    def labels(self, strands: Iterable[int]) -> list[int | str]:
        """The same of several, in order."""
        return [self.label(strand) for strand in sorted(strands)]
