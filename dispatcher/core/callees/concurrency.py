"""How many calls are open at once."""

from __future__ import annotations

from collections import deque


class Concurrency:
    """Owned by one limit. A call of which nobody knows whether its callee has let go of it may count on for a moment."""

    __slots__ = ("_open", "_until")

    def __init__(self) -> None:
        self._open = 0
        self._until: deque[float] = deque()  # of those that count on, in order

    def count(self, now: float) -> int:
        """How many are open, or count on."""
        while self._until and self._until[0] <= now:
            self._until.popleft()
        return self._open + len(self._until)

    def free_at(self, most: int, now: float) -> float | None:
        """When one more may be open beside those that are: `now` where it may; None: when one of them has ended."""
        over = self.count(now) + 1 - most
        if over <= 0:
            return now
        return self._until[over - 1] if over <= len(self._until) else None

    def enter(self) -> None:
        """A call is let through."""
        self._open += 1

    def leave(self, until: float | None = None) -> None:
        """It has ended; it counts on until then."""
        self._open -= 1
        if until is not None:
            self._until.append(until)
