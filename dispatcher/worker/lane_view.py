"""A worker's lanes as it tells of them. Read on the event loop, which owns them, and nothing of them is kept."""

from __future__ import annotations

from collections.abc import Mapping

from dispatcher.core.control import HALTED, PAUSED, Desired
from dispatcher.core.envelope import position_id
from dispatcher.core.gap import Gap
from dispatcher.core.glance import header
from dispatcher.core.instant import Instant
from dispatcher.core.lane import Lane
from dispatcher.core.lane_report import LaneReport, PartitionReport, Weight, WorkerReport, notable
from dispatcher.core.partition import Partition
from dispatcher.core.record import Record
from dispatcher.core.record_json import shown
from dispatcher.settings import Settings


class LaneView:
    """What there is to tell of. `partitions`, `gaps` and `desired` are the engine's own."""

    def __init__(self, settings: Settings, topic_id: str) -> None:
        self._worker = settings.worker
        self._topic = settings.topics.requests
        self._topic_id = topic_id

    def report(self, partitions: Mapping[int, Partition], gaps: Mapping[int, Gap], desired: Desired, instant: Instant) -> WorkerReport:
        """All of it, now."""
        worker = self._worker
        told = [self._partition(partition, gaps, desired, instant) for partition in partitions.values()]
        return WorkerReport(worker.slot, instant.rfc3339(), worker.ordering, worker.report_interval_s, desired.position, tuple(told))

    def _partition(self, partition: Partition, gaps: Mapping[int, Gap], desired: Desired, instant: Instant) -> PartitionReport:
        number = partition.owner.partition
        lanes = notable(partition.lanes.values(), lambda lane: _weight(lane, instant))
        return PartitionReport(
            number,
            partition.owner.epoch,
            partition.progress.acknowledged,
            partition.held_records,
            partition.calls,
            partition.parked,
            len(partition.lanes),
            _why(partition, gaps, desired, instant),
            tuple(self._lane(lane, instant) for lane in lanes if len(lane) or lane.parked),
        )

    def _lane(self, lane: Lane, instant: Instant) -> LaneReport:
        why, until = _stands(lane, instant)
        first, offset, arrived = lane.first, lane.first_offset, lane.oldest_arrival
        return LaneReport(
            shown(lane.key if lane.key is not None or first is None else first.key),
            why,
            None if until is None else round(instant.wall + until - instant.mono, 3),
            lane.is_calling,
            len(lane),
            lane.parked,
            None if offset is None else self._name(first, offset, lane.owner.partition),
            offset,
            lane.attempts,
            0.0 if arrived is None else round(instant.mono - arrived, 3),
        )

    def _name(self, first: Record | None, offset: int, partition: int) -> str:
        """The id of the request whose turn it is; of a parked one only its place is known."""
        given = header(first, "ce_id") if first is not None and first.offset == offset else None
        return given or position_id(Record(self._topic, partition, offset, None, None), self._topic_id)


def _stands(lane: Lane, instant: Instant) -> tuple[str, float | None]:
    """Why a lane stands, and until when (monotonic); empty where it is calling or could."""
    return ("", None) if lane.is_calling else lane.why(instant)


def _weight(lane: Lane, instant: Instant) -> Weight:
    why, until = _stands(lane, instant)
    arrived = lane.oldest_arrival
    # Parked requests are known by their place alone: what they wait for counts in place of how long they have.
    waited_s = instant.mono - arrived if arrived is not None else until - instant.mono if until is not None else 0.0
    return Weight(why in {PAUSED, HALTED}, waited_s, len(lane) + lane.parked)


def _why(partition: Partition, gaps: Mapping[int, Gap], desired: Desired, instant: Instant) -> str:
    """Why a partition stands as a whole; empty where it does not."""
    number = partition.owner.partition
    if partition.closed:
        return "closing"
    if not partition.is_restored:
        return "restoring"
    if number in gaps:
        return "gap"
    if partition.is_held_back(instant.mono):
        return "unpublished"
    return desired.why_held(None, number)
