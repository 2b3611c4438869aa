"""Replaying requests: planning a range, writing its requests anew, and finding out what was written.

Each replay writes under a transactional id of its own, some hundred requests at a time. So a predecessor that was killed, or still runs
somewhere, is shut out before the log is read, and no request of its can come afterwards: what the log then holds is all that there is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from dispatcher.adapters.kafka.admin import Cluster, TopicFacts, connect, facts_of
from dispatcher.adapters.kafka.faults import FENCED, Complaints, error_of
from dispatcher.adapters.kafka.group import headways
from dispatcher.adapters.kafka.log import TIMEOUT_S, Extent, LogReader, no_topic
from dispatcher.adapters.kafka.starts import log_edges
from dispatcher.client.replay_writer import PAUSE_S, ReplayWriter, Work
from dispatcher.core.instant import Instant
from dispatcher.core.messages import record
from dispatcher.core.messages.request import Decoder
from dispatcher.core.messages.request_id import CHANCE_BITS, time_ordered
from dispatcher.core.operations.positions import Span
from dispatcher.core.operations.replay import Ledger, Selection, Survey, due, replayed
from dispatcher.core.operations.replay_plan import Gap, Plan, gap
from dispatcher.core.progress.headway import Headway
from dispatcher.core.rate import Pace
from dispatcher.errors import CallFailed, RefusedError
from dispatcher.settings import Settings

# What goes into one transaction: some 10 ms of work for the cluster, and little to do again.
GROUP_MAX_RECORDS = 500
GROUP_MAX_BYTES = 4 * 1024 * 1024
# How often a replay goes on after it was shut out. A transaction that ran past its time looks the same as another process that runs
# this replay; two that keep shutting each other out must end.
SHUT_OUT_MAX = 2
KEYS_SHOWN = 5

# What another attempt does not mend.
_FINAL = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of a planned range: which offsets, how many requests, and how many records queue there before them."""

    partition: int
    start: int
    stop: int
    requests: int
    queued: int


@dataclass(frozen=True, slots=True)
class Overview:
    """A plan, and what a person should know before doing it. `skipped` counts by reason."""

    topic: str
    plan: Plan
    partitions: tuple[PartitionView, ...]
    gaps: tuple[Gap, ...]
    skipped: Mapping[str, int]
    keys: int
    keys_are_all: bool  # False: there are more keys than are counted
    top_keys: tuple[tuple[bytes, int], ...]
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which requests to replay. Without `partitions` those of all; `most` takes the first ones, partition by partition."""

    span: Span
    partitions: tuple[int, ...] | None = None
    key: str | None = None
    include_replays: bool = False
    most: int | None = None


class Replayer:
    """Plans replays and does them. Belongs to one thread; `timeout_s` bounds how long it stays without Kafka.

    Errors: `BrokerError`; `ConfigError` for a topic or partition that does not exist; `RefusedError` where the set is not the one that
    was planned, or another process does this replay; `WaitTimeout` where open transactions hide the log's end. After all of them the
    same plan may be done again: it goes on where it stopped.
    """

    def __init__(self, settings: Settings, *, timeout_s: float | None = None) -> None:
        self.topic = settings.topics.requests
        self._settings = settings
        self._timeout_s = timeout_s or TIMEOUT_S
        self._shut_out = 0

    def plan(self, criteria: Criteria) -> Overview:
        """Read a range and decide what replaying it means. Nothing is written."""
        cluster, facts = self._topic()
        with self._reader() as reader:
            extents = reader.extents(criteria.span, criteria.partitions)
        ranges = {
            number: (max(extent.start, extent.first), extent.end if extent.stop is None else min(extent.stop, extent.end))
            for number, extent in extents.items()
        }
        key = None if criteria.key is None else criteria.key.encode("utf-8", "surrogateescape")
        survey = Survey(self._selection(facts, key, include_replays=criteria.include_replays), criteria.most)
        self._survey(survey, {number: (start, stop) for number, (start, stop) in ranges.items() if start < stop})
        now_ms = time.time_ns() // 1_000_000
        parts = survey.parts({number: extent.end for number, extent in extents.items()})
        replay_id = time_ordered(now_ms, secrets.randbits(CHANCE_BITS))
        plan = Plan(replay_id, facts.topic_id, facts.partitions, parts, key, criteria.include_replays)
        reached = headways(cluster, self._settings, extents, facts.topic_id)
        counts = {part.partition: part.requests for part in parts}
        views = [
            PartitionView(n, start, max(start, stop), counts.get(n, 0), _queued(reached[n], extents[n]))
            for n, (start, stop) in ranges.items()
        ]
        gaps = [gap(criteria.span.since, n, extent.start, ranges[n][1], extent.first) for n, extent in extents.items()]
        return Overview(
            self.topic,
            plan,
            tuple(views),
            tuple(found for found in gaps if found is not None),
            survey.skipped,
            len(survey.keys),
            survey.keys_are_all,
            tuple(survey.keys.most_common(KEYS_SHOWN)),
            survey.oldest_ms,
        )

    def selection(self, plan: Plan) -> Selection:
        """Give the rule by which a plan's requests are chosen. RefusedError where the topic is not the one of the plan."""
        cluster, facts = self._topic()
        selection = self._planned(plan, facts)
        self._edges(cluster, plan)
        return selection

    def execute(self, plan: Plan, *, per_s: float | None = None, told: Callable[[int], None] = lambda _done: None) -> int:
        """Write what is left of a plan, and read back that all of it is there; gives how many this call wrote.

        What is left is read twice: it is counted before the first is written, since retention or other settings may have changed it.
        `told` hears how many of the plan are done. Whatever ends this, also SIGKILL: `execute` with the same plan goes on.
        """
        cluster, facts = self._topic()
        selection = self._planned(plan, facts)
        work = Work(plan, selection, Pace(per_s), told)
        good_at = time.monotonic()
        while True:
            before = work.written
            try:
                self._attempt(cluster, work)
                break
            except KafkaException as failure:
                now = time.monotonic()
                good_at = now if work.written > before else good_at
                self._judge(failure, work.complaints, out_of_time=now > good_at + self._timeout_s)
        if self._ledger(cluster, plan).left():
            raise CallFailed("not all of the replay is in the log", "do the same plan again: it goes on where it stopped")
        return work.written

    def _attempt(self, cluster: Cluster, work: Work) -> None:
        """Shut out whoever else does this replay, see what is there, and write the rest. KafkaException where that is uncertain."""
        with ReplayWriter(self._settings, work, self._timeout_s) as writer:
            ledger = self._ledger(cluster, work.plan)
            work.told(ledger.requests)
            self._refuse_changed(cluster, work, ledger)
            with self._reader() as reader:
                group: list[record.Message] = []
                size_bytes, group_max = 0, work.pace.group_max(GROUP_MAX_RECORDS)
                done = ledger.requests
                for original in due(ledger, work.selection, reader.read_ranges(ledger.ranges())):
                    old_id = work.selection.old_id(original)
                    group.append(replayed(original, work.plan, old_id, Instant(0, time.time()).rfc3339()))
                    size_bytes += group[-1].size_bytes
                    if len(group) >= group_max or size_bytes >= GROUP_MAX_BYTES:
                        done += writer.write(group)
                        work.told(done)
                        group, size_bytes = [], 0
                work.told(done + writer.write(group))

    def _judge(self, failure: KafkaException, complaints: Complaints, *, out_of_time: bool) -> None:
        """Raise what a person must know; return where another attempt is worth it."""
        error = error_of(failure)
        code = error.code() if error is not None else None
        if code in FENCED:
            self._shut_out += 1
            if self._shut_out > SHUT_OUT_MAX:
                raise RefusedError("another process does this replay", "let it end; doing the same plan again then is safe") from None
        elif out_of_time or code in _FINAL:
            raise complaints.fault(failure, f"writing to {self.topic}") from None
        time.sleep(PAUSE_S)

    def _ledger(self, cluster: Cluster, plan: Plan) -> Ledger:
        """Read what the log holds of a plan: all of it, also behind what others have open."""
        ledger = Ledger(plan)
        firsts, ends = self._edges(cluster, plan)
        if gone := [part.partition for part in plan.parts if firsts[part.partition] > part.end]:
            raise RefusedError(
                f"what was replayed since the plan is no longer in partition {gone[0]}: retention removed it",
                "nobody can tell what is left of this plan; plan anew what is still there",
            )
        with self._reader() as reader:
            reader.await_stable(ends)
            for found in reader.read_ranges({part.partition: (part.end, ends[part.partition]) for part in plan.parts}):
                ledger.take(found)
        return ledger

    def _edges(self, cluster: Cluster, plan: Plan) -> tuple[dict[int, int], dict[int, int]]:
        """Give where the partitions of a plan begin and end. RefusedError where one ends before what the plan names."""
        partitions = [part.partition for part in plan.parts]
        firsts = log_edges(cluster, self.topic, partitions, "earliest")
        ends = log_edges(cluster, self.topic, partitions, "latest")
        if short := [part.partition for part in plan.parts if ends[part.partition] < part.end]:
            raise RefusedError(f"partition {short[0]} of {self.topic} ends before what the plan names", "plan anew what is there")
        return firsts, ends

    def _refuse_changed(self, cluster: Cluster, work: Work, ledger: Ledger) -> None:
        """Refuse before anything is written, if what is left to replay is not what was planned. RefusedError.

        Once it was counted, only retention can change it in this process.
        """
        ranges = ledger.ranges()
        if work.is_counted:
            firsts = log_edges(cluster, self.topic, list(ranges), "earliest")
            if all(firsts[number] <= start for number, (start, _) in ranges.items()):
                return
        with self._reader() as reader:
            for _ in due(ledger, work.selection, reader.read_ranges(ranges)):
                pass
        work.is_counted = True

    def _survey(self, survey: Survey, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Read the ranges; under a limit one partition after another, so that the first ones are always the same."""
        for some in [ranges] if not survey.is_limited else [{number: span} for number, span in sorted(ranges.items())]:
            with self._reader() as reader:
                for found in reader.read_ranges(some):
                    survey.take(found)
                    if survey.is_full:
                        return

    def _topic(self) -> tuple[Cluster, TopicFacts]:
        cluster = connect(self._settings, self._timeout_s)
        facts = facts_of(cluster, [self.topic]).get(self.topic)
        if facts is None:
            raise no_topic(self.topic)
        return cluster, facts

    def _planned(self, plan: Plan, facts: TopicFacts) -> Selection:
        if facts.topic_id != plan.topic_id:
            raise RefusedError(f"the plan is not for this topic {self.topic}: it is of another cluster, or was made anew", "plan it anew")
        if facts.partitions != plan.partitions:
            raise RefusedError(
                f"{self.topic} has {facts.partitions} partitions, and had {plan.partitions} when this was planned", "plan it anew"
            )
        return self._selection(facts, plan.key, include_replays=plan.include_replays)

    def _selection(self, facts: TopicFacts, key: bytes | None, *, include_replays: bool) -> Selection:
        # Whom a request may call is the workers' matter, and their settings may differ from those of this process.
        settings = self._settings.model_copy(update={"upstreams": {}})
        decoder = Decoder(settings, facts.topic_id_text, facts.partitions, {settings.topics.replies: facts.partitions})
        return Selection(decoder, facts.max_message_bytes, key, include_replays)

    def _reader(self) -> LogReader:
        return LogReader(self._settings, self.topic, self._timeout_s)


def _queued(reached: Headway, extent: Extent) -> int:
    """Count, by offsets, what the group has not settled in a partition."""
    start = max(extent.first, reached.position or 0)
    return max(0, extent.end - start - sum(stop - begin for begin, stop in reached.settled))
