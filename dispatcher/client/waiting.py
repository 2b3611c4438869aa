"""Waiting for the reply to a request that stands in its topic already."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from dispatcher.client.connection import PAUSE_S, Connection
from dispatcher.client.feed import LOG
from dispatcher.client.listener import Watch
from dispatcher.client.lookback import Looked
from dispatcher.client.reply import Reply, reply_to_request
from dispatcher.client.shared import noted
from dispatcher.core.operations.sought import Sought
from dispatcher.errors import BrokerAway, DispatcherError, ReplyGone

# A transaction's parts become visible one after another. A reply that is still not there so long after the position that was
# committed with it will not come.
SETTLE_S = 10.0


class Waiting:
    """One wait. `listens`: whether Kafka was there, and a reply that comes is heard."""

    def __init__(self, connection: Connection, wanted: Sought) -> None:
        self._connection = connection
        self._wanted = wanted
        self.listens = False

    async def found(self, *, is_patient: bool = True) -> Reply:
        """Listen from now on, and search what stands there already. Errors: ReplyGone, ConfigError, BrokerError.

        While Kafka is away it goes on trying; before it listens only where it `is_patient`.
        """
        while True:
            try:
                return await self._once()
            except BrokerAway:
                if not is_patient and not self.listens:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _once(self) -> Reply:
        """Do what `found` does, until Kafka is away: BrokerAway. What comes before it is begun anew is found by the next search."""
        topic, watch = await self._listen()
        self.listens = True
        heard = hearing(watch, self._wanted.request)
        try:
            looked = await self._look(topic, watch, heard)
            if looked.reply is not None:
                return looked.reply
            await asyncio.wait({heard}, timeout=SETTLE_S if looked.is_settled else None)
            if not heard.done():
                raise ReplyGone(
                    f"request {self._wanted.name} was settled, and its reply is not in {topic} any more",
                    f"replies are kept for {self._connection.topics.reply_retention_days:g} days",
                )
            return heard.result()
        finally:
            heard.cancel()
            self._connection.listener.release(watch)

    async def _listen(self) -> tuple[str, Watch]:
        """Listen from now on in the reply topic, which is named."""
        wanted = self._wanted = await self._resolved(self._wanted)
        topic, numbers = await self._where(wanted)
        return topic, await self._connection.listener.watch(wanted.name, [(topic, number) for number in numbers])

    async def _look(self, topic: str, watch: Watch, heard: asyncio.Task[Reply]) -> Looked:
        """Search what stands there, until a reply is heard."""
        searched = self._connection.lookback.begin(self._wanted, topic, [number for _, number in watch.places])
        first: set[asyncio.Future[Any]] = {heard, searched}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            return Looked(heard.result(), is_settled=False) if heard.done() else searched.result()
        finally:
            searched.cancel()

    async def _resolved(self, wanted: Sought) -> Sought:
        """Say which topic is meant: of those that had this name, the one that is there now. ConfigError without the partition."""
        if wanted.request is None:
            return wanted
        topic, partition, _ = wanted.request
        if not wanted.is_place and wanted.since_ms is None:
            return wanted  # with its topic's id: that topic may be gone, and have had more partitions
        await self._connection.existing(topic, partition)
        if not wanted.is_place:
            return wanted
        return replace(wanted, name=f"{wanted.name}@{await self._connection.topic_id(topic)}", is_place=False)

    async def _where(self, wanted: Sought) -> tuple[str, list[int]]:
        """Name the reply topic and the partitions in which a reply can be."""
        connection = self._connection
        usual = connection.topics.replies
        topic = wanted.reply_topic or (usual if wanted.request is not None else connection.reply_topic) or usual
        if wanted.reply_partition is not None:
            return topic, [await connection.existing(topic, wanted.reply_partition)]
        if wanted.request is not None:
            return topic, [wanted.request[1] % await connection.count(topic)]
        if connection.reply_partition is not None:
            return topic, [await connection.existing(topic, connection.reply_partition)]
        return topic, list(range(await connection.count(topic)))


def hearing(watch: Watch, source: tuple[str, int, int] | None) -> asyncio.Task[Reply]:
    """Begin `next_reply`; whoever begins it cancels it. That it failed may be of no interest any more."""
    task = asyncio.create_task(next_reply(watch, source))
    task.add_done_callback(noted)
    return task


async def next_reply(watch: Watch, source: tuple[str, int, int] | None) -> Reply:
    """Hear the reply to the request at `source`, where that is known. What is none is passed over, with a warning."""
    while True:
        await asyncio.wait({watch.found})  # and not the future itself: whoever gives up would take it along
        record = watch.found.result()
        try:
            return reply_to_request(record, source)
        except DispatcherError as error:
            LOG.warning("passed over: %s", error.message)
            watch.pass_over()
