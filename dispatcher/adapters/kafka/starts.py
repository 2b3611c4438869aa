"""Start positions: what a group has committed before its first worker reads, so that no worker ever guesses where to begin.

`auto.offset.reset=error` everywhere: a partition without a commit while its siblings have one is a *gap* (a grown topic, an expired or
lost commit). To read it from the start could pay for the whole log again; to read it from the end could lose requests. A person decides.
So he does where the group has none at all and requests were answered: Kafka forgets a group that had no worker for a week, and it is no
first start then.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from confluent_kafka import ConsumerGroupState

from dispatcher.adapters.kafka.admin import Cluster, Difference, TopicFacts, await_visible, connect, create_missing, differences, facts_of
from dispatcher.adapters.kafka.group import commit, headways
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.adapters.kafka.offsets import Edge, ask_edges, offset_of
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.core.messages.glance import answered_place
from dispatcher.core.operations.positions import Anchor, Position, Span
from dispatcher.core.progress.strand import strand_of
from dispatcher.errors import BrokerDenied, RefusedError
from dispatcher.settings import Settings

_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})
# So many offsets of each partition are looked at for a reply: each transaction has one more behind its replies.
_LAST = Position(Anchor.END, 50)


@dataclass(frozen=True, slots=True)
class InitReport:
    """What `topics init` did and found. `started`: strand to the position committed for it, by this run; `topics`: of the requests."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[Difference, ...]
    group: str
    started: dict[int, int]
    group_active: bool
    topics: tuple[str, ...] = ()


def init_topics(settings: Settings, timeout_s: float = 30, fill_gaps: Edge | None = None) -> InitReport:
    """Create what is missing and commit start positions where the group has none at all. Safe to repeat.

    Errors: RefusedError for a gap without `fill_gaps`, or where requests of that topic were answered; and for missing positions of a
    group that is running (its members own their positions; Kafka refuses anybody else's commit); BrokerError.
    """
    cluster = connect(settings, timeout_s)
    created = create_missing(cluster, settings)
    found = tuple(differences(cluster, settings))
    existing = tuple(name for name in plans(settings) if name not in created)
    active = group_active(cluster, settings.worker.group)
    starts: list[dict[int, int]] = []
    for view in settings.views:
        missing, total = missing_starts(cluster, view)
        gap = len(missing) < total
        if missing:
            _refuse(view, missing, gap=gap, active=active, fill_gaps=fill_gaps)
        topic = view.topics.requests
        is_first = bool(missing) and not gap and (topic in created or _is_first(cluster, view, timeout_s, fill_gaps))
        starts.append(log_edges(cluster, topic, missing, "earliest" if is_first or fill_gaps is None else fill_gaps))
    for view, started in zip(settings.views, starts, strict=True):
        # Without metadata, as a person does.
        if started and not commit(cluster, view, {partition: (position, "") for partition, position in started.items()}):
            _refuse(view, sorted(started), gap=False, active=True, fill_gaps=None)  # a worker joined since we looked
    by_strand = {strand_of(source, n): position for source, started in enumerate(starts) for n, position in started.items()}
    return InitReport(created, existing, found, settings.worker.group, by_strand, active, settings.request_topics)


def check_topics(settings: Settings, timeout_s: float = 30) -> list[Difference]:
    """List everything that is not as `topics init` would make it; an empty list means that a worker can start."""
    cluster = connect(settings, timeout_s)
    found = differences(cluster, settings)
    for view in settings.views:
        found += _misplaced(cluster, view)
    return found


def _misplaced(cluster: Cluster, settings: Settings) -> list[Difference]:
    """List what is wrong with the positions in one request topic."""
    found: list[Difference] = []
    topic, positions = settings.topics.requests, _positions(cluster, settings)
    missing = [n for n, position in positions.items() if position is None]
    if missing:
        wants = f"committed for group {settings.worker.group}"
        found.append(Difference(topic, "start positions", f"none for partitions {_listed(missing)}", wants))
    # Asked for after the positions: a running worker's may move on meanwhile, but never beyond the end.
    known = {n: position for n, position in positions.items() if position is not None}
    first, end = (log_edges(cluster, topic, list(known), edge) for edge in ("earliest", "latest"))
    for n, position in known.items():
        if not first[n] <= position <= end[n]:
            found.append(Difference(topic, f"position of partition {n}", str(position), f"{first[n]} to {end[n]}"))
    return found


def missing_starts(cluster: Cluster, settings: Settings) -> tuple[list[int], int]:
    """Name the partitions of the request topic, which exists, without a committed position, and count all partitions."""
    topic = settings.topics.requests
    positions = _committed(cluster, settings, await_visible(cluster, [topic])[topic])
    return [n for n, position in positions.items() if position is None], len(positions)


def _positions(cluster: Cluster, settings: Settings) -> dict[int, int | None]:
    """Give the committed position of each partition of the request topic, None where there is none; empty for a missing topic."""
    topic = settings.topics.requests
    known = facts_of(cluster, [topic]).get(topic)
    return {} if known is None else _committed(cluster, settings, known)


def _committed(cluster: Cluster, settings: Settings, known: TopicFacts) -> dict[int, int | None]:
    found = headways(cluster, settings, range(known.partitions), known.topic_id)
    return {partition: headway.position for partition, headway in found.items()}


def group_active(cluster: Cluster, group: str) -> bool:
    """Ask whether the group has members (or is just getting some). One that we may not see counts as idle: Kafka refuses the commit."""
    answer = cluster.settled(lambda attempt_s: cluster.client.list_consumer_groups(request_timeout=attempt_s), "listing the groups")
    return any(listed.group_id == group and listed.state not in _IDLE for listed in answer.valid or ())


def _refuse(settings: Settings, missing: list[int], *, gap: bool, active: bool, fill_gaps: Edge | None) -> None:
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


def _is_first(cluster: Cluster, settings: Settings, timeout_s: float, fill_gaps: Edge | None) -> bool:
    """Whether nothing of the request topic was answered yet, as far as the last replies tell. Refuses to decide where something was."""
    group, topics = settings.worker.group, settings.topics
    topic_id = facts_of(cluster, [topics.requests])[topics.requests].topic_id_text
    # Who may not read replies is not told.
    with suppress(BrokerDenied), LogReader(settings, topics.replies, timeout_s) as replies:
        for reply in replies.read(Span(_LAST), until_end=True):
            if (place := answered_place(reply, topics.requests, topic_id)) is None:
                continue
            if fill_gaps is None:
                raise RefusedError(
                    f"group {group} has no position in {topics.requests}, and offset {place[1]} of partition {place[0]} was answered: "
                    "its positions are lost, or it is another group",
                    "decide: --fill-gaps latest runs what comes from now on (from there `dispatcher lanes seek` moves back), "
                    "--fill-gaps earliest runs the whole log again",
                )
            return False
    return True


def log_edges(cluster: Cluster, topic: str, partitions: list[int], edge: Edge) -> dict[int, int]:
    """Find the first or the next offset of each partition. The next one stands behind open transactions, too."""

    def offset(partition: int, attempt_s: float) -> int:
        place = topic, partition
        return offset_of(ask_edges(cluster.client, [place], edge, attempt_s)[place].result(timeout=attempt_s + 1))

    return {partition: cluster.insisted(partial(offset, partition), f"reading the offsets of {topic}") for partition in partitions}


def _listed(partitions: list[int]) -> str:
    """Write partition numbers for a sentence."""
    return ", ".join(map(str, partitions))
