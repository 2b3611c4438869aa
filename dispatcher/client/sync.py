"""The synchronous twin of `Dispatcher`: the same names, for programs without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatcher.client.call import AfterFailure, Call, Repeat, Request
from dispatcher.client.dispatcher import ACK_TIMEOUT_S, ASK_TIMEOUT_S, ASKS_MAX, CANCEL_TIMEOUT_S, Dispatcher
from dispatcher.client.feed import Feed
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.client.shared import closed, forked
from dispatcher.client.submitter import OPEN_MAX
from dispatcher.core.messages.submission import Receipt
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
        class_: str | None = None,
    ) -> None:
        place: dict[str, Any] = {"reply_topic": reply_topic, "reply_partition": reply_partition, "class_": class_}
        self._client = Dispatcher(
            settings, config=config, bootstrap_servers=bootstrap_servers, asks_max=asks_max, ack_timeout_s=ack_timeout_s, **place
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        # What callers wait for. Whoever begins something adds it and then looks whether the loop has ended; `close` ends the loop and then
        # looks what is here: one of the two sees what the loop has never come to.
        self._open: dict[Future[Any], Coroutine[Any, Any, Any]] = {}

    def __enter__(self) -> Self:
        """Be ready, as `Dispatcher` has it."""
        self._loop, self._process = asyncio.new_event_loop(), os.getpid()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="dispatcher-loop", daemon=True)
        self._thread.start()
        self._run(self._client.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything; what other threads still wait for ends with an error. May be repeated."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._process != os.getpid():
            return  # in a child the threads are not there; what it shares with its parent is the parent's
        try:
            try:
                self._run(self._client.close())
            finally:
                self._run(_finish())  # of a close that was interrupted, too
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            for future in list(self._open):
                self._end(future)
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
        after_failure: AfterFailure | None = None,
        repeat: Repeat | None = None,
        priority: int | None = None,
        agent: str | None = None,
        class_: str | None = None,
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
                after_failure=after_failure,
                repeat=repeat,
                priority=priority,
                agent=agent,
                class_=class_,
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
                    yield self._outcome(waiting.popleft())
            while waiting:
                yield self._outcome(waiting.popleft())
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
        after_failure: AfterFailure | None = None,
        repeat: Repeat | None = None,
        priority: int | None = None,
        agent: str | None = None,
        class_: str | None = None,
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
                after_failure=after_failure,
                repeat=repeat,
                priority=priority,
                agent=agent,
                class_=class_,
            )
        )

    def wait(self, receipt: Receipt | str, *, timeout: float | None = None) -> Reply:
        """Return the reply to a request that somebody submitted: by its receipt, its id, or its position `topic/partition/offset[@id]`."""
        return self._run(self._client.wait(receipt, timeout=timeout))

    def cancel(self, receipt: Receipt | str, *, reason: str = "", timeout: float = CANCEL_TIMEOUT_S) -> Reply:
        """Have a request ended, by its receipt, its id or its position, and return its reply: `cancelled`, or how it had ended before."""
        return self._run(self._client.cancel(receipt, reason=reason, timeout=timeout))

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
        return self._result(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, in the caller's context (`serving`)."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            work.close()
            raise DispatcherError("this client is not open", "with SyncDispatcher(...) as d: …")
        if self._process != os.getpid():
            work.close()
            raise forked()
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop was closed just now
            work.close()
            raise closed() from None
        self._open[future] = work
        future.add_done_callback(self._forget)
        if not thread.is_alive():
            self._end(future)
        return future

    def _result(self, future: Future[T]) -> T:
        """Wait for what was begun. An interrupt cancels it; what a closed client cannot finish ends with an error."""
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            future.cancel()
            raise

    def _end(self, future: Future[Any]) -> None:
        """End what the loop, which is over, has never come to."""
        work = self._open.get(future)
        if work is not None and future.cancel():
            work.close()

    def _forget(self, future: Future[Any]) -> None:
        self._open.pop(future, None)

    def _outcome(self, submitted: Future[Receipt]) -> Receipt | DispatcherError:
        try:
            return self._result(submitted)
        except DispatcherError as error:
            return error

    def _each(self, feed: Feed[T]) -> Iterator[T]:
        """Iterate over what comes on the loop."""
        try:
            while (found := self._run(_next(feed))) is not None:
                yield found[0]
        finally:
            with contextlib.suppress(DispatcherError):  # the client was closed, which has ended the feed
                self._run(feed.aclose())


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop to its end, and what was begun after `_finish` had looked."""
    loop.run_forever()
    loop.run_until_complete(_cancel())


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _next(feed: Feed[T]) -> tuple[T] | None:
    """Get the next one; None is the end, since a StopAsyncIteration may not leave a task."""
    async for found in feed:
        return (found,)
    return None


async def _cancel() -> None:
    """End what is still there."""
    await asyncio.sleep(0)  # what was begun becomes a task
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=END_S)


async def _finish() -> None:
    """Let what others have begun come to its end: a closed client answers all of it."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=END_S)
        for task in late:
            task.cancel()
