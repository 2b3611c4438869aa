"""Those who stood in a line before the gate and were moved aside: who is away, and who is on his way back."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

from dispatcher.core.priority_line import PriorityLine

_W = TypeVar("_W", bound=Hashable)


class Aside(Generic[_W]):
    """Owned by one line. Each with the tokens of his call; the most urgent come back first, of equals the first that went.

    The others come by themselves, in a while.
    """

    __slots__ = ("_away", "_tokens", "coming", "tokens")

    def __init__(self) -> None:
        self._away: PriorityLine[_W] = PriorityLine()
        self._tokens: dict[_W, int] = {}  # of those who are away
        self.coming: dict[_W, int] = {}
        self.tokens = 0  # of all of them

    def __len__(self) -> int:
        return len(self._tokens) + len(self.coming)

    @property
    def is_away(self) -> bool:
        """Whether anybody is, and not on his way."""
        return bool(self._tokens)

    @property
    def first_tokens(self) -> int:
        """What the call of the next one may take."""
        first = self.next(1)
        return self._tokens[first[0]] if first else next(iter(self.coming.values()), 0)

    def next(self, count: int) -> list[_W]:
        """So many of those who are away, who come next."""
        return list(islice(self._away.by_urgency(), count))

    def go(self, waiter: _W, tokens: int, priority: int) -> None:
        """He is away."""
        self._away.join(waiter, priority)
        self._tokens[waiter] = tokens
        self.tokens += tokens

    def come(self, waiter: _W) -> None:
        """He is on his way back."""
        if waiter in self._tokens:
            self.coming[waiter] = self._left(waiter)

    def forget(self, waiter: _W) -> bool:
        """He is here, or will not come; whether he was on his way."""
        was_coming = waiter in self.coming
        self.tokens -= self.coming.pop(waiter) if was_coming else self._left(waiter)
        return was_coming

    def _left(self, waiter: _W) -> int:
        self._away.leave(waiter)
        return self._tokens.pop(waiter)
