"""Replies that stood there before somebody began to wait: searched for once, where they can be."""

from __future__ import annotations

import asyncio
from functools import partial

from dispatcher.adapters.kafka import admin
from dispatcher.adapters.kafka.group import committed_positions
from dispatcher.adapters.kafka.log import TIMEOUT_S
from dispatcher.client import search
from dispatcher.client.feed import Feed
from dispatcher.core.positions import START, Anchor, Position, Span
from dispatcher.core.record import Record
from dispatcher.core.sought import Sought
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings


class Backlog:
    """What stands in some partitions of a reply topic. `settled`: the search found nothing, and the request has been answered all the same.

    Belongs to one waiter, who already listens: what comes from now on is not missed.
    """

    def __init__(self, settings: Settings, wanted: Sought, topic: str, partitions: list[int]) -> None:
        self._settings = settings
        self._wanted = wanted
        self._topic = topic
        self._partitions = tuple(partitions)
        self.settled = False

    async def search(self) -> Record | None:
        """Search from the time at which the request was made; and where it has been settled, once from the very start.

        Record times come from the clocks of several machines; only a committed position says for certain that the search began too late.
        """
        wanted = self._wanted
        since = START if wanted.since_ms is None else Position(Anchor.TIME, max(0, wanted.since_ms))
        found = await self._scan(since)
        if found is not None or wanted.request is None or not await asyncio.to_thread(self._is_settled, *wanted.request):
            return found
        if since != START:
            found = await self._scan(START)
        self.settled = found is None
        return found

    async def _scan(self, since: Position) -> Record | None:
        query = search.Query(Span(since), self._partitions, until_end=True, request_id=self._wanted.name)
        async with Feed(partial(search.replies, self._settings, query, topic=self._topic), _same) as feed:
            return await anext(feed, None)

    def _is_settled(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the workers' group has committed a position behind the request. Who may not ask does not know, and waits."""
        if topic != self._settings.topics.requests:
            return False
        try:
            cluster = admin.connect(self._settings, TIMEOUT_S)
            position = committed_positions(cluster, self._settings, [partition])[partition]
        except BrokerError:
            return False
        return position is not None and position > offset


def _same(record: Record) -> Record:
    return record
