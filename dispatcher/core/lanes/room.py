"""How much one partition may hold in memory, above its mark and aside, and from when on it makes room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.core.progress.commit_note import RANGES_MAX_BYTES
from dispatcher.settings import Settings


@dataclass(frozen=True, slots=True)
class Room:
    """How much one partition may hold, and for how long what has ended may wait to be published.

    Pausing may throw away what the client has fetched ahead: it starts at the full mark and ends at half of it, never record by record.
    From half of `records`, `size_bytes` or `ranges` on, or `distance` records ahead of the mark, what waits long is parked (lanes per key).
    """

    records: int
    size_bytes: int
    unpublished_s: float
    # From so many ranges above the mark on, or four fifths of `map_bytes`, nothing starts that would make one more.
    ranges: int = 1000
    # What is published has its place in a commit: at most so many bytes of ranges, and a little less than there is.
    map_bytes: int = RANGES_MAX_BYTES - 64
    # A new owner reads again from the mark on: so much takes it less than a second.
    distance: int = 10_000
    parked: int = 100_000
    halted: int = 1000
    parked_max_bytes: int = 1 << 30
    # Waiting for less is not worth a write and a read. A busy lane's queue is moved where it will take so long, and is a good part of all.
    park_s: float = 1.0
    queue_s: float = 30.0
    queue_share: int = 8


def room_of(settings: Settings, limits: Mapping[str, int] | None = None) -> Room:
    """What one partition may hold, as it is set; `limits`: bytes of one record, per topic."""
    worker, parked = settings.worker, settings.topics.parked
    return Room(
        records=worker.lane_buffer_max_records,
        size_bytes=worker.lane_buffer_max_bytes,
        unpublished_s=worker.transaction_timeout_s,
        parked=worker.parked_max_records,
        halted=worker.halted_max_records,
        parked_max_bytes=(limits or {}).get(parked, settings.topics.parked_max_bytes),
    )
