"""What Kafka knows of the workers' group, asked by somebody who never joins it: what is committed, and who owns which partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import Cluster, settling
from dispatcher.adapters.kafka.clients import Isolation
from dispatcher.adapters.kafka.coordinator import describe_group
from dispatcher.adapters.kafka.faults import Complaints, error_of
from dispatcher.core.progress.commit_note import decode, decode_any
from dispatcher.core.progress.headway import Headway
from dispatcher.settings import Settings

PAUSE_S = 0.1

# How Kafka refuses the commit of somebody who is not a member while there are members.
_RUNNING = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})


class Positions:
    """What the group has committed, for one who asks often: over one connection, opened at the first question. Owned by one thread."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._complaints = Complaints(settings)
        self._nobody: Consumer | None = None

    def of(self, topic: str, partition: int) -> Headway:
        """Tell how far the group has come in a partition of a request topic. Errors: BrokerError.

        A position that belongs to an earlier topic of this name is not told apart, and neither is the note beside it.
        """
        if self._nobody is None:
            self._nobody = _outsider(self._settings, self._complaints)
        asked = [TopicPartition(topic, partition)]
        found = _committed(self._nobody, self._complaints, self._settings, asked, self._timeout_s)[0]
        return Headway(found.offset, decode_any(found.metadata)) if found.offset >= 0 else Headway()

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


def headways(
    cluster: Cluster, settings: Settings, partitions: Iterable[int], topic_id: bytes, *, stable: bool = False
) -> dict[int, Headway]:
    """Tell how far the group has come in partitions of the request topic, whose id is `topic_id`. Errors: BrokerError.

    `stable`: what an open transaction is about to commit is waited for, as long as the cluster's time-out allows.
    """
    asked = [TopicPartition(settings.topics.requests, partition) for partition in partitions]
    with outsider(cluster, settings, isolation="read_committed" if stable else "read_uncommitted") as nobody:
        found = _committed(nobody, cluster.complaints, settings, asked, cluster.timeout_s)
    return {
        part.partition: Headway(part.offset, decode(part.metadata, topic_id)) if part.offset >= 0 else Headway()
        for part in sorted(found, key=lambda part: part.partition)
    }


def commit(cluster: Cluster, settings: Settings, positions: Mapping[int, tuple[int, str]]) -> bool:
    """Commit positions, each with its metadata, as somebody who is no member, and read the answer of each partition. BrokerError.

    False where the group has members: only they may commit, and nothing was touched.
    """
    end = time.monotonic() + cluster.timeout_s
    places = [(settings.topics.requests, n, position, text) for n, (position, text) in sorted(positions.items())]
    # The client takes no None for "without metadata".
    parts = [TopicPartition(*place) if place[-1] else TopicPartition(*place[:-1]) for place in places]
    with outsider(cluster, settings) as nobody:
        while error := _first_refusal(nobody, parts):
            if error.code() in _RUNNING:
                return False
            if not settling(error) or time.monotonic() > end:
                raise cluster.complaints.explain(error, f"committing positions of group {settings.worker.group}")
            nobody.poll(PAUSE_S)
    return True


def _first_refusal(nobody: Consumer, parts: list[TopicPartition]) -> KafkaError | None:
    """Commit once; give the first error, of the whole or of one partition."""
    try:
        answer = nobody.commit(offsets=parts, asynchronous=False)
    except KafkaException as failure:
        return error_of(failure)
    return next((part.error for part in answer or () if part.error is not None), None)


@contextmanager
def outsider(cluster: Cluster, settings: Settings, *, isolation: Isolation = "read_uncommitted") -> Iterator[Consumer]:
    """Open a consumer that names the group and never joins it.

    Not the admin client: asked for a group's offsets while the group's coordinator still loads, it ends the process with a segmentation
    fault (librdkafka behind confluent-kafka 2.16). Mostly not read_committed: whether a position exists does not depend on open
    transactions, and as long as one is open that is about to commit another, a read_committed one is given no answer.
    """
    nobody = _outsider(settings, cluster.complaints, isolation)
    try:
        yield nobody
    finally:
        nobody.close()


def _outsider(settings: Settings, complaints: Complaints, isolation: Isolation = "read_uncommitted") -> Consumer:
    group, heard = settings.worker.group, complaints.heard
    return clients.consumer(settings, group=group, protocol="cooperative", isolation=isolation, on_error=heard)


def owned(cluster: Cluster, settings: Settings) -> set[int]:
    """Name the partitions of the request topic that a member of the group owns now; none where there is no such group."""
    return set(owners(cluster, settings))


def owners(cluster: Cluster, settings: Settings) -> dict[int, str]:
    """Name who has which partition of the request topic now, by `client.id`; nobody where there is no such group."""
    group, topic = settings.worker.group, settings.topics.requests
    answer = cluster.insisted(lambda attempt_s: describe_group(cluster.client, group, attempt_s), f"describing group {group}")
    return {
        part.partition: str(member.client_id)
        for member in answer.members or ()
        for part in member.assignment.topic_partitions
        if part.topic == topic
    }
