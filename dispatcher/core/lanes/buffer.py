"""The memory that all partitions of a worker share: what each may hold, so that none starves and all together are bounded.

A partition may hold its half share (half of the whole, divided by the number of partitions) whatever the others do, and beyond that as much
as is free, up to its own bound. So a lone one may take half of the whole, several end up with equal parts, and one that holds little
always has room to come: what another holds is never the reason to stop it. Together they stay below one and a half of the bound, and below
the bound itself as long as partitions do not come while it is full.

    buffer.note(n, Amount(records, size_bytes))    whenever what partition n holds has changed
    buffer.limit(n, own)                           at this it is paused, at half of it resumed
    buffer.forget(n)                               it went
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Amount:
    """Records, and what they take in bytes."""

    records: int
    size_bytes: int

    def is_full(self, held: Amount) -> bool:
        """Whether this, as a limit, is reached."""
        return held.records >= self.records or held.size_bytes >= self.size_bytes

    def is_half_full(self, held: Amount) -> bool:
        """Whether more than half of this, as a limit, is held."""
        return held.records * 2 > self.records or held.size_bytes * 2 > self.size_bytes


NOTHING = Amount(0, 0)


class Flow(Enum):
    """What the source should do with a partition now."""

    PAUSE = "pause"
    RESUME = "resume"


class Tap:
    """Whether one partition is fetched from: closed at its limit, opened at half of it, never record by record.

    Half of the limit that closed it, if that was lower: where all drain at once, limits grow as fast as memory is given back, and half of
    such a limit would be reached at once.
    """

    __slots__ = ("_closed_at",)

    def __init__(self) -> None:
        self._closed_at: Amount | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is fetched."""
        return self._closed_at is not None

    def turn(self, limit: Amount, held: Amount) -> Flow | None:
        """What has to be done about it; None where it stays as it is."""
        if self._closed_at is None:
            if not limit.is_full(held):
                return None
            self._closed_at = limit
            return Flow.PAUSE
        if self._closed_at.is_half_full(held) or limit.is_half_full(held):
            return None
        self._closed_at = None
        return Flow.RESUME


class Buffer:
    """Owned by the engine. `bound` is for all partitions together."""

    __slots__ = ("_bound", "_held", "_records", "_size_bytes")

    def __init__(self, bound: Amount) -> None:
        self._bound = bound
        self._held: dict[int, Amount] = {}
        self._records = 0
        self._size_bytes = 0

    @property
    def held(self) -> Amount:
        """What all hold together."""
        return Amount(self._records, self._size_bytes)

    def note(self, partition: int, held: Amount) -> bool:
        """A partition holds so much now; True where all hold less by that, so that another one's limit has grown."""
        was = self._held.get(partition, NOTHING)
        self._held[partition] = held
        self._records += held.records - was.records
        self._size_bytes += held.size_bytes - was.size_bytes
        return held.records < was.records or held.size_bytes < was.size_bytes

    def forget(self, partition: int) -> None:
        """It is gone, with all that it held."""
        gone = self._held.pop(partition, NOTHING)
        self._records -= gone.records
        self._size_bytes -= gone.size_bytes

    def limit(self, partition: int, own: Amount) -> Amount:
        """What a partition, whose own bound is `own`, may hold now; at least one record, since one must always be able to move."""
        known = max(1, len(self._held.keys() | {partition}))
        return Amount(
            max(1, _limit(own.records, self._bound.records, self._records, known)),
            max(1, _limit(own.size_bytes, self._bound.size_bytes, self._size_bytes, known)),
        )


def _limit(own: int, bound: int, held: int, partitions: int) -> int:
    return min(own, max(bound - held, bound // (2 * partitions)))
