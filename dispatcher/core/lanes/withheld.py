"""Outcomes that no commit could tell of yet: calls in hand may end far above the mark while the commit's map is full."""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush

from dispatcher.core.internal.journal import Ahead, Known
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.recorded import recorded_in


class Withheld:
    """Owned by one Partition. The lowest offset comes first, and what is younger in its lane waits with it."""

    __slots__ = ("_heap", "_of", "_outcomes")

    def __init__(self) -> None:
        self._heap: list[tuple[int, bytes | None]] = []
        self._outcomes: dict[int, Outcome] = {}  # by offset
        self._of: dict[bytes | None, list[int]] = {}  # the offsets of each lane

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, offset: int) -> bool:
        return offset in self._outcomes

    def answer(self, offset: int, now: float) -> Ahead | None:
        """What the reply to the request at `offset` will say, if that is here; `now` in seconds since 1970.

        For an older duplicate of it, for whose end it may wait: that cannot wait for it.
        """
        reply = outcome.reply if (outcome := self._outcomes.get(offset)) is not None else None
        if reply is None:
            return None
        known = Known(offset, reply.status, now, reply.envelope.reply_topic, reply.envelope.reply_partition)
        return Ahead(known, recorded_in(reply.message()))

    @property
    def first(self) -> int:
        """The lowest offset; there is one."""
        return self._heap[0][0]

    def is_behind(self, lane: bytes | None, offset: int) -> bool:
        """Whether something older of the lane has ended and cannot be published yet."""
        older = self._of.get(lane)
        return older is not None and older[0] < offset

    def add(self, lane: bytes | None, offset: int, outcome: Outcome) -> None:
        """The request at `offset` has ended so."""
        heappush(self._heap, (offset, lane))
        self._outcomes[offset] = outcome
        insort(self._of.setdefault(lane, []), offset)

    def pop(self) -> Outcome:
        """The outcome with the lowest offset, which may be published now."""
        offset, lane = heappop(self._heap)
        self._of[lane].remove(offset)
        if not self._of[lane]:
            del self._of[lane]
        return self._outcomes.pop(offset)
