"""Where partitions begin and end, and where a time is, asked of Kafka: the one place that tells an answer from none.

confluent-kafka gives an offset below zero, and no error, where the time of an attempt was too short. Taken for an offset it would mean
an empty log, or all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Literal, TypeVar

from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec  # `admin` shows them, but not to a strict type checker

from dispatcher.adapters.kafka.faults import MOVED, error_of

Place = tuple[str, int]  # topic, partition
Edge = Literal["earliest", "latest"]

PAUSE_S = 0.1
# What a broker answers where no record has that time or a later one.
_NONE = -1

_Answer = TypeVar("_Answer")


def offset_of(answer: ListOffsetsResultInfo) -> int:
    """Give the offset of an answer to `ask_edges`. KafkaException where it holds none."""
    return _told(answer.offset)


def ask_edges(
    client: AdminClient, places: Iterable[Place], edge: Edge, attempt_s: float, *, committed: bool = False
) -> dict[Place, Future[ListOffsetsResultInfo]]:
    """Ask for the first or the next offsets; `committed`: for the last stable one instead of the next. Use `offset_of` on the answers."""
    spec: OffsetSpec = OffsetSpec.earliest() if edge == "earliest" else OffsetSpec.latest()  # type: ignore[no-untyped-call] # theirs
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = client.list_offsets({TopicPartition(*place): spec for place in places}, isolation_level=isolation, request_timeout=attempt_s)
    return {(part.topic, part.partition): answer for part, answer in asked.items()}


def ask_times(client: AdminClient, times_ms: dict[Place, int], attempt_s: float) -> dict[Place, Future[ListOffsetsResultInfo]]:
    """Ask for the offsets of the first records from a time on, of those that are committed. Use `time_offset_of` on the answers."""
    asked: dict[TopicPartition, OffsetSpec] = {}
    for place, time_ms in times_ms.items():
        asked[TopicPartition(*place)] = OffsetSpec.for_timestamp(time_ms)
    answers = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=attempt_s)
    return {(part.topic, part.partition): answer for part, answer in answers.items()}


def time_offset_of(answer: ListOffsetsResultInfo) -> int | None:
    """Give the offset of an answer to `ask_times`; None where all are older. KafkaException where it holds none."""
    return None if answer.offset == _NONE else _told(answer.offset)


def watermarks(consumer: Consumer, place: Place, timeout_s: float) -> tuple[int, int]:
    """Give the first offset and the end of a partition, as the consumer's isolation level has it. KafkaException without an answer."""
    first, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=timeout_s)
    return _told(first), _told(end)


def at_times(consumer: Consumer, times_ms: dict[Place, int], timeout_s: float) -> dict[Place, int | None]:
    """Give the offsets of the first records from a time on; None where all are older. KafkaException without an answer."""
    asked = [TopicPartition(*place, time_ms) for place, time_ms in times_ms.items()]
    found: dict[Place, int | None] = {}
    for part in consumer.offsets_for_times(asked, timeout=timeout_s):
        if part.error is not None:
            raise KafkaException(part.error)
        found[part.topic, part.partition] = None if part.offset == OFFSET_END else _told(part.offset)
    return found


def patiently(ask: Callable[[float], _Answer], deadline: float) -> _Answer:
    """Ask a consumer until there is an answer or `deadline` (monotonic) is over, then the last KafkaException; other failures at once.

    `ask` gets the seconds that are left: never 0, which librdkafka may take for "no wait" or "for ever".
    """
    while True:
        left_s = max(0.05, deadline - time.monotonic())
        try:
            return ask(left_s)
        except KafkaException as failure:
            error = error_of(failure)
            passes = error is not None and (error.code() in MOVED or error.code() == KafkaError._TIMED_OUT)
            if not passes or time.monotonic() >= deadline:
                raise
            time.sleep(min(PAUSE_S, left_s))


def _told(offset: int) -> int:
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset
