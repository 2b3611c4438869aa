"""The way to one upstream: its circuit breaker, and how fast calls begin again behind that."""

from __future__ import annotations

from dispatcher.core.callees.breaker import Breaker, Policy, State
from dispatcher.core.callees.pace import Pace
from dispatcher.settings import UpstreamSettings


class Way:
    """Owned by the gate. Times are monotonic seconds."""

    __slots__ = ("breaker", "pace", "paces", "settings")

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        policy = Policy(
            settings.breaker_failures,
            settings.breaker_open_s,
            settings.breaker_rate,
            settings.breaker_window_s,
            settings.breaker_min_calls,
        )
        self.breaker = Breaker(policy) if settings.has_breaker else None
        self.pace = Pace()
        self.paces: dict[str | None, Pace] = {}  # by credential

    def pace_of(self, credential: str | None) -> Pace:
        """How fast calls with a credential begin again after a hint."""
        pace = self.paces.get(credential)
        if pace is None:
            pace = self.paces[credential] = Pace()
        return pace

    def free_at(self, now: float) -> float | None:
        """When the upstream takes a call; None: when its probe has ended."""
        at = now if self.breaker is None else self.breaker.free_at(now)
        return None if at is None else max(at, self.pace.free_at(now))

    def is_felt(self, now: float) -> bool:
        """Whether it keeps anybody, or has just done so."""
        return self.breaker is not None and (self.breaker.state is not State.CLOSED or self.pace.rate(now) is not None)
