"""The HTTP engine: a call in, a typed result out. It never raises, never repeats a request and keeps no state between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dispatcher.adapters.http.call_clock import CallClock
from dispatcher.adapters.http.decoding import decoded
from dispatcher.adapters.http.failures import ambiguous, not_sent
from dispatcher.adapters.http.target import Target, make_target
from dispatcher.core.messages.call import Answered, Call, CallResult, Withheld
from dispatcher.settings import Settings


class Transport(Protocol):
    """One client library behind one exchange.

    It connects only to addresses that the target allows, sends the request at most once, follows nothing, remembers no cookie,
    and gives a typed result. What it raises nevertheless counts as ambiguous, once it has told the clock that it sends. Cancelled, it
    closes the connection at once.
    """

    async def exchange(self, target: Target, call: Call, path: str, headers: list[tuple[str, str]], clock: CallClock) -> CallResult:
        """Send the request and read the answer, up to the target's limit; `path` and `headers` are whole and checked.

        The clock is told before the first byte is sent, when the head of the answer is there, and after each part of its body.
        """

    async def close(self) -> None:
        """Close every connection."""


class HttpEngine:
    """All calls of this process. Lives on the event loop that made it; connections in use never exceed the calls in flight."""

    def __init__(self, targets: Mapping[str, Target], transport: Transport) -> None:
        self._targets = targets
        self._transport = transport

    async def call(self, call: Call, sent: Callable[[], None] | None = None) -> CallResult:
        """Make the call within `call.timeout_s` seconds. Raises nothing but CancelledError; then, too, its connection is closed.

        `sent` is called when there is a connection, and the request goes onto it; unless it raises Withheld, which is raised then.
        """
        target = self._targets.get(call.upstream)
        if target is None:
            return not_sent("invalid_request", call.upstream, "it is not configured")
        path, headers = target.path(call), target.headers(call)
        if path is None or headers is None:
            return not_sent("invalid_request", call.upstream)
        clock = CallClock(target, call.timeout_s, sent)
        try:
            async with clock:
                result = await self._transport.exchange(target, call, path, headers, clock)
                return target.masked(call, decoded(result, target.response_max_bytes) if isinstance(result, Answered) else result)
        except Withheld:
            raise
        except Exception:  # noqa: BLE001 - a fault of a client library must not stop a lane
            if clock.has_run_out:
                return clock.ran_out()
            return not_sent("connect", call.upstream) if clock.is_connecting else ambiguous("protocol", call.upstream)

    async def close(self) -> None:
        """Close every connection; calls in flight end as ambiguous."""
        await self._transport.close()


def open_engine(settings: Settings, secrets: Mapping[str, str]) -> HttpEngine:
    """Make the engine that `worker.http_engine` names, inside a running event loop. Raises ConfigError for an unusable upstream.

    `secrets` are the resolved values of the credentials, by alias.
    """
    targets = {name: make_target(name, settings, secrets) for name in settings.upstreams}
    return HttpEngine(targets, _transport(settings, targets))


def _transport(settings: Settings, targets: Mapping[str, Target]) -> Transport:
    """Import and make the chosen transport: the library of the other is not even loaded."""
    most = settings.worker.inflight_max
    if settings.worker.http_engine == "httpx":
        from dispatcher.adapters.http.transport_httpx import HttpxTransport  # noqa: PLC0415 - see above

        return HttpxTransport(targets.values(), most)
    from dispatcher.adapters.http.transport_aiohttp import AiohttpTransport  # noqa: PLC0415 - see above

    return AiohttpTransport(targets.values(), most)
