"""A worker's lanes as it tells of them. Read on the event loop, which owns them, and nothing of them is kept.

There may be a hundred thousand lanes, and every call waits meanwhile: one partition in a turn of the loop, and of it the lanes that have
been there longest. A lane that has nothing left goes, so those are the ones that wait, are parked, or never become empty.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import islice

from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import Desired, Kind, parse_target
from dispatcher.core.internal.lane_report import LaneReport, PartitionReport, Weight, WorkerReport, notable
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.glance import header
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import shown
from dispatcher.core.progress.gap import Gap
from dispatcher.core.progress.strand import RequestTopics, number_of, source_of
from dispatcher.settings import WorkerSettings
from dispatcher.worker.clock import Clock

# Some 5 ms of the event loop.
LOOK_MAX = 1000


class LaneView:
    """What there is to tell of. `partitions`, `gaps` and `desired` are the engine's own."""

    def __init__(self, settings: WorkerSettings, topics: RequestTopics) -> None:
        self._worker = settings
        self._topics = topics

    def report(
        self, partitions: Mapping[int, Partition], gaps: Mapping[int, Gap], desired: Desired, clock: Clock
    ) -> Iterator[WorkerReport | None]:
        """All of it, a partition at a time: None for each that was looked at, then the report."""
        worker, told = self._worker, []
        for number in list(partitions):
            partition = partitions.get(number)  # it may have gone since the last turn
            if partition is not None:
                told.append(self._partition(partition, gaps, desired, clock.now()))
                yield None
        # A partition without a position that counts never went live: nothing else is known of it.
        told += [self._unread(n, gap) for n, gap in gaps.items() if n not in partitions]
        at = clock.now().rfc3339()
        yield WorkerReport(worker.slot, at, worker.ordering, worker.report_interval_s, desired.position, tuple(told))

    def _partition(self, partition: Partition, gaps: Mapping[int, Gap], desired: Desired, instant: Instant) -> PartitionReport:
        number, now = partition.owner.partition, instant.mono
        held = dict.fromkeys(_held(partition, desired))
        lanes = notable({**held, **dict.fromkeys(islice(partition.lanes.values(), LOOK_MAX))}, lambda lane: _weight(lane, held, now))
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
            self._topics.of[partition.owner.source].kind,
        )

    def _unread(self, strand: int, gap: Gap) -> PartitionReport:
        kind = self._topics.of[source_of(strand)].kind
        return PartitionReport(number_of(strand), 0, gap.position or 0, 0, 0, 0, 0, "gap", (), kind)

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
            None if offset is None else self._name(first, offset, lane.owner),
            offset,
            lane.attempts,
            0.0 if arrived is None else round(instant.mono - arrived, 3),
        )

    def _name(self, first: Record | None, offset: int, owner: Owner) -> str:
        """The id of the request whose turn it is; of a parked one only its place is known."""
        given = header(first, "ce_id") if first is not None and first.offset == offset else None
        topic = self._topics.of[owner.source]
        return given or position_id(Record(topic.name, owner.partition, offset, None, None), topic.id_text)


def _stands(lane: Lane, instant: Instant) -> tuple[str, float | None]:
    """Why a lane stands, and until when (monotonic); empty where it is calling or could."""
    return ("", None) if lane.is_calling else lane.why(instant)


def _held(partition: Partition, desired: Desired) -> Iterator[Lane]:
    """The lanes that somebody holds, one by one."""
    for command in desired.targets():
        target = parse_target(command.target)
        if target is not None and target.kind is Kind.KEY and (lane := partition.lane_of(target.name.encode())) is not None:
            yield lane


def _weight(lane: Lane, held: Container[Lane], now: float) -> Weight:
    """How much there is to tell of a lane. One with parked requests has waited long, else they would not be."""
    arrived, parked = lane.oldest_arrival, lane.parked
    return Weight(parked > 0 or lane in held, 0.0 if arrived is None else now - arrived, len(lane) + parked)


def _why(partition: Partition, gaps: Mapping[int, Gap], desired: Desired, instant: Instant) -> str:
    """Why a partition stands as a whole; empty where it does not."""
    number = partition.owner.partition
    if partition.closed:
        return "closing"
    if not partition.is_restored:
        return "restoring"
    if partition.owner.strand in gaps:
        return "gap"
    if partition.is_held_back(instant.mono):
        return "unpublished"
    return desired.why_held(None, number) or partition.short_of or ("commit map" if partition.is_map_full else "")
