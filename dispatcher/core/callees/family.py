"""The lines of upstreams that share a limit, in turns; most upstreams share none, and are a family of their own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.line import Line
from dispatcher.core.callees.way import Way

_W = TypeVar("_W", bound=Hashable)


class Family(Generic[_W]):
    """Owned by the gate. `name`: that of its first upstream. `turn`: who was next last, and has not begun yet."""

    __slots__ = ("_lines", "_occupied", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn: _W | None = None
        self._lines: dict[tuple[Way, str | None, tuple[Limit, ...]], Line[_W]] = {}
        self._occupied: OrderedDict[Line[_W], None] = OrderedDict()

    def line(self, way: Way, credential: str | None, limits: tuple[Limit, ...]) -> Line[_W]:
        """The line of such calls."""
        line = self._lines.get((way, credential, limits))
        if line is None:
            line = self._lines[way, credential, limits] = Line(way, way.pace_of(credential), limits)
        return line

    def waiting(self, way: Way) -> int:
        """How many wait for that upstream."""
        return sum(len(line) for line in self._occupied if line.way is way)

    def occupied(self) -> Iterable[Line[_W]]:
        """The lines in which somebody stands."""
        return self._occupied

    def join(self, line: Line[_W], waiter: _W, tokens: int, priority: int) -> None:
        """Stand at the end of that line."""
        line.join(waiter, tokens, priority)
        self._occupied[line] = None

    def leave(self, line: Line[_W], waiter: _W) -> None:
        """Stand in it no more."""
        line.leave(waiter)
        if not len(line):
            del self._occupied[line]

    def serve(self, line: Line[_W]) -> None:
        """It has had its turn: all others come before it."""
        line.serve()
        self._occupied.move_to_end(line)

    def due(self, now: float) -> Iterator[tuple[Line[_W], float | None]]:
        """The lines, whose turn it is first, and when the first of each may begin; but for those who leave that to one before them."""
        claimed: set[Limit] = set()
        for line in self._occupied:
            at = line.due(now)
            is_free = claimed.isdisjoint(line.limits)
            claimed |= line.claims
            if is_free:
                yield line, at

    def precedes(self, line: Line[_W], now: float) -> bool:
        """Whether anybody who waits comes before one who would begin now: it may begin, too, or waits for a limit that both are under."""
        return any(other.due(now) == now or not other.claims.isdisjoint(line.limits) for other in self._occupied)
