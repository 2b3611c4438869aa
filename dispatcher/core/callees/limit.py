"""One configured limit: how many calls may be open at once, and how many requests and tokens a window takes.

Our part of it may be scaled while it is used: `share` says which part is this worker's. It is never more than what is configured.
"""

from __future__ import annotations

from dispatcher.core.callees.bucket import Bucket
from dispatcher.core.callees.concurrency import Concurrency
from dispatcher.core.callees.lateness import Lateness
from dispatcher.core.callees.meter import REQUESTS, TOKENS, Entry, Meter
from dispatcher.core.callees.restraint import Restraint
from dispatcher.core.callees.window import Window
from dispatcher.settings import LimitSettings


class Limit:
    """Owned by the gate's limiter. Times are monotonic seconds."""

    __slots__ = ("_concurrency", "_lateness", "_meters", "_most_open", "_part", "_restraint", "of")

    def __init__(self, of: LimitSettings) -> None:
        self.of = of
        self._concurrency = None if of.concurrency is None else Concurrency()
        self._most_open = of.concurrency or 0
        self._part = 1.0
        self._restraint = Restraint(of.window_s)
        self._lateness = Lateness(of.slack_s)
        amounts = ((REQUESTS, of.requests), (TOKENS, of.tokens))
        self._meters = tuple(_meter(name, most, of) for name, most in amounts if most is not None)

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it is ours: nobody is let through until that changes."""
        nothing = any(not meter.capacity(self._part, 1.0) for meter in self._meters)
        return nothing or (self._concurrency is not None and not self._most_open)

    def share(self, part: float, concurrency: int | None, now: float, *, starts_empty: bool = True) -> None:
        """From now on this `part` (0 to 1) of requests and tokens is ours, and so many calls at once (None: the part of them).

        What is gained `starts_empty`: it counts as used for one window, since whoever had it may have used it. Calls that are open beyond
        what is ours now are let end.
        """
        part = min(1.0, max(0.0, part))
        gained = [meter.capacity(part, 1.0) - meter.capacity(self._part, 1.0) for meter in self._meters]
        self._part = part
        if self.of.concurrency is not None:
            self._most_open = min(self.of.concurrency, int(self.of.concurrency * part) if concurrency is None else max(0, concurrency))
        for meter, more in zip(self._meters, gained, strict=True):
            if starts_empty and more > 0:
                meter.gain(more, self._capacity(meter, now), now)

    def free_at(self, tokens: int, now: float) -> float | None:
        """When a call of so many tokens may be let through: `now` where it may; None where only somebody else's end can tell."""
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
        return meter.capacity(self._part, self._restraint.factor(now))

    def _open_max(self, now: float) -> int:
        return max(min(1, self._most_open), int(self._most_open * self._restraint.factor(now) + 1e-9))


def _meter(dimension: str, most: int, of: LimitSettings) -> Meter:
    assert of.window_s is not None
    counter = Bucket(of.window_s) if of.counting == "bucket" else Window(of.window_s + of.slack_s)
    return Meter(dimension, most, of.window_s, counter)
