"""A line in which the more urgent go first, and nobody waits for ever."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from dispatcher.core.callees.line import PATIENCE_TURNS
from dispatcher.core.messages.request import PRIORITY_MAX

_W = TypeVar("_W", bound=Hashable)


class PriorityLine(Generic[_W]):
    """Owned by `Turns`. The most urgent goes first; of equals the first that came, so that lanes of one priority go round robin.

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

        first_that_came, most_urgent = iter(self._priorities), self._by_urgency()
        while len(taken) < count:
            is_for_the_first = (self._turns + 1) % PATIENCE_TURNS == 0
            found = next(filter(goes, first_that_came if is_for_the_first else most_urgent), None)
            if found is None:
                break
            taken[found] = None
            self._turns += 1
        for one in taken:
            self.leave(one)
        return list(taken)

    def _by_urgency(self) -> Iterator[_W]:
        return (one for line in reversed(self._by_priority) for one in line)
