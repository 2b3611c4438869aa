"""Reading partitions from given offsets on, without a group; partitions come and go without a pause for the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.faults import Complaints, is_fatal
from dispatcher.adapters.kafka.offsets import Place, watermarks
from dispatcher.adapters.kafka.records import record_of
from dispatcher.core.messages.record import Record
from dispatcher.errors import DispatcherError
from dispatcher.settings import Settings

# How long the broker may sit on a fetch without records. A partition that is added meanwhile waits for that fetch to return, and its
# first records with it: half a second with librdkafka's default, for a few requests a second less.
FETCH_WAIT_MS = 100
# Records taken at once before the owner looks at its letters.
BATCH_MAX = 500
# Looking up where a partition begins, after its next record was gone: rare, and the others wait meanwhile.
LOOK_S = 3.0

_PASSING = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


@dataclass(slots=True)
class Batch:
    """What one `read` gave: records in each partition's order, and partitions that cannot be read any more."""

    records: list[Record] = field(default_factory=list)
    faults: dict[Place, DispatcherError] = field(default_factory=dict)


class Tail:
    """A groupless read_committed consumer. Owned by one thread.

    A broker that is away is waited for without an end, and so is a partition that Kafka does not know: a broker that has just been started
    knows none for a moment.
    """

    def __init__(self, settings: Settings) -> None:
        self._complaints = Complaints(settings)
        self._consumer = clients.consumer(settings, fetch_wait_ms=FETCH_WAIT_MS, on_error=self._complaints.heard)
        self._lost: set[Place] = set()
        self._is_broken = False

    def add(self, place: Place, offset: int) -> None:
        """Read a partition from `offset` on; the others go on as they are."""
        self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def drop(self, place: Place) -> None:
        """Read a partition no more."""
        self._lost.discard(place)
        self._consumer.incremental_unassign([TopicPartition(*place)])

    def read(self, timeout_s: float) -> Batch:
        """Wait for the next record, at most `timeout_s`, and take what is there beside it. KafkaException: it cannot be used any more."""
        batch = Batch()
        for place in list(self._lost):
            self._find(place)
        message = self._consumer.poll(timeout_s)
        while message is not None:
            self._take(message, batch)
            message = self._consumer.poll(0) if len(batch.records) < BATCH_MAX else None
        return batch

    def close(self) -> None:
        """Let go of the connection. librdkafka 2.16 does not come back from closing a client that has failed for good."""
        if not self._is_broken:
            self._consumer.close()

    def _take(self, message: Message, batch: Batch) -> None:
        error = message.error()
        if error is None:
            batch.records.append(record_of(message))
            return
        if is_fatal(error):
            self._is_broken = True
            raise KafkaException(error)
        topic, number = message.topic(), message.partition()
        if topic is None or number is None or error.code() in _PASSING:
            return
        if error.code() in _LOST:
            self._lost.add((topic, number))
        elif error.fatal() or not error.retriable():
            batch.faults[topic, number] = self._complaints.explain(error, f"reading {topic}")

    def _find(self, place: Place) -> None:
        """Go on at the first record of a partition whose next one is gone: by retention, or because the topic was made anew.

        Not at the end: what came meanwhile is waited for. Without an answer it is tried again at the next `read`.
        """
        try:
            first, _ = watermarks(self._consumer, place, LOOK_S)
        except KafkaException:
            return
        self._lost.discard(place)
        self._consumer.incremental_unassign([TopicPartition(*place)])
        self._consumer.incremental_assign([TopicPartition(*place, first)])
