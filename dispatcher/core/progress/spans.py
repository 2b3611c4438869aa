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

    __slots__ = ("_starts", "_stops", "size_bytes")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.size_bytes = 0  # what writing them down takes at most, as `core/progress/commit_note.py` does it
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

    def copy(self) -> Spans:
        """The same ranges, as an object of its own."""
        other = Spans()
        other._starts, other._stops, other.size_bytes = self._starts.copy(), self._stops.copy(), self.size_bytes
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
        self.size_bytes -= self._size(first, last + 1)
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]
        self.size_bytes += self._size(first, first + 2)

    def touches(self, start: int, stop: int) -> bool:
        """Whether adding this range would make no further one."""
        return bisect_left(self._stops, start) < bisect_right(self._starts, stop)

    def rise(self, position: int) -> int:
        """Forget what lies below `position`; returns it, or the stop of the range that begins there or below and reaches beyond it."""
        gone = bisect_right(self._stops, position)
        if gone < len(self._starts) and self._starts[gone] <= position:
            position = self._stops[gone]
            gone += 1
        if gone:
            self.size_bytes -= self._size(0, gone + 1)
            del self._starts[:gone], self._stops[:gone]
            self.size_bytes += self._size(0, 1)
        return position

    def _size(self, first: int, last: int) -> int:
        """What the ranges from number `first` up to `last` take: the distance from the one before, and the length."""
        size = 0
        for i in range(first, min(last, len(self._starts))):
            start = self._starts[i]
            size += (number_bytes(start - self._stops[i - 1]) if i else NUMBER_MAX_BYTES) + number_bytes(self._stops[i] - start)
        return size


# An offset has 63 bits, and a byte of LEB128 carries seven. The distance of the first range depends on where it is counted from.
NUMBER_MAX_BYTES = 9


def number_bytes(number: int) -> int:
    """What a number takes in LEB128.

    >>> number_bytes(0), number_bytes(127), number_bytes(128), number_bytes(2**63 - 1)
    (1, 1, 2, 9)
    """
    return max(1, (number.bit_length() + 6) // 7)
