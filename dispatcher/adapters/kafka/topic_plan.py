"""How each topic of the product is made: partitions and configuration, as `topics init` creates and `topics check` wants them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.settings import MIB, Settings

DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
# From so many replicas on, one of them may be down: an acknowledgement must then mean two copies, or a crash loses acknowledged records.
_REPLICAS_FOR_TWO_COPIES = 3
# A command with its reason, or what one worker says of its lanes.
_INSIDE_MAX_BYTES = 1 * MIB
# Segments are closed by time as well as by size, since Kafka never compacts the one that is written to; the largest record fits in often.
_SEGMENT_BYTES, _RECORDS_PER_SEGMENT = 32 * MIB, 4
# Whoever gets a partition reads its parked requests whole: at most a tenth of them may be waiting for compaction.
_DIRTY_RATIO = "0.1"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic as it should be."""

    partitions: int
    configuration: Mapping[str, str]


def plans(settings: Settings) -> dict[str, TopicPlan]:
    """Say how each topic should be, in the order in which they are listed."""
    topics = settings.topics
    logs = {
        **dict.fromkeys(settings.request_topics, (topics.request_max_bytes, topics.request_retention_days)),
        topics.replies: (topics.reply_max_bytes, topics.reply_retention_days),
        topics.dead_letters: (topics.dead_letter_max_bytes, topics.dead_letter_retention_days),
    }
    copies = {"min.insync.replicas": "2" if topics.replication_factor >= _REPLICAS_FOR_TWO_COPIES else "1"}
    made = {name: TopicPlan(topics.partitions, _log(size, days) | copies) for name, (size, days) in logs.items()}
    # A tombstone must outlive the reading of whoever has read what it ends. A partition of parked requests is read once, at takeover, in
    # seconds; control is followed, by workers that may be cut off: who comes back within a week has missed nothing.
    made[topics.parked] = TopicPlan(topics.partitions, _table(topics.parked_max_bytes, 10, 60 * MINUTE_MS) | copies)
    made[topics.journal] = TopicPlan(topics.partitions, _window(settings.worker.dedup_window_s) | copies)
    # What is noted of tries is read with them, and as short-lived.
    made[topics.state] = TopicPlan(topics.partitions, _table(_INSIDE_MAX_BYTES, 10, 60 * MINUTE_MS) | copies)
    made[topics.control] = TopicPlan(1, _table(_INSIDE_MAX_BYTES, 10, 7 * DAY_MS) | copies)
    # Slots may be named after processes: what a worker that is gone said last goes after a day.
    gone = {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
    made[topics.workers] = TopicPlan(1, _table(_INSIDE_MAX_BYTES, 1, 60 * MINUTE_MS) | gone | copies)
    return made


def _log(max_bytes: int, days: float) -> dict[str, str]:
    """Configure a topic that keeps every record for its time (SURFACE: sizes and retention)."""
    return {"cleanup.policy": "delete", "max.message.bytes": str(max_bytes), "retention.ms": str(round(days * DAY_MS))}


def _window(window_s: float) -> dict[str, str]:
    """Configure a topic whose records matter for a while: whole segments are removed, so that they are closed often."""
    return {
        "cleanup.policy": "delete",
        "max.message.bytes": str(_INSIDE_MAX_BYTES),
        "retention.ms": str(round(window_s * 1000) + HOUR_MS),
        "segment.ms": str(10 * MINUTE_MS),
    }


def _table(max_bytes: int, segment_minutes: int, tombstones_ms: int) -> dict[str, str]:
    """Configure a topic that keeps the last record of each key."""
    return {
        "cleanup.policy": "compact",
        "max.message.bytes": str(max_bytes),
        "segment.bytes": str(max(_SEGMENT_BYTES, _RECORDS_PER_SEGMENT * max_bytes)),
        "segment.ms": str(segment_minutes * MINUTE_MS),
        "min.cleanable.dirty.ratio": _DIRTY_RATIO,
        "delete.retention.ms": str(tombstones_ms),
    }
