"""A line in which the more urgent go first, and nobody waits for ever."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from dispatcher.core.messages.request import PRIORITY_MAX

_W = TypeVar("_W", bound=Hashable)
# Of so many turns one goes to whoever has stood longest, whatever its priority: the least urgent keep a tenth of the turns.
PATIENCE_TURNS = 10


class PriorityLine(Generic[_W]):
    """Owned by whoever gives the turns. The most urgent goes first; of equals the first that came, so that they go round robin.

    The bound: every `PATIENCE_TURNS`-th turn is that of the first that came of all. So who came when `n` others stood here has its turn, if
    it may have one, within `PATIENCE_TURNS * (n + 1)` turns, however many that are more urgent come after it, and however often.

    A turn costs as much as there are priorities, and as many as may not go.
    """

    __slots__ = ("_by_priority", "_priorities", "_turns")

    def __init__(self) -> None:
        self._priorities: OrderedDict[_W, int] = OrderedDict()  # of all, in the order in which they came
        self._by_priority: tuple[OrderedDict[_W, None], ...] = tuple(OrderedDict() for _ in range(PRIORITY_MAX + 1))
        self._turns = 0

    def __len__(self) -> int:
        return len(self._priorities)

    def __contains__(self, one: _W) -> bool:
        return one in self._priorities

    def __iter__(self) -> Iterator[_W]:
        return iter(self._priorities)

    def join(self, one: _W, priority: int) -> None:
        """Stand in line. Who stands here already keeps its place among all; with another priority than before it is the last of those."""
        before = self._priorities.get(one)
        if before == priority:
            return
        if before is not None:
            del self._by_priority[before][one]
        self._priorities[one] = priority
        self._by_priority[priority][one] = None

    def leave(self, one: _W) -> bool:
        """Stand here no more; whether it did."""
        priority = self._priorities.pop(one, None)
        if priority is None:
            return False
        del self._by_priority[priority][one]
        return True

    @property
    def first(self) -> _W:
        """Whose turn is next, who stands here on. Somebody has to."""
        return next(iter(self._priorities) if self._is_for_the_first else self.by_urgency())

    def serve(self) -> None:
        """Whoever is `first` has its turn."""
        self._turns += 1

    def by_urgency(self) -> Iterator[_W]:
        """All, the most urgent first, of equals the first that came."""
        return (one for line in reversed(self._by_priority) for one in line)

    def beside(self, one: _W) -> tuple[_W, int, int]:
        """Of somebody who stands here: the first that came of those as urgent, how many these are, and how many are more urgent."""
        priority = self._priorities[one]
        equals = self._by_priority[priority]
        return next(iter(equals)), len(equals), sum(map(len, self._by_priority[priority + 1 :]))

    def take(self) -> _W | None:
        """Whose turn it is, who stands here no more; None where nobody does."""
        return next(iter(self.take_some(1)), None)

    def take_some(self, count: int, may_go: Callable[[_W], bool] = lambda _: True) -> list[_W]:
        """Whose turns the next `count` are, of those that may go; they stand here no more. Looks at nobody twice."""
        taken: dict[_W, None] = {}
        kept: set[_W] = set()

        def goes(one: _W) -> bool:
            if one in taken or one in kept:
                return False
            if not may_go(one):
                kept.add(one)
                return False
            return True

        first_that_came, most_urgent = iter(self._priorities), self.by_urgency()
        while len(taken) < count:
            found = next(filter(goes, first_that_came if self._is_for_the_first else most_urgent), None)
            if found is None:
                break
            taken[found] = None
            self.serve()
        for one in taken:
            self.leave(one)
        return list(taken)

    @property
    def _is_for_the_first(self) -> bool:
        return (self._turns + 1) % PATIENCE_TURNS == 0
