"""The synchronous twin of `Dispatcher`: the same names, for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatcher.client.call import Call, Request
from dispatcher.client.dispatcher import ACK_TIMEOUT_S, ASK_TIMEOUT_S, ASKS_MAX, Dispatcher
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.core.submission import Receipt
from dispatcher.errors import DispatcherError
from dispatcher.settings import Settings

T = TypeVar("T")


class SyncDispatcher:
    """A `Dispatcher` with an event loop of its own in a thread. May be used by many threads at once; a context manager.

    Arguments and errors as `Dispatcher` has them. A call that is interrupted (Ctrl-C) gives up what it waited for.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        config: Path | str | None = None,
        bootstrap_servers: str | None = None,
        reply_topic: str | None = None,
        reply_partition: int | None = None,
        asks_max: int = ASKS_MAX,
        ack_timeout_s: float = ACK_TIMEOUT_S,
    ) -> None:
        place: dict[str, Any] = {"reply_topic": reply_topic, "reply_partition": reply_partition}
        self._client = Dispatcher(
            settings, config=config, bootstrap_servers=bootstrap_servers, asks_max=asks_max, ack_timeout_s=ack_timeout_s, **place
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the loop; Kafka is reached when it is first needed."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dispatcher-loop", daemon=True)
        self._thread.start()
        self._run(self._client.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything; what other threads still wait for ends with an error. May be repeated."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            self._run(self._client.close())
            self._run(loop.shutdown_asyncgens())
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def submit(
        self,
        call: Call,
        *,
        key: str,
        request_id: str | None = None,
        deadline: timedelta | datetime | None = None,
        credential: str | None = None,
        timeout_s: float | None = None,
        attempts_max: int | None = None,
        metadata: Any = None,  # noqa: ANN401 - any JSON
    ) -> Receipt:
        """Put a request into the lane of `key` and return its receipt once Kafka has it; arguments as in `Request`."""
        return self._run(
            self._client.submit(
                call,
                key=key,
                request_id=request_id,
                deadline=deadline,
                credential=credential,
                timeout_s=timeout_s,
                attempts_max=attempts_max,
                metadata=metadata,
            )
        )

    def submit_many(self, requests: Iterable[Request]) -> Iterator[Receipt | DispatcherError]:
        """Submit requests in their order and yield, in that order, a receipt or the error for each."""
        return self._each(self._client.submit_many(requests))

    def ask(
        self,
        call: Call,
        *,
        key: str,
        timeout: float = ASK_TIMEOUT_S,
        request_id: str | None = None,
        deadline: timedelta | datetime | None = None,
        credential: str | None = None,
        timeout_s: float | None = None,
        attempts_max: int | None = None,
        metadata: Any = None,  # noqa: ANN401 - any JSON
    ) -> Reply:
        """Submit a request and return its reply, whatever its status, within `timeout` seconds."""
        return self._run(
            self._client.ask(
                call,
                key=key,
                timeout=timeout,
                request_id=request_id,
                deadline=deadline,
                credential=credential,
                timeout_s=timeout_s,
                attempts_max=attempts_max,
                metadata=metadata,
            )
        )

    def wait(self, receipt: Receipt | str, *, timeout: float | None = None) -> Reply:
        """Return the reply to a request that somebody submitted: by its receipt, its id, or its position `topic/partition/offset[@id]`."""
        return self._run(self._client.wait(receipt, timeout=timeout))

    def replies(
        self,
        start: str = "end",
        *,
        end: str | None = None,
        follow: bool = True,
        key: str | None = None,
        request_id: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Iterator[Reply]:
        """Read replies from a position (`start`, `end`, `@-1h`, an offset, …) on; without `follow` only up to the end that is there now."""
        return self._each(self._client.replies(start, end=end, follow=follow, key=key, request_id=request_id, partitions=partitions))

    def dead_letters(
        self,
        start: str = "start",
        *,
        end: str | None = None,
        follow: bool = False,
        key: str | None = None,
        request_id: str | None = None,
        reason: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Iterator[DeadLetter]:
        """Read dead letters; arguments as in `replies`, and the `reason` of the closed list."""
        return self._each(
            self._client.dead_letters(start, end=end, follow=follow, key=key, request_id=request_id, reason=reason, partitions=partitions)
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, in the caller's context, and give its result; an interrupt cancels it."""
        if self._loop is None:
            work.close()
            raise DispatcherError("this client is not open", "with SyncDispatcher(...) as d: …")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over what comes on the loop."""
        try:
            while True:
                try:
                    yield self._run(_next(found))
                except StopAsyncIteration:
                    return
        finally:
            if self._loop is not None:
                self._run(_end(found))


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)


async def _end(found: AsyncIterator[Any]) -> None:
    close = getattr(found, "aclose", None)
    if close is not None:
        await close()
