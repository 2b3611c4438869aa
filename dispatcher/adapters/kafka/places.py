"""Where strands stand: partitions of the request topics, as librdkafka names them."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, TopicPartition

from dispatcher.core.progress.strand import number_of, source_of, strand_of


class Places:
    """Of all request topics, in their order."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        self._sources = {topic: n for n, topic in enumerate(topics)}

    def place(self, strand: int) -> tuple[str, int]:
        """Topic and partition."""
        return self.topics[source_of(strand)], number_of(strand)

    def part(self, strand: int, offset: int = OFFSET_INVALID) -> TopicPartition:
        """The same as an argument of a client."""
        return TopicPartition(*self.place(strand), offset)

    def committing(self, strand: int, position: int, metadata: str) -> TopicPartition:
        """The same with what is to be committed there."""
        return TopicPartition(*self.place(strand), position, metadata=metadata)

    def strand(self, topic: str, partition: int) -> int:
        """The strand that stands there. Where there is one topic, it is not asked for its name."""
        return partition if len(self.topics) == 1 else strand_of(self._sources[topic], partition)
