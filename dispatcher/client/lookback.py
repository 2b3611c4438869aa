"""Replies that stood there before somebody began to wait: searched for once, where they can be."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.group import Positions
from dispatcher.adapters.kafka.log import TIMEOUT_S
from dispatcher.client import parked, search
from dispatcher.client.feed import Feed
from dispatcher.client.reply import Reply, reply_to_request
from dispatcher.client.shared import Turns, noted
from dispatcher.core.operations.positions import START, Anchor, Position, Span
from dispatcher.core.operations.sought import Sought
from dispatcher.errors import BrokerAway, BrokerError
from dispatcher.settings import Settings

# Searches at once. Each has a connection to every broker and half a dozen threads of librdkafka's; whoever waits for its turn to search
# listens meanwhile.
SEARCHES_MAX = 8
END_S = 5.0


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found. `is_settled`: nothing was, and the request has been answered all the same."""

    reply: Reply | None
    is_settled: bool


class Lookback:
    """Searches the partitions of reply topics for those who wait, and who already listen: what comes from now on is not missed.

    Belongs to the event loop. One thread asks how far the group has come, for all.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turns = Turns(SEARCHES_MAX)
        self._searches: set[asyncio.Task[Looked]] = set()
        self._asking = ThreadPoolExecutor(1, "dispatcher-positions")
        self._positions = Positions(settings, TIMEOUT_S)  # belongs to that thread

    def begin(self, wanted: Sought, topic: str, partitions: list[int]) -> asyncio.Task[Looked]:
        """Search from the time at which the request was made; and where it has been settled, once from the very start.

        Ends with BrokerAway where Kafka does not answer: it can be begun again.

        Record times come from the clocks of several machines; only a committed position says for certain that the search began too late.
        Whoever needs it no more cancels it, and need not wait for its end.
        """
        task = asyncio.create_task(self._search(wanted, topic, tuple(partitions)))
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)
        task.add_done_callback(noted)
        return task

    async def close(self) -> None:
        """End all searches and let go of all connections, for at most a few seconds."""
        self._turns.close()
        for task in self._searches:
            task.cancel()
        closing: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(self._asking, self._positions.close)
        self._asking.shutdown(wait=False)
        open_: set[asyncio.Future[Any]] = {closing, *self._searches}
        await asyncio.wait(open_, timeout=END_S)

    async def _search(self, wanted: Sought, topic: str, partitions: tuple[int, ...]) -> Looked:
        since = START if wanted.since_ms is None else Position(Anchor.TIME, max(0, wanted.since_ms))
        async with self._turns.turn():
            found = await self._scan(wanted, topic, partitions, since)
            if found is not None or wanted.request is None or not await self.is_settled(*wanted.request):
                return Looked(found, is_settled=False)
            if since != START:
                found = await self._scan(wanted, topic, partitions, START)
            return Looked(found, is_settled=found is None)

    async def _scan(self, wanted: Sought, topic: str, partitions: tuple[int, ...], since: Position) -> Reply | None:
        query = search.Query(Span(since), partitions, until_end=True, request_id=wanted.name)
        read = partial(reply_to_request, source=wanted.request)
        async with Feed(partial(search.replies, self._settings, query, topic=topic), read) as feed:
            return await anext(feed, None)

    async def is_settled(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the workers' group is done with the request. Who may not ask does not know, and waits. BrokerAway."""
        view = self._settings.view_of(topic)
        if view is None:
            return False
        try:
            return await asyncio.get_running_loop().run_in_executor(self._asking, self._has_ended, view, partition, offset)
        except BrokerAway:
            raise
        except BrokerError:
            return False

    def _has_ended(self, view: Settings, partition: int, offset: int) -> bool:
        """Ask for what is committed, and where that says that the request is settled, whether it was only moved aside."""
        topic = view.topics.requests
        if not self._positions.of(topic, partition).is_settled(offset):
            return False
        cluster = connect(self._settings, TIMEOUT_S)
        facts = facts_of(cluster, [topic]).get(topic)
        moved = {} if facts is None else parked.index(view, cluster, (partition,), facts.topic_id_text)
        return offset not in moved.get(partition, {})
