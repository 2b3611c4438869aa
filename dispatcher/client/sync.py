"""The synchronous twin of `Dispatcher`: the same names, for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatcher.client.call import Call, Request
from dispatcher.client.dispatcher import ACK_TIMEOUT_S, ASK_TIMEOUT_S, ASKS_MAX, Dispatcher
from dispatcher.client.feed import Feed
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.client.submitter import OPEN_MAX
from dispatcher.core.submission import Receipt
from dispatcher.errors import DispatcherError
from dispatcher.settings import Settings

T = TypeVar("T")

# After the client is closed nothing waits for Kafka any more.
END_S = 5.0


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
        """Be ready, as `Dispatcher` has it."""
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
            try:
                self._run(self._client.close())
            finally:
                self._run(_finish())  # of a close that was interrupted, too
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
        """Submit requests in their order and yield, in that order, a receipt or the error for each; at most `OPEN_MAX` are open."""
        waiting: deque[Future[Receipt]] = deque()
        try:
            # Taken from `requests` in the caller's thread, where it may block as it likes.
            for request in requests:
                waiting.append(self._begin(self._client.submit(request.call, **request.options)))
                while waiting and (len(waiting) >= OPEN_MAX or waiting[0].done()):
                    yield _outcome(waiting.popleft())
            while waiting:
                yield _outcome(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

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
        query: dict[str, Any] = {"end": end, "follow": follow, "key": key, "request_id": request_id, "partitions": partitions}
        return self._each(self._run(_made(lambda: self._client.replies(start, **query))))

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
        query: dict[str, Any] = {"end": end, "follow": follow, "key": key, "request_id": request_id, "partitions": partitions}
        return self._each(self._run(_made(lambda: self._client.dead_letters(start, reason=reason, **query))))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and give its result; an interrupt cancels it."""
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, in the caller's context (`serving`)."""
        if self._loop is None:
            work.close()
            raise DispatcherError("this client is not open", "with SyncDispatcher(...) as d: …")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _each(self, feed: Feed[T]) -> Iterator[T]:
        """Iterate over what comes on the loop."""
        try:
            while (found := self._run(_next(feed))) is not None:
                yield found[0]
        finally:
            if self._loop is not None:
                self._run(feed.aclose())


def _outcome(submitted: Future[Receipt]) -> Receipt | DispatcherError:
    try:
        return submitted.result()
    except DispatcherError as error:
        return error


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _next(feed: Feed[T]) -> tuple[T] | None:
    """Get the next one; None is the end, since a StopAsyncIteration may not leave a task."""
    async for found in feed:
        return (found,)
    return None


async def _finish() -> None:
    """Let what others have begun come to its end: a closed client answers all of it."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=END_S)
        for task in late:
            task.cancel()
