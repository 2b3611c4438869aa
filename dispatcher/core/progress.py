"""How far one partition has come, under one assignment.

Three marks, always `acknowledged <= planned <= delivered`:

- *delivered*: the last record that was handed to a lane;
- *planned*: the position that may be committed once all outcomes that were handed out are published;
- *acknowledged*: the position that a commit has confirmed. Nothing else counts as progress.

Offsets have holes (compaction, aborted records, transaction markers), so settled records are followed in delivery order and a
position is never computed from "the next offset must exist".
"""

from __future__ import annotations

from collections import deque


class Progress:
    """Owned by one Partition; dies with it. Positions are next offsets to read, as Kafka commits them."""

    __slots__ = ("_end", "_open", "_settled", "acknowledged", "delivered", "planned")

    def __init__(self, position: int) -> None:
        self.acknowledged = position
        self.planned = position
        self.delivered = position  # the next offset that may be delivered
        self._open: deque[int] = deque()  # delivered and not contiguously settled, in delivery order
        self._settled: set[int] = set()  # of those, settled out of turn
        self._end: int | None = None  # end of the log, if seen after the last delivery

    @property
    def outstanding(self) -> int:
        """Delivered records that are not settled yet."""
        return len(self._open) - len(self._settled)

    def deliver(self, offset: int) -> bool:
        """Note that a record was delivered; False for one that was delivered before, which must be dropped."""
        if offset < self.delivered:
            return False
        self.delivered = offset + 1
        self._open.append(offset)
        self._end = None
        return True

    def settle(self, offset: int) -> int:
        """The outcome of `offset` is decided; returns the position that may be committed together with it.

        The caller hands outcomes to the publisher in the order of these calls, and the publisher keeps that order: that makes the
        returned position safe, since everything below it is published in the same transaction or before.
        """
        if self._open and self._open[0] == offset:
            self._open.popleft()
            self.planned = offset + 1
            while self._open and self._open[0] in self._settled:
                settled = self._open.popleft()
                self._settled.remove(settled)
                self.planned = settled + 1
            if not self._open and self._end is not None:
                self.planned = max(self.planned, self._end)
        else:
            self._settled.add(offset)
        return self.planned

    def reach_end(self, end: int) -> int | None:
        """The log ends at `end` for now; returns a position to commit at once, if all is settled and the end lies ahead.

        Without this, lag never reads 0 behind trailing markers.
        """
        self._end = max(end, self.delivered)
        if self._open or self._end <= self.planned:
            return None
        self.planned = self._end
        return self.planned

    def acknowledge(self, position: int) -> None:
        """A commit of `position` is confirmed."""
        if not self.acknowledged <= position <= self.planned:
            raise AssertionError(f"acknowledged {position} is not within {self.acknowledged}..{self.planned}")
        self.acknowledged = position
