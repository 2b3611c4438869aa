"""How far one partition has come, under one assignment.

Three marks, always `acknowledged <= planned <= delivered` (or the end that was seen behind what was delivered):

- *delivered*: the last record that was handed to a lane;
- *planned*: the position that may be committed once all outcomes that were handed out are published;
- *acknowledged*: the position that a commit has confirmed. Nothing else counts as progress.

What settles above the mark is kept as ranges. Offsets have holes (compaction, aborted records, transaction markers), and reading goes in
order: a record settles everything from the one delivered before it up to itself, so that holes never keep ranges apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.spans import Spans


class Progress:
    """Owned by one Partition; dies with it. Positions are next offsets to read, as Kafka commits them.

    `settled` is what an earlier owner's commit said of offsets above `position`: records in it are dropped when they are delivered.
    """

    __slots__ = ("_above", "_end", "_open", "acknowledged", "delivered", "planned")

    def __init__(self, position: int, settled: Iterable[Range] = ()) -> None:
        self._above = Spans(settled)
        self.acknowledged = position
        self.planned = self._above.rise(position)
        self.delivered = position  # the next offset that may be delivered
        self._open: dict[int, int] = {}  # offsets that are delivered and not settled, each with where its range begins
        self._end: int | None = None  # end of the log, if seen after the last delivery

    @property
    def ranges(self) -> int:
        """How many ranges are settled above the planned position: what a commit has to carry."""
        return len(self._above)

    @property
    def map_bytes(self) -> int:
        """What those take in a commit, at most."""
        return self._above.size_bytes

    def adds_range(self, offset: int) -> bool:
        """Whether settling the record at `offset`, which is open, makes one range more: it touches neither the mark nor another."""
        start = self._open[offset]
        return start > self.planned and not self._above.touches(start, offset + 1)

    @property
    def reached(self) -> int:
        """The log has been read up to here, holes and what was settled before included."""
        return self.delivered if self._end is None else self._end

    def is_open(self, offset: int) -> bool:
        """Whether the record at `offset` was delivered and has not ended."""
        return offset in self._open

    def is_settled(self, offset: int) -> bool:
        """Whether the record at `offset` has ended, or never was one of ours to execute."""
        return offset < self.planned or offset in self._above

    def deliver(self, offset: int) -> bool:
        """Note that a record was delivered; False for one that was delivered or settled before, which must be dropped."""
        if offset < self.delivered:
            return False
        start, self.delivered = max(self.delivered, self.planned), offset + 1
        self._end = None
        if self.is_settled(offset):
            self._above.add(start, offset + 1)
            self.planned = self._above.rise(self.planned)
            return False
        self._open[offset] = start
        return True

    def span(self, offset: int) -> Range:
        """What the record at `offset`, which is open, settles when it ends."""
        return self._open[offset], offset + 1

    def settle(self, offset: int) -> int:
        """The outcome of `offset` is decided; returns the position that may be committed together with it.

        The caller hands outcomes to the publisher in the order of these calls, and the publisher keeps that order: that makes the
        returned position safe, since everything below it is published in the same transaction or before.
        """
        self._above.add(self._open.pop(offset), offset + 1)
        return self._moved()

    def reach_end(self, end: int) -> int | None:
        """The log ends at `end` for now; returns a position to commit at once, if all is settled and the end lies ahead.

        Without this, lag never reads 0 behind trailing markers.
        """
        self._end = max(end, self.delivered)
        if self._open or self._end <= self.planned:
            return None
        return self._moved()

    def skip_to(self, position: int) -> Range | None:
        """Nothing up to `position` will be delivered any more: its records are lost. What is settled by that; None where nothing is."""
        if position <= self.delivered:
            return None
        lost = max(self.delivered, self.planned), position
        self.delivered, self._end = position, None
        self._above.add(*lost)
        self._moved()
        return lost

    def acknowledge(self, position: int) -> None:
        """A commit of `position` is confirmed."""
        if not self.acknowledged <= position <= self.planned:
            raise AssertionError(f"acknowledged {position} is not within {self.acknowledged}..{self.planned}")
        self.acknowledged = position

    def _moved(self) -> int:
        self.planned = self._above.rise(self.planned)
        if not self._open and self._end is not None:
            self.planned = self._above.rise(max(self.planned, self._end))
        return self.planned
