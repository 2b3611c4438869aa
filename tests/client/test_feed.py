"""A search as an asynchronous iterator: what a search that blocks as it likes shows of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Self, cast

import pytest

from dispatcher import BrokerError, DispatcherError
from dispatcher.client.feed import Feed
from dispatcher.client.search import Search
from dispatcher.core.messages.record import Record
from tests.waiting import eventually, eventually_async


class Topic:
    """Stands for a search: gives what is put, blocks in between, and knows whether it was stopped and closed."""

    def __init__(self, *contents: bytes | Exception | None) -> None:
        self.contents: SimpleQueue[bytes | Exception | None] = SimpleQueue()
        for content in contents:
            self.contents.put(content)
        self.asked = 0
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[Record]:
        self.asked += 1
        while (content := self.contents.get()) is not None:
            if isinstance(content, Exception):
                raise content
            yield Record("t", 0, self.asked, b"k", content)
            self.asked += 1

    def stop(self) -> None:
        """End the iteration, as a reader does."""
        self.contents.put(None)


def feed(topic: Topic) -> Feed[bytes]:
    """Read the values of a topic."""

    def value(record: Record) -> bytes:
        if record.value == b"junk":
            raise DispatcherError("no reply")
        return record.value or b""

    return Feed(lambda: cast("Search", topic), value)


async def test_it_gives_what_is_found_and_ends() -> None:
    """In order; the search is closed at its end, and the end stays."""
    topic = Topic(b"a", b"b", None)
    found = feed(topic)
    assert [value async for value in found] == [b"a", b"b"]
    assert topic.closed
    assert [value async for value in found] == []


async def test_nothing_is_read_before_it_is_asked_for() -> None:
    """A slow reader is not buried."""
    topic = Topic(b"a", b"b", b"c")
    async with feed(topic) as found:
        assert await anext(found) == b"a"
        assert topic.asked == 1
    assert topic.closed


async def test_a_cancelled_reader_loses_nothing() -> None:
    """Whoever gave up while it waited gets, the next time, what came meanwhile."""
    topic = Topic()
    async with feed(topic) as found:
        waiting = asyncio.create_task(anext(found))
        await eventually_async(lambda: topic.asked == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        topic.contents.put(b"a")
        assert await anext(found) == b"a"


async def test_closing_ends_a_search_that_waits() -> None:
    """Its thread and its connection go, and whoever waits is told that nothing comes."""
    topic = Topic()
    found = feed(topic)
    waiting = asyncio.create_task(anext(found, b"nothing"))
    await eventually_async(lambda: topic.asked == 1)
    await found.aclose()
    assert topic.closed
    assert await waiting == b"nothing"
    assert "dispatcher-feed" not in {thread.name for thread in threading.enumerate() if thread.is_alive()}
    assert await anext(found, b"nothing") == b"nothing"


async def test_what_was_forgotten_ends_too() -> None:
    """A loop that was left by `break` leaves no thread behind."""
    topic = Topic(b"a")
    async for _ in feed(topic):
        break
    gc.collect()
    await eventually_async(lambda: topic.closed)


@pytest.mark.parametrize(("failure", "kind"), [(BrokerError("gone"), BrokerError), (RuntimeError("bug"), DispatcherError)])
async def test_a_failure_reaches_the_reader(failure: Exception, kind: type[Exception]) -> None:
    """Errors of ours as they are, others as one sentence; then it is over."""
    topic = Topic(b"a", failure)
    found = feed(topic)
    assert await anext(found) == b"a"
    with pytest.raises(kind):
        await anext(found)
    assert topic.closed
    assert await anext(found, None) is None


async def test_what_cannot_be_read_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """One record that somebody else wrote there does not end the reading."""
    with caplog.at_level(logging.WARNING, "dispatcher.client"):
        assert [value async for value in feed(Topic(b"junk", b"b", None))] == [b"b"]
    assert "passed over: no reply" in caplog.text


def test_a_loop_that_is_gone_is_no_crash() -> None:
    """A thread that finds something for a loop that was closed ends quietly."""
    topic = Topic()

    async def begin() -> Feed[bytes]:
        found = feed(topic)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(found), 0.01)
        return found

    found = asyncio.run(begin())
    topic.contents.put(b"late")
    del found
    gc.collect()
    eventually(lambda: topic.closed)
    eventually(lambda: "dispatcher-feed" not in {thread.name for thread in threading.enumerate()})
