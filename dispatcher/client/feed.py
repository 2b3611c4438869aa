"""A search of a topic as an asynchronous iterator. The search runs in a thread of its own, as far as somebody asks for more."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from dispatcher.adapters.kafka.loop import tell
from dispatcher.client.search import Search
from dispatcher.client.shared import forked
from dispatcher.core.messages.record import Record
from dispatcher.errors import DispatcherError

T = TypeVar("T")

# A search ends within `log.POLL_S`, unless it waits for a broker that is away: then its thread ends later, by itself.
END_S = 5.0

# What was passed over. Silent until a program gives it a handler.
LOG = logging.getLogger("dispatcher.client")
LOG.addHandler(logging.NullHandler())


class Feed(AsyncIterator[T], Generic[T]):
    """What `read` makes of the records that a search finds; records of which it raises DispatcherError are passed over with a warning.

    Belongs to the event loop on which it is read. A reader that is cancelled loses nothing: the next one gets what it would have got.
    Ends with `aclose`, with its search, or when nobody has it any more. Errors as `LogReader` has them.
    """

    def __init__(self, search: Callable[[], Search], read: Callable[[Record], T]) -> None:
        self._read = read
        self._run = _Run(search)
        self._next: asyncio.Future[Record | None] | None = None
        self._ended = False
        weakref.finalize(self, self._run.stop).atexit = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._run.refuse_elsewhere()
        while not self._ended:
            if self._next is None:
                self._next = self._run.ask()
            await asyncio.wait({self._next})
            asked, self._next = self._next, None
            if asked is None:
                raise DispatcherError("somebody else reads this iterator at the same time")
            try:
                record = asked.result()
            except DispatcherError:
                await self.aclose()
                raise
            if record is None:
                await self.aclose()
                break
            try:
                return self._read(record)
            except DispatcherError as error:
                LOG.warning("passed over: %s", error.message)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the search and wait until its connection is closed, at most `END_S`. May be repeated."""
        self._ended = True
        self._run.stop()
        if not self._run.was_forked:
            await asyncio.to_thread(self._run.join)


class _Run:
    """The thread of one search; knows nothing of the feed, so that the feed can be forgotten."""

    def __init__(self, search: Callable[[], Search]) -> None:
        self._make = search
        self._asked: SimpleQueue[asyncio.Future[Record | None] | None] = SimpleQueue()
        self._search: Search | None = None
        self._stopped = False
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    @property
    def was_forked(self) -> bool:
        """Whether this is a copy in a child process, where its thread is not."""
        return self._process != os.getpid()

    def refuse_elsewhere(self) -> None:
        """Raise DispatcherError in another process than the one that made this: nobody would ever answer."""
        if self.was_forked:
            raise forked()

    def ask(self) -> asyncio.Future[Record | None]:
        """Ask for the next record; None is the end."""
        future: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        if self._stopped:
            future.set_result(None)
            return future
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="dispatcher-feed", daemon=True)
            self._thread.start()
        self._asked.put(future)
        return future

    def stop(self) -> None:
        """End the thread, from any other."""
        self._stopped = True
        if (search := self._search) is not None:
            search.stop()
        self._asked.put(None)

    def join(self) -> None:
        """Wait for the end of the thread, which closes the search."""
        if self._thread is not None:
            self._thread.join(END_S)

    def _work(self) -> None:
        """Search as far as is asked for. The last answer is None or an error, and then whatever is asked still gets the same."""
        last: DispatcherError | None = None
        asked = self._asked.get()
        try:
            with self._make() as search:
                self._search = search
                found = iter(search)
                # Looked at after the search can be seen by `stop`: it reaches the search, or we see that it came.
                while asked is not None and not self._stopped:
                    record = next(found, None)
                    tell(asked, record)
                    asked = self._asked.get()
        except DispatcherError as error:
            last = error
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            last = DispatcherError(f"reading ended: {type(error).__name__}")
        while asked is not None:
            tell(asked, last)
            asked = self._asked.get()
