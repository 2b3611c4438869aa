"""A line before the gate: those who wait for calls to one upstream, with the same credential and under the same limits.

Whose turn it is may lack one of its limits, while others would take what it needs of the next one, again and again: a call of many tokens
beside those of few, or one under two limits that are never free at the same time. So it lays hands (`claims`) on the limit that keeps it
longest, and then on the next one, and those who come behind it leave these alone. It lets go of the others where the one that keeps it
will do so for longer than a window: they are not idle for an hour since a model's limit of the day is used up.

The most urgent goes first, of equals the first that came; each tenth turn is that of the first that came of all, so that nobody waits for
ever (`PriorityLine`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dispatcher.core.callees.aside import Aside
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.pace import Pace
from dispatcher.core.callees.way import Way
from dispatcher.core.messages.request import PRIORITY_USUAL
from dispatcher.core.priority_line import PriorityLine

_W = TypeVar("_W", bound=Hashable)
# Why a call may not begin.
BREAKER, RETRY_AFTER, LIMIT = "breaker", "retry_after", "limit"
# How many of the last turns say how soon the next ones come; and the longest time between two that counts.
TURNS, TURN_MAX_S = 8, 60.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A call may not begin. `until`, monotonic seconds: when that ends, None where it is not known."""

    why: str
    until: float | None


class _Place(NamedTuple):
    """Of one who stands in line: the number under which it came, and what its call may take."""

    number: int
    tokens: int
    priority: int


class Line(Generic[_W]):
    """Owned by the gate. Times are monotonic seconds."""

    __slots__ = ("_came", "_last", "_order", "_turn_s", "_waiting", "aside", "claims", "limits", "pace", "tokens", "way")

    def __init__(self, way: Way, pace: Pace, limits: tuple[Limit, ...]) -> None:
        self.way = way
        self.pace = pace
        self.limits = limits
        self.aside: Aside[_W] = Aside()
        self.claims: set[Limit] = set()
        self.tokens = 0  # of all who wait
        self._waiting: dict[_W, _Place] = {}
        self._order: PriorityLine[_W] = PriorityLine()
        self._came = 0
        self._last: float | None = None  # when the last turn was
        self._turn_s = 0.0  # from one to the next

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> _W:
        """Who is next."""
        return self._order.first

    @property
    def first_tokens(self) -> int:
        """What the call of who is next may take."""
        return self._waiting[self.first].tokens

    def priority_of(self, waiter: _W) -> int:
        """How urgent somebody is who stands here."""
        return self._waiting[waiter].priority

    def join(self, waiter: _W, tokens: int, priority: int = PRIORITY_USUAL) -> None:
        """Stand at the end of those that are as urgent."""
        self._came += 1
        self._waiting[waiter] = _Place(self._came, tokens, priority)
        self._order.join(waiter, priority)
        self.tokens += tokens

    def leave(self, waiter: _W) -> None:
        """Stand here no more."""
        self.tokens -= self._waiting.pop(waiter).tokens
        self._order.leave(waiter)
        self.claims.clear()

    def put_aside(self, waiter: _W) -> None:
        """Wait elsewhere, and no more here."""
        _, tokens, priority = self._waiting[waiter]
        self.leave(waiter)
        self.aside.go(waiter, tokens, priority)

    def serve(self) -> None:
        """Whoever is `first` has its turn."""
        self._order.serve()

    def turn(self, now: float) -> None:
        """A call of this line begins."""
        if self._last is not None and self._waiting:
            self._turn_s += (min(now - self._last, TURN_MAX_S) - self._turn_s) / TURNS
        self._last = now

    def stop(self, tokens: int, now: float) -> Stop | None:
        """What keeps a call of so many tokens, whoever came before it."""
        if (at := self.pace.free_at(now)) > now:
            return Stop(RETRY_AFTER, at)
        if (free_at := self.way.free_at(now)) is None or free_at > now:
            return Stop(BREAKER, free_at)
        for limit in self.limits:
            if (free_at := limit.free_at(tokens, now)) is None or free_at > now:
                return Stop(LIMIT, free_at)
        return None

    def room(self, now: float) -> int:
        """How many of those who were moved aside could begin now, as far as limits know."""
        tokens = self.aside.first_tokens
        return 0 if self.stop(tokens, now) is not None else min(limit.room(tokens, now) for limit in self.limits)

    def free_again_at(self, now: float) -> float | None:
        """When one of those who were moved aside may begin, if that is known and later than now."""
        stop = self.stop(self.aside.first_tokens, now)
        return None if stop is None else stop.until

    def stands(self, waiter: _W, now: float) -> Stop:
        """What keeps somebody who stands here: a limit until it is about its turn, as turns come of late."""
        number, tokens, _ = self._waiting[waiter]
        stop = self.stop(tokens, now) or Stop(self.keeps(now), None)
        if stop.why != LIMIT or any(limit.lacks(tokens) for limit in self.limits):
            return stop
        # Of those who came before some have left: who is parked stands here no more.
        first, equals, more_urgent = self._order.beside(waiter)
        before = min(number - self._waiting[first].number, equals - 1) + more_urgent
        return Stop(LIMIT, max(stop.until or now, now + before * self._turn_s))

    def keeps(self, now: float) -> str:
        """What those wait for whom nothing stops at this moment, but others who came before them."""
        if self.way.is_felt(now):
            return BREAKER
        return LIMIT if self.limits else RETRY_AFTER

    def due(self, now: float) -> float | None:
        """When its first may begin, as far as can be told now: `now` where it may; None where somebody else's end has to tell."""
        at = self.way.free_at(now)
        at = None if at is None else max(at, self.pace.free_at(now))
        if at is None or at > now:
            self.claims.clear()
            return at
        return self._due_by_limits(now)

    def _due_by_limits(self, now: float) -> float | None:
        tokens = self.first_tokens
        due: float | None = now
        longest: Limit | None = None
        for limit in self.limits:
            at = limit.free_at(tokens, now)
            if at is None:
                due, longest = None, limit
                break
            if due is not None and at > due:
                due, longest = at, limit
        if longest is None:
            return now
        patience_s = max(limit.of.window_s or 0.0 for limit in self.limits)
        if longest.lacks(tokens) or (due is not None and due - now > patience_s):
            self.claims.clear()
        if not longest.lacks(tokens):
            self.claims.add(longest)
        return due
