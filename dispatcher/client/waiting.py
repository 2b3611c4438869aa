"""Waiting for the reply to a request that stands in its topic already."""

from __future__ import annotations

import asyncio
from typing import Any

from dispatcher.client.connection import Connection
from dispatcher.core.record import Record
from dispatcher.core.sought import Sought
from dispatcher.errors import ReplyGone

# A transaction's parts become visible one after another. A reply that is still not there so long after the position that was
# committed with it will not come.
SETTLE_S = 10.0


class Waiting:
    """One wait. `listens`: whether Kafka was there, and a reply that comes is heard."""

    def __init__(self, connection: Connection, wanted: Sought) -> None:
        self._connection = connection
        self._wanted = wanted
        self.listens = False

    async def found(self) -> Record:
        """Listen from now on, and search what stands there already. Errors: ReplyGone, ConfigError, BrokerError."""
        wanted, listener = self._wanted, self._connection.listener
        topic, numbers = await self._where()
        watch = await listener.watch(wanted.name, [(topic, number) for number in numbers])
        self.listens = True
        searched = self._connection.lookback.begin(wanted, topic, numbers)
        first: set[asyncio.Future[Any]] = {watch.found, searched}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not watch.found.done():
                looked = searched.result()
                if looked.record is not None:
                    return looked.record
                await asyncio.wait({watch.found}, timeout=SETTLE_S if looked.is_settled else None)
            if not watch.found.done():
                raise ReplyGone(
                    f"request {wanted.name} was settled, and its reply is not in {topic} any more",
                    f"replies are kept for {self._connection.topics.reply_retention_days:g} days",
                )
            return watch.found.result()
        finally:
            listener.release(watch)
            searched.cancel()

    async def _where(self) -> tuple[str, list[int]]:
        """Name the reply topic and the partitions in which a reply can be."""
        wanted, connection = self._wanted, self._connection
        usual = connection.topics.replies
        topic = wanted.reply_topic or (usual if wanted.request is not None else connection.reply_topic) or usual
        if wanted.reply_partition is not None:
            return topic, [await connection.existing(topic, wanted.reply_partition)]
        if wanted.request is not None:
            return topic, [wanted.request[1] % await connection.count(topic)]
        if connection.reply_partition is not None:
            return topic, [await connection.existing(topic, connection.reply_partition)]
        return topic, list(range(await connection.count(topic)))
