"""Disjoint ranges of offsets, each from its start up to, not including, its stop. What is settled out of turn is kept so."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Spans:
    """Ranges that touch are one. Adding costs the logarithm of how many there are, and a move of the list behind.

    >>> spans = Spans([(3, 5), (8, 9)])
    >>> spans.add(5, 8)
    >>> list(spans), 4 in spans, 9 in spans
    ([(3, 9)], True, False)
    """

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __contains__(self, offset: int) -> bool:
        i = bisect_right(self._starts, offset) - 1
        return i >= 0 and offset < self._stops[i]

    @property
    def top(self) -> int:
        """The stop of the last range; 0 where there is none."""
        return self._stops[-1] if self._stops else 0

    def copy(self) -> Spans:
        """The same ranges, as an object of its own."""
        other = Spans()
        other._starts, other._stops = self._starts.copy(), self._stops.copy()
        return other

    def add(self, start: int, stop: int) -> None:
        """Take in a range; what it touches becomes one with it."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def rise(self, position: int) -> int:
        """Forget what lies below `position`; returns it, or the stop of the range that begins there or below and reaches beyond it."""
        gone = bisect_right(self._stops, position)
        if gone < len(self._starts) and self._starts[gone] <= position:
            position = self._stops[gone]
            gone += 1
        del self._starts[:gone], self._stops[:gone]
        return position
