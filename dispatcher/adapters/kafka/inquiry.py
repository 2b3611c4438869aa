"""Questions to Kafka for an event loop: nothing blocks, each answer is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo  # `admin` shows them, but not to a strict type checker
from confluent_kafka.admin._topic import TopicDescription

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import SILENCE_S, id_of, settling
from dispatcher.adapters.kafka.faults import MOVED, Complaints, error_of
from dispatcher.adapters.kafka.log import TIMEOUT_S, no_topic
from dispatcher.adapters.kafka.loop import tell
from dispatcher.adapters.kafka.offsets import Place, ask_edges, offset_of
from dispatcher.core.progress.strand import id_text
from dispatcher.errors import BrokerError, ConfigError, DispatcherError
from dispatcher.settings import Settings

Key = TypeVar("Key")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
# Puts a question to a client; it may take so many seconds.
Ask = Callable[[AdminClient, float], Mapping[Key, Future[Answer]]]

# One attempt; a cluster that is being started or stopped is asked again.
_ATTEMPT_S = 3.0
_PAUSE_S = 0.1
_PAUSE_MAX_S = 1.0
_SILENT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT})


@dataclass(slots=True)
class _Line:
    """A client, and how many wait for its answers: it takes them with it when it goes."""

    client: AdminClient
    askers: int = 0


@dataclass(slots=True)
class _Found(Generic[Key, Result]):
    """What one attempt gave, by what was asked for; and the first failure."""

    answers: dict[Key, Result] = field(default_factory=dict)
    failed: tuple[Key, KafkaException] | None = None


class Inquiry:
    """One connection for questions, opened at the first. Belongs to the event loop that asks.

    A question ends within about `timeout_s`: with its answer, `ConfigError` for a topic or a partition that does not exist, or
    `BrokerError`. A client that holds on to a broker of before is replaced; whoever still waits for its answers gets them.
    """

    def __init__(self, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._complaints = Complaints(settings)
        self._line: _Line | None = None

    async def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Count the partitions of topics."""
        return await self._answers(_description(list(dict.fromkeys(names))), _count, "describing the topics")

    async def topic_id(self, name: str) -> str:
        """Tell the id of a topic, as text; another one under the same name has another."""
        return (await self._answers(_description([name]), _id, "describing the topics"))[name]

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Tell where partitions end for a reader of what is committed (the last stable offset)."""
        wanted = list(places)

        def ask(client: AdminClient, attempt_s: float) -> Mapping[Place, Future[ListOffsetsResultInfo]]:
            return ask_edges(client, wanted, "latest", attempt_s, committed=True)

        return await self._answers(ask, offset_of, "reading the ends of the replies")

    def trouble(self) -> BrokerError | None:
        """Say why Kafka does not answer; None where nothing has been heard that speaks against it."""
        if self._line is not None:
            self._line.client.poll(0)
        return self._complaints.explain(None, "asking Kafka") if self._complaints.are_there else None

    async def close(self) -> None:
        """Let go of the connection; open questions are not answered any more."""
        line, self._line = [self._line], None
        # Its end waits for the library's threads: not on the event loop.
        await asyncio.to_thread(line.clear)

    async def _answers(self, ask: Ask[Key, Answer], take: Callable[[Answer], Result], doing: str) -> dict[Key, Result]:
        """Ask until everything is answered, again and again while the cluster is silent or settles."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        pause_s = _PAUSE_S
        while True:
            found = await self._attempt(ask, take, max(0.1, min(_ATTEMPT_S, end - loop.time())))
            if found.failed is None:
                self._complaints.forget()
                return found.answers
            key, failure = found.failed
            if isinstance(key, tuple) and _code(failure) == KafkaError._NOENT:
                await self._refuse_missing(*key)
            if loop.time() >= end or not _passes(failure, key):
                raise self._fault(failure, doing, key) from None
            await asyncio.sleep(max(0, min(pause_s, end - loop.time())))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _attempt(self, ask: Ask[Key, Answer], take: Callable[[Answer], Result], attempt_s: float) -> _Found[Key, Result]:
        """Ask once; `take` makes a result of an answer, or raises KafkaException where it is none."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        found: _Found[Key, Result] = _Found()
        with self._asked() as client:
            for key, future in ask(client, attempt_s).items():
                try:
                    found.answers[key] = take(await _landed(future, loop))
                except KafkaException as failure:
                    found.failed = found.failed or (key, failure)
                    if _code(failure) in MOVED or (_code(failure) in _SILENT and loop.time() - began >= SILENCE_S):
                        self._replace(client)
        return found

    def _replace(self, client: AdminClient) -> None:
        """Have the next question asked by another client: this one holds on to a broker that leads no more, is dead or stands still."""
        client.poll(0)  # why it is silent may wait in the error callback
        if self._line is not None and self._line.client is client:
            self._line = None

    @contextmanager
    def _asked(self) -> Iterator[AdminClient]:
        """Give the client, and keep it until its answers are there. Then one that was replaced may go."""
        line = self._line = self._line or _Line(clients.admin(self._settings, on_error=self._complaints.heard))
        line.askers += 1
        try:
            yield line.client
        finally:
            line.askers -= 1
            if line is not self._line and not line.askers:
                gone = [line]
                del line
                asyncio.get_running_loop().run_in_executor(None, gone.clear)

    async def _refuse_missing(self, topic: str, partition: int) -> None:
        """Say it where a topic is there without a partition; what cannot be found out now is asked again with the question itself."""
        count = (await self._attempt(_description([topic]), _count, _ATTEMPT_S)).answers.get(topic)
        if count is not None and partition >= count:
            raise ConfigError(f"topic {topic} has no partition {partition} (it has {count})", "the topic may have been made anew")

    def _fault(self, failure: KafkaException, doing: str, key: object) -> DispatcherError:
        if _code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return no_topic(key[0] if isinstance(key, tuple) else str(key))
        if self._line is not None:
            self._line.client.poll(0)  # the reason waits in the error callback
        return self._complaints.fault(failure, doing)


def _description(names: list[str]) -> Ask[str, TopicDescription]:
    return lambda client, attempt_s: client.describe_topics(TopicCollection(names), request_timeout=attempt_s)


def _count(topic: TopicDescription) -> int:
    return len(topic.partitions)


def _id(topic: TopicDescription) -> str:
    return id_text(id_of(topic))


def _code(failure: KafkaException) -> int | None:
    error = error_of(failure)
    return None if error is None else error.code()


def _passes(failure: KafkaException, key: object) -> bool:
    """Whether another attempt may help. A topic that was not there when it was described will not be there in a second either."""
    error = error_of(failure)
    if error is None or error.code() in _SILENT:
        return True
    return settling(error) and (isinstance(key, tuple) or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART)


async def _landed(future: Future[Answer], loop: asyncio.AbstractEventLoop) -> Answer:
    """Await an answer. The client's own future is never cancelled: it would be filled all the same, and complain."""
    waiter: asyncio.Future[Answer] = loop.create_future()
    future.add_done_callback(partial(_pass_on, waiter))
    return await waiter


def _pass_on(waiter: asyncio.Future[Answer], answered: Future[Answer]) -> None:
    """Pass an answer on. Called in a thread of the client."""
    failure = answered.exception()
    tell(waiter, answered.result() if failure is None else failure)
