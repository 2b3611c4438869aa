"""One configured limit: how many calls may be open at once, and how many requests and tokens a window takes.

What of it is ours may change while it is used (`grant`), and may end (`until`). It is never more than what is configured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dispatcher.core.callees.bucket import Bucket
from dispatcher.core.callees.concurrency import Concurrency
from dispatcher.core.callees.lateness import Lateness
from dispatcher.core.callees.meter import CONCURRENCY, REQUESTS, TOKENS, Entry, Meter
from dispatcher.core.callees.restraint import Restraint
from dispatcher.core.callees.window import Window
from dispatcher.settings import LimitSettings


class Limit:
    """Owned by the gate's limiter. Times are monotonic seconds. `until`: nobody is let through from then on.

    `losses` counts how often something of it was taken away: what was let through before may be too much since. No call counts for more
    than what `wait_max_s` lets through.
    """

    __slots__ = ("_concurrency", "_lateness", "_meters", "_most_open", "_restraint", "losses", "of", "until")

    def __init__(self, of: LimitSettings, wait_max_s: float = 600.0) -> None:
        self.of = of
        self._concurrency = None if of.concurrency is None else Concurrency()
        self._most_open = of.concurrency or 0
        self.until = math.inf
        self.losses = 0
        self._restraint = Restraint(of.window_s)
        self._lateness = Lateness(of.slack_s)
        amounts = ((REQUESTS, of.requests), (TOKENS, of.tokens))
        self._meters = tuple(_meter(name, most, of, wait_max_s) for name, most in amounts if most is not None)

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it is ours: nobody is let through until that changes."""
        return any(not meter.ours for meter in self._meters) or (self._concurrency is not None and not self._most_open)

    def quantities(self) -> Iterator[tuple[str, int, float]]:
        """What is limited, how much there is of it, and how long what was used of it counts, seconds."""
        if self.of.concurrency is not None:
            yield CONCURRENCY, self.of.concurrency, 0.0
        for meter in self._meters:
            yield meter.dimension, meter.most, meter.span_s

    def used(self, dimension: str, now: float) -> int:
        """How much of it is in use, or was used in this window; what is held for a call that is about to begin counts."""
        if dimension == CONCURRENCY:
            return 0 if self._concurrency is None else self._concurrency.count(now)
        return sum(meter.used(now) for meter in self._meters if meter.dimension == dimension)

    def held(self, dimension: str) -> int:
        """How much of it is held for calls that were let through and are not made yet."""
        return sum(meter.held for meter in self._meters if meter.dimension == dimension)

    def grant(self, dimension: str, amount: int, now: float, spent: int = 0) -> None:
        """From now on so much of it is ours, of which others have `spent` so much: that counts as used for one window.

        Calls that are open beyond what is ours now are let end.
        """
        if dimension == CONCURRENCY and self.of.concurrency is not None:
            most = max(0, min(self.of.concurrency, amount))
            self.losses += most < self._most_open
            self._most_open = most
        for meter in self._meters:
            if meter.dimension == dimension:
                self.losses += meter.grant(amount, spent, now)

    def lend(self, until: float, now: float) -> None:
        """What is ours is ours until then. Once that was over, whatever was let through before may be too much."""
        self.losses += now >= self.until
        self.until = until

    def free_at(self, tokens: int, now: float) -> float | None:
        """When a call of so many tokens may be let through: `now` where it may; None where only somebody else's end can tell.

        Or, where it is more than what is ours of it, somebody else's share.
        """
        if now >= self.until:
            return None
        at = now
        if self._concurrency is not None:
            free_at = self._concurrency.free_at(self._open_max(now), now)
            if free_at is None:
                return None
            at = free_at
        for meter in self._meters:
            free_at = meter.free_at(tokens if meter.dimension == TOKENS else 1, self._capacity(meter, now), now)
            if free_at is None:
                return None
            at = max(at, free_at)
        return at

    def room(self, tokens: int, now: float) -> int:
        """How many calls of so many tokens may be let through now."""
        if self.free_at(tokens, now) != now:
            return 0
        rooms = [meter.room(tokens if meter.dimension == TOKENS else 1, self._capacity(meter, now), now) for meter in self._meters]
        if self._concurrency is not None:
            rooms.append(self._open_max(now) - self._concurrency.count(now))
        return min(rooms)

    def lacks(self, tokens: int) -> bool:
        """Whether a call of so many tokens could not be let through however free it were: too little of it is ours."""
        return any(meter.lacks(tokens if meter.dimension == TOKENS else 1) for meter in self._meters) or self.is_closed

    def may_begin(self, entries: list[Entry], losses: int, now: float) -> bool:
        """Whether a call that was let through after so many losses may still be made now."""
        if now >= self.until:
            return False
        if losses == self.losses:
            return True
        if self._concurrency is not None and self._concurrency.count(now) > self._most_open:
            return False
        return all(entry.meter.may_begin(entry, now) for entry in entries)

    def hold(self, tokens: int) -> list[Entry]:
        """Let a call through; what it has of the meters."""
        if self._concurrency is not None:
            self._concurrency.enter()
        return [meter.hold(tokens if meter.dimension == TOKENS else 1) for meter in self._meters]

    def begin(self, entry: Entry, now: float) -> None:
        """Its call is made now."""
        entry.meter.begin(entry, self._capacity(entry.meter, now), now)

    def settle(self, entry: Entry, amount: int, now: float) -> None:
        """Its call has ended, and has used so much."""
        entry.meter.settle(entry, amount, self._capacity(entry.meter, now), now)

    def leave(self, now: float, *, is_gone: bool) -> None:
        """A call has ended; whether its callee is known to have let go of it."""
        if self._concurrency is not None:
            self._concurrency.leave(None if is_gone else now + self.of.slack_s)

    def late_by(self, took_s: float) -> float:
        """So many seconds may a call that took so long have come later to its callee than others do."""
        return self._lateness.late_by(took_s)

    def refuse(self, began: float, now: float) -> None:
        """The callee said that it was too much, to a call that began then."""
        self._restraint.refuse(began, now)

    def _capacity(self, meter: Meter, now: float) -> int:
        return meter.capacity(self._restraint.factor(now))

    def _open_max(self, now: float) -> int:
        return max(min(1, self._most_open), int(self._most_open * self._restraint.factor(now) + 1e-9))


def _meter(dimension: str, most: int, of: LimitSettings, wait_max_s: float) -> Meter:
    assert of.window_s is not None
    span_s = of.window_s + of.slack_s
    counter = Bucket(of.window_s, of.slack_s) if of.counting == "bucket" else Window(span_s)
    return Meter(dimension, most, of.window_s, span_s, counter, wait_max_s)
