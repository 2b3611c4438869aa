"""How many search at once, told by searches that last as long as a test says; what they find is in e2e."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import TopicPartition

from dispatcher import DispatcherError
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.client import lookback as lookback_module
from dispatcher.client import parked, search
from dispatcher.client.lookback import SEARCHES_MAX, Lookback, Looked
from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.sought import Sought
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.settings import Settings
from tests.waiting import eventually_async

SETTINGS = Settings()
WAITERS = 3 * SEARCHES_MAX


class Search:
    """Stands for a search: finds nothing, once the gate is open."""

    gate: threading.Event
    open: set[Search]
    most_open: int

    def __init__(self, *_given: Any, **_named: Any) -> None:
        self._stopped = False

    def __enter__(self) -> Self:
        Search.open.add(self)
        Search.most_open = max(Search.most_open, len(Search.open))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        Search.open.discard(self)

    def __iter__(self) -> Iterator[Record]:
        while not self._stopped and not Search.gate.wait(0.01):
            pass
        return iter(())

    def stop(self) -> None:
        """End."""
        self._stopped = True


PARKED = {3, 7}


class Nobody:
    """Stands for the consumer that is asked for positions: the group has settled everything up to 10, and 12."""

    made: list[Nobody]

    def __init__(self, *_given: Any, **_named: Any) -> None:
        self.threads: set[str] = set()
        self.closed = False
        Nobody.made.append(self)

    def committed(self, asked: list[Any], timeout: float) -> list[Any]:
        """Answer."""
        assert timeout > 0
        self.threads.add(threading.current_thread().name)
        note = CommitNote(bytes(16), 1, 1, 10, ((12, 13),)).encode()
        return [TopicPartition(part.topic, part.partition, 10, note) for part in asked]

    def close(self) -> None:
        """Be closed."""
        self.closed = True


@pytest.fixture
async def unclosed(monkeypatch: pytest.MonkeyPatch) -> Lookback:
    """Give one."""
    Search.gate, Search.open, Search.most_open, Nobody.made = threading.Event(), set(), 0, []
    monkeypatch.setattr(search, "replies", Search)
    monkeypatch.setattr(clients, "consumer", Nobody)
    monkeypatch.setattr(lookback_module, "connect", lambda *_: None)
    facts = TopicFacts(SETTINGS.topics.requests, bytes(16), 3, 1 << 20)
    monkeypatch.setattr(lookback_module, "facts_of", lambda *_: {facts.name: facts})
    entries = {offset: Entry(offset, b"doc:1", 0, 1, 0.0, "backoff") for offset in PARKED}
    monkeypatch.setattr(parked, "index", lambda *_: {0: entries})
    return Lookback(SETTINGS)


@pytest.fixture
async def lookback(unclosed: Lookback) -> AsyncIterator[Lookback]:
    """Give one, and end it."""
    yield unclosed
    await unclosed.close()


def begin(by: Lookback, offset: int) -> asyncio.Task[Looked]:
    """Search for the reply to a request."""
    return by.begin(Sought(f"r-{offset}", (SETTINGS.topics.requests, 0, offset), 1), "replies", [0])


async def test_few_search_at_once_over_one_connection_for_positions(lookback: Lookback) -> None:
    """Thrice as many wait: all are served, those that the group has settled are searched for from the start.

    What is parked is settled for the group, and is waited for.
    """
    tasks = [begin(lookback, offset) for offset in range(WAITERS)]
    await eventually_async(lambda: len(Search.open) == SEARCHES_MAX)
    Search.gate.set()
    assert [(await task).is_settled for task in tasks] == [offset in {*range(10), 12} - PARKED for offset in range(WAITERS)]
    assert Search.most_open == SEARCHES_MAX
    assert [len(nobody.threads) for nobody in Nobody.made] == [1]
    assert Search.open == set()


async def test_who_gives_up_makes_room(lookback: Lookback) -> None:
    """Those who search, and those who wait for it: whoever comes later finds what is there."""
    tasks = [begin(lookback, offset) for offset in range(WAITERS)]
    await eventually_async(lambda: len(Search.open) == SEARCHES_MAX)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    Search.gate.set()
    assert await begin(lookback, 20) == Looked(None, is_settled=False)


async def test_closing_ends_all(unclosed: Lookback) -> None:
    """Searches and those who wait for one; connections are closed, threads are gone."""
    Search.gate.set()
    await begin(unclosed, 20)
    Search.gate.clear()
    tasks = [begin(unclosed, offset) for offset in range(WAITERS)]
    await eventually_async(lambda: len(Search.open) == SEARCHES_MAX)
    await unclosed.close()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} <= {asyncio.CancelledError, DispatcherError}
    assert Search.open == set()
    assert [nobody.closed for nobody in Nobody.made] == [True]
    await eventually_async(lambda: not {"dispatcher-feed"} & {thread.name for thread in threading.enumerate()})
