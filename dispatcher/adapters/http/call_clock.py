"""The clocks of one call: how long the callee may take over each part of its answer, and over all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dispatcher.adapters.http.failures import ambiguous, not_sent
from dispatcher.adapters.http.target import Target
from dispatcher.core.messages.call import Ambiguous, NotSent


class CallClock:
    """Entered for one call, in its task; cuts the call off when a time is over, which then leaves as TimeoutError.

    A transport tells how far the call has come. There is one timer, set to whatever ends first: the whole call (`total_s`, seconds), or the
    part of it that goes on. The time to connect is the client library's affair: it tries several addresses in it. `sent` is called when the
    request goes out.
    """

    __slots__ = ("_end", "_kind", "_limit_s", "_loop", "_sent", "_target", "_timer", "_total_s")

    def __init__(self, target: Target, total_s: float, sent: Callable[[], None] | None = None) -> None:
        self._target = target
        self._sent = sent
        self._total_s = total_s
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + total_s
        self._timer = asyncio.timeout_at(self._end)
        self._kind = "connect_timeout"  # what it is called when the time is over now
        self._limit_s = total_s

    async def __aenter__(self) -> Self:
        await self._timer.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._timer.__aexit__(kind, error, trace)

    def sending(self) -> None:
        """There is a connection, and the request goes onto it now: from here on the callee may have seen it."""
        self._kind = "timeout"
        if self._sent is not None:
            self._sent()
        self._allow(self._target.first_byte_timeout_s, "first_byte_timeout")

    def receiving(self) -> None:
        """The head of the answer is here, or another part of its body."""
        self._allow(self._target.idle_timeout_s, "idle_timeout")

    @property
    def is_connecting(self) -> bool:
        """Whether nothing of the request can have left."""
        return self._kind == "connect_timeout"

    @property
    def has_run_out(self) -> bool:
        """Whether a time is over: other things end as TimeoutError too."""
        return self._timer.expired()

    def ran_out(self) -> NotSent | Ambiguous:
        """Say which time is over."""
        if self.is_connecting:
            return not_sent("connect_timeout", self._target.upstream)
        return ambiguous(self._kind, self._target.upstream, f"{round(self._limit_s, 3):g} s")

    def _allow(self, limit_s: float | None, kind: str) -> None:
        """Give the next part of the call so long, seconds; None: what is left of the whole."""
        end = self._end if limit_s is None else min(self._end, self._loop.time() + limit_s)
        is_whole = limit_s is None or end == self._end
        self._kind, self._limit_s = ("timeout", self._total_s) if is_whole or limit_s is None else (kind, limit_s)
        if end != self._timer.when():
            self._timer.reschedule(end)
