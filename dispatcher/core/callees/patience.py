"""How long one request is tried: as it says itself, as its upstream is configured, and as long as anything may wait."""

from __future__ import annotations

from dispatcher.core.callees.verdict import Patience
from dispatcher.core.instant import Instant
from dispatcher.core.messages.request import Request
from dispatcher.settings import Settings


def patience(request: Request, settings: Settings, instant: Instant) -> Patience:
    """Its patience, on the monotonic clock that `instant` reads."""
    upstream = settings.upstreams[request.call.upstream]
    until = None if request.deadline is None else instant.mono + request.deadline - instant.wall
    wait_max_s = settings.worker.wait_max_s
    return Patience(request.attempts_max, upstream.backoff_base_s, upstream.backoff_max_s, wait_max_s, until, request.repeats)
