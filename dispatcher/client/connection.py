"""What a client has of Kafka, for all who ask and wait: questions, the sender, the listener, the search of what stands there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.adapters.kafka.loop import tell
from dispatcher.adapters.kafka.offsets import Place
from dispatcher.client.feed import LOG
from dispatcher.client.listener import Listener
from dispatcher.client.lookback import Lookback
from dispatcher.client.sender import Outgoing, Sender
from dispatcher.client.shared import Shared, forked
from dispatcher.core.messages.envelope import TOPIC_ID_SHOWN
from dispatcher.core.messages.submission import Receipt, Submission
from dispatcher.errors import BrokerAway, ConfigError, DispatcherError, WaitTimeout
from dispatcher.settings import Settings

T = TypeVar("T")

# An inquiry has tried for seconds by itself.
PAUSE_S = 0.1


class Connection:
    """Belongs to the event loop that opens it. `reply_topic` and `reply_partition`: where replies go, None for the usual place."""

    def __init__(self, settings: Settings, reply_topic: str | None, reply_partition: int | None, ack_timeout_s: float) -> None:
        self.topics = settings.topics
        self.request_topics = settings.request_topics
        self.reply_topic, self.reply_partition = reply_topic, reply_partition
        self._settings = settings
        self._inquiry = Inquiry(settings)
        self._sender = Sender(settings, ack_timeout_s)
        self._listener: Listener | None = None
        self._lookback: Lookback | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None  # process, loop; where it is open
        self._counts: dict[str, Shared[int]] = {}  # partitions by topic

    def open(self) -> None:
        """Be ready; Kafka is reached when it is needed."""
        self._home = os.getpid(), asyncio.get_running_loop()
        self._listener, self._lookback = Listener(self._settings, self._inquiry), Lookback(self._settings)
        self._sender.start()

    async def close(self) -> None:
        """Let go of everything, each part whatever becomes of the others; what is still open ends with an error. May be repeated."""
        listener, lookback = self._listener, self._lookback
        self._listener = self._lookback = self._home = None
        if listener is None or lookback is None:
            return
        async with AsyncExitStack() as parts:  # the last one first
            parts.push_async_callback(self._inquiry.close)
            parts.push_async_callback(asyncio.to_thread, self._sender.close)
            parts.push_async_callback(lookback.close)
            parts.push_async_callback(listener.close)
            for count in self._counts.values():
                parts.callback(count.cancel)

    @property
    def listener(self) -> Listener:
        """The listener. DispatcherError where the client is not open, or not here: another process, another event loop."""
        if self._listener is None:
            raise _not_open()
        self.refuse_elsewhere()
        return self._listener

    @property
    def lookback(self) -> Lookback:
        """The search of what stands there. DispatcherError where the client is not open."""
        if self._lookback is None:
            raise _not_open()
        return self._lookback

    def send(self, submission: Submission) -> tuple[Outgoing, asyncio.Future[Receipt]]:
        """Have a request written; the future gets its receipt, or an error as `Submitter` has them."""
        _ = self.listener
        acknowledged: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        return self._sender.send(submission, partial(tell, acknowledged)), acknowledged

    def receipt(self, acknowledged: Receipt) -> Receipt:
        """Say in a receipt where the reply was asked for."""
        return replace(acknowledged, reply_topic=self.reply_topic, reply_partition=self.reply_partition)

    def unsent(self, within_s: float) -> DispatcherError:
        """Say that nothing was sent in time; with the reason, where Kafka is known to be away."""
        return self.trouble() or WaitTimeout(
            f"nothing was sent within {within_s:g} s: Kafka had not yet answered what must be known before", "give it more time"
        )

    def trouble(self) -> DispatcherError | None:
        """Say why Kafka does not answer; None where nothing speaks against it."""
        return self._inquiry.trouble()

    async def count(self, topic: str) -> int:
        """Count the partitions of a topic, asked for once."""
        asked = self._counts.get(topic)
        if asked is None:
            asked = self._counts[topic] = Shared(self._counted(topic))
        return await asked.result()

    async def reply_place(self, partition: int) -> Place:
        """Name the place of the reply to a request in this partition. ConfigError where it does not exist."""
        topic = self.reply_topic or self.topics.replies
        if self.reply_partition is not None:
            return topic, await self.existing(topic, self.reply_partition)
        return topic, partition % await self.count(topic)

    async def existing(self, topic: str, partition: int) -> int:
        """Give the number of a partition that exists, else ConfigError."""
        count = await self.count(topic)
        if partition >= count:
            self.forget_counts()  # perhaps it has grown
            count = await self.count(topic)
        if not 0 <= partition < count:
            raise ConfigError(f"topic {topic} has no partition {partition}", f"it has 0 to {count - 1}")
        return partition

    async def topic_id(self, topic: str) -> str:
        """Tell the beginning of a request topic's id; asked for each time, since the topic may be made anew."""
        return (await self._inquiry.topic_id(topic))[:TOPIC_ID_SHOWN]

    def forget_counts(self) -> None:
        """Ask anew: a topic has grown."""
        self._counts.clear()

    @property
    def was_forked(self) -> bool:
        """Whether this is a copy, in a child process, of one that was opened before the fork: its threads are not there."""
        return self._home is not None and self._home[0] != os.getpid()

    def refuse_elsewhere(self) -> None:
        """Raise DispatcherError in another process or on another event loop than those that opened this."""
        if self._home is None:
            return
        if self.was_forked:
            raise forked()
        loop = self._home[1]
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop at all: what is made here is used on one
        if here is not loop:
            raise DispatcherError(
                "this client belongs to another event loop", "open and use it within one asyncio.run; SyncDispatcher has a loop of its own"
            )

    async def _counted(self, topic: str) -> int:
        try:
            return (await self._inquiry.partitions([topic]))[topic]
        except BaseException:
            self._counts.pop(topic, None)
            raise


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again and again while Kafka is away, and say so once; whoever asks ends it when the time is over."""
    is_told = False
    while True:
        try:
            return await ask()
        except BrokerAway as away:
            if not is_told:
                LOG.warning("%s; trying on until the time is over", away.message)
                is_told = True
            await asyncio.sleep(PAUSE_S)


def _not_open() -> DispatcherError:
    return DispatcherError("this client is not open", "async with Dispatcher(...) as d: …")
