"""Questions to Kafka for an event loop: nothing blocks, each answer is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import settling
from dispatcher.adapters.kafka.faults import Complaints, error_of
from dispatcher.adapters.kafka.log import TIMEOUT_S, no_topic
from dispatcher.adapters.kafka.loop import tell
from dispatcher.errors import BrokerError, DispatcherError
from dispatcher.settings import Settings

Place = tuple[str, int]  # topic, partition
Key = TypeVar("Key")
Answer = TypeVar("Answer")

# One attempt; a cluster that is being started or stopped is asked again.
_ATTEMPT_S = 3.0
_PAUSE_S = 0.1
_SILENT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT})


class Inquiry:
    """One connection for questions, opened at the first. Belongs to the event loop that asks.

    A question ends within about `timeout_s`: with its answer, `ConfigError` for a topic that does not exist, or `BrokerError`.
    """

    def __init__(self, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._complaints = Complaints(settings)
        self._made: AdminClient | None = None

    async def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Count the partitions of topics."""
        wanted = list(dict.fromkeys(names))
        found = await self._answers(
            lambda attempt_s: self._client.describe_topics(TopicCollection(wanted), request_timeout=attempt_s), "describing the topics"
        )
        return {name: len(topic.partitions) for name, topic in found.items()}

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Tell where partitions end for a reader of what is committed (the last stable offset)."""
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # theirs
        asked = {TopicPartition(*place): latest for place in places}
        committed = IsolationLevel.READ_COMMITTED
        found = await self._answers(
            lambda attempt_s: self._client.list_offsets(asked, isolation_level=committed, request_timeout=attempt_s),
            "reading the ends of the replies",
        )
        return {(part.topic, part.partition): info.offset for part, info in found.items()}

    def trouble(self) -> BrokerError | None:
        """Say why Kafka does not answer; None where nothing has been heard that speaks against it."""
        if self._made is not None:
            self._made.poll(0)
        return self._complaints.explain(None, "asking Kafka") if self._complaints.are_there else None

    async def close(self) -> None:
        """Let go of the connection; open questions are not answered any more."""
        made, self._made = [self._made], None
        # Its end waits for the library's threads: not on the event loop.
        await asyncio.to_thread(made.clear)

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            self._made = clients.admin(self._settings, on_error=self._complaints.heard)
        return self._made

    async def _answers(self, ask: Callable[[float], Mapping[Key, Future[Answer]]], doing: str) -> dict[Key, Answer]:
        """Ask until everything is answered, again and again while the cluster is silent or settles."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        while True:
            attempt_s = max(0.1, min(_ATTEMPT_S, end - loop.time()))
            found: dict[Key, Answer] = {}
            for key, future in ask(attempt_s).items():
                try:
                    found[key] = await _landed(future, loop)
                except KafkaException as failure:
                    if loop.time() >= end or not _passes(failure, key):
                        raise self._fault(failure, doing, key) from None
                    break
            else:
                self._complaints.forget()
                return found
            await asyncio.sleep(_PAUSE_S)

    def _fault(self, failure: KafkaException, doing: str, key: object) -> DispatcherError:
        error = error_of(failure)
        if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return no_topic(key.topic if isinstance(key, TopicPartition) else str(key))
        self._client.poll(0)  # the reason waits in the error callback
        return self._complaints.fault(failure, doing)


def _passes(failure: KafkaException, key: object) -> bool:
    """Whether another attempt may help. A topic that was not there when it was described will not be there in a second either."""
    error = error_of(failure)
    if error is None or error.code() in _SILENT:
        return True
    return settling(error) and (isinstance(key, TopicPartition) or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART)


async def _landed(future: Future[Answer], loop: asyncio.AbstractEventLoop) -> Answer:
    """Await an answer. The client's own future is never cancelled: it would be filled all the same, and complain."""
    waiter: asyncio.Future[Answer] = loop.create_future()
    future.add_done_callback(partial(_pass_on, waiter))
    return await waiter


def _pass_on(waiter: asyncio.Future[Answer], answered: Future[Answer]) -> None:
    """Pass an answer on. Called in a thread of the client."""
    failure = answered.exception()
    tell(waiter, answered.result() if failure is None else failure)
