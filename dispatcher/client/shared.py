"""Work on the event loop that several wait for: whoever gives up does not take it from the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from dispatcher.adapters.kafka.loop import fill
from dispatcher.errors import DispatcherError

T = TypeVar("T")


class Shared(Generic[T]):
    """A coroutine that runs on its own."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(noted)

    async def result(self) -> T:
        """Await its result, or what it raised."""
        await asyncio.wait({self._task})
        if self._task.cancelled():
            raise closed()
        return self._task.result()

    def cancel(self) -> None:
        """End it; those who wait get an error."""
        self._task.cancel()


class Turns:
    """At most so many at once; the others wait in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[asyncio.Future[None], None] = {}  # in their order

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the length of a block."""
        await self._come()
        try:
            yield
        finally:
            self._pass_on()

    def close(self) -> None:
        """End the waiting: those who have no turn yet get an error."""
        for waiter in self._waiting:
            fill(waiter, closed())
        self._waiting.clear()

    async def _come(self) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiting.pop(waiter, None)
            if not waiter.cancelled() and waiter.exception() is None:
                self._pass_on()  # our turn had just come
            raise

    def _pass_on(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                del self._waiting[waiter]
                waiter.set_result(None)
                return
        self._free += 1


def closed() -> DispatcherError:
    """Say that the client was closed under somebody's hands."""
    return DispatcherError("the client was closed while this waited", "close it once nobody needs it any more")


def forked() -> DispatcherError:
    """Say that a client was taken along into a child process: its threads are not there."""
    return DispatcherError("this client was opened before the process was forked", "open one in each process, after the fork")


def noted(task: asyncio.Task[Any]) -> None:
    """Take note of a failure that perhaps nobody waits for any more."""
    if not task.cancelled():
        task.exception()
