"""What a callee says is left until its window ends: others may use the same key, and its limit may be lower than the configured one.

It only ever holds back. The word of the call that began last counts; what was let through behind that call is not in it yet.
"""

from __future__ import annotations


class Ceiling:
    """Owned by one meter. Times are monotonic seconds."""

    __slots__ = ("_left", "_mark", "_until", "taken")

    def __init__(self) -> None:
        self.taken = 0  # ever
        self._left = 0.0
        self._mark = 0
        self._until: float | None = None

    def free_at(self, amount: int, now: float) -> float:
        """When so much may be taken: `now` where it may."""
        if self._until is None or self._until <= now or amount <= self._left:
            return now
        return self._until

    def take(self, amount: int) -> int:
        """Take so much; returns the mark of the call that does."""
        self.taken += amount
        self._left -= amount
        return self.taken

    def give_back(self, amount: int, mark: int) -> None:
        """The call with that mark did not use it after all; less than 0: it used more. What a later call was told had nothing of that."""
        if amount < 0 or mark > self._mark:
            self._left += amount

    def hear(self, left: float, until: float, mark: int, now: float) -> None:
        """The call with that mark was told that so much is left until then."""
        if self._until is not None and self._until > now and mark < self._mark:
            return
        self._left, self._until, self._mark = left - (self.taken - mark), until, mark
