"""Start positions: what a group has committed before its first worker reads, so that no worker ever guesses where to begin.

`auto.offset.reset=error` everywhere: a partition without a commit while its siblings have one is a *gap* (a grown topic, an expired or
lost commit). To read it from the start could pay for the whole log again; to read it from the end could lose requests. A person decides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.kafka.admin import Cluster, Difference, connect, create_missing, differences, facts_of, settling
from dispatcher.errors import RefusedError
from dispatcher.settings import Settings

Fill = Literal["earliest", "latest"]

_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


@dataclass(frozen=True, slots=True)
class InitReport:
    """What `topics init` did and found. `started`: partition to the position committed for it, by this run."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[Difference, ...]
    group: str
    started: dict[int, int]
    group_active: bool


def init_topics(settings: Settings, timeout_s: float = 30, fill_gaps: Fill | None = None) -> InitReport:
    """Create what is missing and commit start positions where the group has none at all. Safe to repeat.

    Errors: RefusedError for a gap without `fill_gaps`, and for missing positions of a group that is running (its members own their
    positions; Kafka refuses anybody else's commit); BrokerError.
    """
    cluster = connect(settings, timeout_s)
    created = create_missing(cluster, settings)
    found = tuple(differences(cluster, settings))
    topics = settings.topics
    existing = tuple(name for name in (topics.requests, topics.replies, topics.dead_letters) if name not in created)
    missing, total = missing_starts(cluster, settings)
    active = group_active(cluster, settings.worker.group)
    if not missing:
        return InitReport(created, existing, found, settings.worker.group, {}, active)
    gap = len(missing) < total
    _refuse(settings, missing, gap=gap, active=active, fill_gaps=fill_gaps)
    started = _log_edge(cluster, topics.requests, missing, fill_gaps if gap and fill_gaps else "earliest")
    _commit(cluster, settings, started)
    return InitReport(created, existing, found, settings.worker.group, started, active)


def check_topics(settings: Settings, timeout_s: float = 30) -> list[Difference]:
    """List everything that is not as `topics init` would make it; an empty list means that a worker can start."""
    cluster = connect(settings, timeout_s)
    found = differences(cluster, settings)
    missing, _ = missing_starts(cluster, settings)
    if missing:
        wants = f"committed for group {settings.worker.group}"
        found.append(Difference(settings.topics.requests, "start positions", f"none for partitions {_listed(missing)}", wants))
    return found


def missing_starts(cluster: Cluster, settings: Settings) -> tuple[list[int], int]:
    """Name the partitions of the request topic without a committed position, and count all partitions (0 for a missing topic)."""
    topic = settings.topics.requests
    known = facts_of(cluster, [topic]).get(topic)
    if known is None:
        return [], 0
    asked = ConsumerGroupTopicPartitions(settings.worker.group, [TopicPartition(topic, p) for p in range(known.partitions)])
    group, doing = settings.worker.group, f"reading the positions of group {settings.worker.group}"
    answer = cluster.settled(lambda attempt_s: cluster.client.list_consumer_group_offsets([asked], request_timeout=attempt_s)[group], doing)
    missing = []
    for part in answer.topic_partitions or ():
        if part.error is not None:
            raise cluster.complaints.explain(part.error, doing)
        if part.offset < 0:
            missing.append(part.partition)
    return sorted(missing), known.partitions


def group_active(cluster: Cluster, group: str) -> bool:
    """Ask whether the group has members (or is just getting some). One that we may not see counts as idle: Kafka refuses the commit."""
    answer = cluster.settled(lambda attempt_s: cluster.client.list_consumer_groups(request_timeout=attempt_s), "listing the groups")
    return any(listed.group_id == group and listed.state not in _IDLE for listed in answer.valid or ())


def _refuse(settings: Settings, missing: list[int], *, gap: bool, active: bool, fill_gaps: Fill | None) -> None:
    """Refuse to decide what only a person can, and to commit what Kafka would not take."""
    group, topic = settings.worker.group, settings.topics.requests
    if active:
        raise RefusedError(
            f"partitions {_listed(missing)} of {topic} have no position, and group {group} is running: positions were not touched",
            "stop its workers, then run `dispatcher topics init` again",
        )
    if gap and fill_gaps is None:
        raise RefusedError(
            f"partitions {_listed(missing)} of {topic} have no position while others of group {group} have one",
            "decide: --fill-gaps earliest runs everything that is in them (again), --fill-gaps latest only what comes from now on",
        )


def _log_edge(cluster: Cluster, topic: str, partitions: list[int], edge: Fill) -> dict[int, int]:
    """Find the first or the next offset of each partition."""
    spec: OffsetSpec = OffsetSpec.earliest() if edge == "earliest" else OffsetSpec.latest()  # type: ignore[no-untyped-call] # theirs
    doing = f"reading the offsets of {topic}"

    def offset(partition: int) -> int:
        asked = TopicPartition(topic, partition)
        answer = cluster.settled(lambda attempt_s: cluster.client.list_offsets({asked: spec}, request_timeout=attempt_s)[asked], doing)
        return int(answer.offset)

    return {partition: offset(partition) for partition in partitions}


def _commit(cluster: Cluster, settings: Settings, positions: dict[int, int]) -> None:
    """Commit positions without metadata, as a person does, and read the answer of each partition."""
    end = time.monotonic() + cluster.timeout_s
    while error := _first_refusal(cluster, settings, positions):
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:  # a worker joined since we looked
            _refuse(settings, sorted(positions), gap=False, active=True, fill_gaps=None)
        if not settling(error) or time.monotonic() > end:
            raise cluster.complaints.explain(error, f"committing start positions of group {settings.worker.group}")
        cluster.client.poll(0.05)


def _first_refusal(cluster: Cluster, settings: Settings, positions: dict[int, int]) -> KafkaError | None:
    """Commit once; give the first error that stands in the answer."""
    topic, group = settings.topics.requests, settings.worker.group
    parts = [TopicPartition(topic, partition, offset) for partition, offset in sorted(positions.items())]
    asked = [ConsumerGroupTopicPartitions(group, parts)]
    answer = cluster.settled(
        lambda attempt_s: cluster.client.alter_consumer_group_offsets(asked, request_timeout=attempt_s)[group],
        f"committing start positions of group {group}",
    )
    return next((part.error for part in answer.topic_partitions or () if part.error is not None), None)


def _listed(partitions: list[int]) -> str:
    """Write partition numbers for a sentence."""
    return ", ".join(map(str, partitions))
