"""The lines of upstreams that share a limit, in turns; most upstreams share none, and are a family of their own."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.line import Line
from dispatcher.core.callees.way import Way

_W = TypeVar("_W", bound=Hashable)


class Family(Generic[_W]):
    """Owned by the gate. `name`: that of its first upstream. `turn`: who was next last, and has not begun yet."""

    __slots__ = ("_aside", "_lines", "_occupied", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn: _W | None = None
        self._lines: dict[tuple[Way, str | None, tuple[Limit, ...]], Line[_W]] = {}
        self._occupied: OrderedDict[Line[_W], None] = OrderedDict()
        self._aside: OrderedDict[Line[_W], None] = OrderedDict()  # of which somebody was moved aside

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
        self._left(line)

    def _left(self, line: Line[_W]) -> None:
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

    # --- moved aside ----------------------------------------------------------------------------------------------------------------

    def aside(self) -> Iterable[Line[_W]]:
        """The lines of which somebody was moved aside."""
        return self._aside

    def put_aside(self, line: Line[_W], waiter: _W) -> None:
        """Who stands in that line waits elsewhere from now on."""
        line.put_aside(waiter)
        self._left(line)
        self._aside[line] = None

    def forget(self, line: Line[_W], waiter: _W) -> bool:
        """He is here, or will not come; whether he was on his way."""
        was_coming = line.aside.forget(waiter)
        if not len(line.aside):
            del self._aside[line]
        return was_coming

    def call_back(self, most: int, now: float) -> list[_W]:
        """Who may begin now of those who were moved aside, and no more than may: they are on their way from now on, so many at most.

        Where somebody stands in line who comes before them, he is next; those who are on their way already have their place.
        """
        coming: Counter[Limit] = Counter()
        for line in self._aside:
            most -= len(line.aside.coming)
            coming.update(dict.fromkeys(line.limits, len(line.aside.coming)))
        called: list[_W] = []
        for line in list(self._aside):
            room = 0 if most <= 0 or self.precedes(line, now) else line.room(now)
            count = min(most, room - max((coming[limit] for limit in line.limits), default=0))
            some = line.aside.next(max(0, count))
            for waiter in some:
                line.aside.come(waiter)
            if some:
                self._aside.move_to_end(line)
                coming.update(dict.fromkeys(line.limits, len(some)))
                most -= len(some)
                called += some
        return called

    def free_again_at(self, now: float) -> float | None:
        """When that may be so again, as far as it is known."""
        ats = (line.free_again_at(now) for line in self._aside if line.aside.is_away)
        return min((at for at in ats if at is not None), default=None)
