"""What Kafka knows of the workers' group, asked by somebody who never joins it: committed positions, and who owns which partition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import Cluster, settling
from dispatcher.adapters.kafka.faults import Complaints, error_of
from dispatcher.settings import Settings

PAUSE_S = 0.1


def committed(cluster: Cluster, settings: Settings, asked: list[TopicPartition]) -> list[TopicPartition]:
    """Read committed positions; asks again while the group's coordinator settles. A negative offset means that there is none."""
    with outsider(cluster, settings) as nobody:
        return _committed(nobody, cluster.complaints, settings, asked, cluster.timeout_s)


class Positions:
    """The group's committed positions, for one who asks often: over one connection, opened at the first question. Owned by one thread."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._complaints = Complaints(settings)
        self._nobody: Consumer | None = None

    def of(self, partition: int) -> int | None:
        """Give the committed position in a partition of the request topic; None where there is none. Errors: BrokerError."""
        if self._nobody is None:
            self._nobody = _outsider(self._settings, self._complaints)
        asked = [TopicPartition(self._settings.topics.requests, partition)]
        offset = _committed(self._nobody, self._complaints, self._settings, asked, self._timeout_s)[0].offset
        return offset if offset >= 0 else None

    def close(self) -> None:
        """Let go of the connection."""
        if self._nobody is not None:
            self._nobody.close()
            self._nobody = None


def _committed(
    nobody: Consumer, complaints: Complaints, settings: Settings, asked: list[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    end = time.monotonic() + timeout_s
    while True:
        try:
            answer = nobody.committed(asked, timeout=max(0.1, end - time.monotonic()))
            error = next((part.error for part in answer if part.error is not None), None)
            if error is None:
                return answer
        except KafkaException as failure:
            error = error_of(failure)
        if not settling(error) or time.monotonic() > end:
            raise complaints.explain(error, f"reading the positions of group {settings.worker.group}")
        nobody.poll(PAUSE_S)


def committed_positions(cluster: Cluster, settings: Settings, partitions: list[int]) -> dict[int, int | None]:
    """Give the group's committed position in partitions of the request topic; None where there is none."""
    asked = [TopicPartition(settings.topics.requests, partition) for partition in partitions]
    found = sorted(committed(cluster, settings, asked), key=lambda part: part.partition)
    return {part.partition: part.offset if part.offset >= 0 else None for part in found}


@contextmanager
def outsider(cluster: Cluster, settings: Settings) -> Iterator[Consumer]:
    """Open a consumer that names the group and never joins it.

    Not the admin client: asked for a group's offsets while the group's coordinator still loads, it ends the process with a segmentation
    fault (librdkafka behind confluent-kafka 2.16). Not read_committed: whether a position exists does not depend on open transactions.
    """
    nobody = _outsider(settings, cluster.complaints)
    try:
        yield nobody
    finally:
        nobody.close()


def _outsider(settings: Settings, complaints: Complaints) -> Consumer:
    group, heard = settings.worker.group, complaints.heard
    return clients.consumer(settings, group=group, protocol="cooperative", isolation="read_uncommitted", on_error=heard)


def owned(cluster: Cluster, settings: Settings) -> set[int]:
    """Name the partitions of the request topic that a member of the group owns now; none where there is no such group."""
    group, topic = settings.worker.group, settings.topics.requests
    answer = cluster.settled(
        lambda attempt_s: cluster.client.describe_consumer_groups([group], request_timeout=attempt_s)[group], f"describing group {group}"
    )
    members = answer.members or ()
    parts = [part for member in members if member.assignment is not None for part in member.assignment.topic_partitions]
    return {part.partition for part in parts if part.topic == topic}
