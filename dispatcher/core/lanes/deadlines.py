"""When the requests of a partition expire: those that are queued, waiting or parked, by the wall clock."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

# Entries of requests that have ended stay in the heap until they are as many as the others, and more than this.
STALE_MIN = 64


class Deadlines:
    """Owned by one Partition. Times are wall clock, seconds since 1970; one deadline per offset."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, bytes | None]] = []
        self._live: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def next(self) -> float | None:
        """The earliest one; None where there is none."""
        self._drop_ended()
        return self._heap[0][0] if self._heap else None

    def add(self, offset: int, key: bytes | None, at: float) -> None:
        """The request at `offset`, of this record key, expires at `at`."""
        self._live[offset] = at
        heappush(self._heap, (at, offset, key))

    def forget(self, offset: int) -> None:
        """That request has ended."""
        if self._live and self._live.pop(offset, None) is not None and len(self._heap) > 2 * len(self._live) + STALE_MIN:
            self._heap = [entry for entry in self._heap if self._live.get(entry[1]) == entry[0]]
            heapify(self._heap)

    def pop(self, wall: float) -> tuple[int, bytes | None] | None:
        """Offset and record key of one that has expired by `wall`, which is forgotten with it; None where there is none."""
        self._drop_ended()
        if not self._heap or self._heap[0][0] > wall:
            return None
        _, offset, key = heappop(self._heap)
        del self._live[offset]
        return offset, key

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._live.clear()

    def _drop_ended(self) -> None:
        while self._heap and self._live.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
