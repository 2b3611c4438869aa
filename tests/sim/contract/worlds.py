"""The two worlds of the contract: a cluster in virtual time, and a real broker. A case sees the same of both.

Clients are what confluent-kafka gives, or what the simulator puts in its place: a case calls the same methods on either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, TopicPartition
from greenlet import getcurrent

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.clients import GroupProtocol
from dispatcher.adapters.kafka.compacted import CompactedReader, Items, Question
from dispatcher.core.messages.record import Message, Record
from dispatcher.settings import Settings
from tests.sim import consumer as simulated
from tests.sim import producer as simulated_producer
from tests.sim import reader as simulated_reader
from tests.sim.cluster import REPLIES, REQUESTS, Broker, Cluster
from tests.sim.contract.expulsion import expel
from tests.sim.logs import Log
from tests.sim.process import Process
from tests.sim.schedule import Schedule
from tests.waiting import eventually

T = TypeVar("T")
WITHIN_S = 60.0
# Longest time that one call of a simulated client may take before it counts as hanging.
CALL_S = 600.0
# What the reply topic takes; requests and dead letters are larger, so that the client library lets more through than the broker takes.
REPLY_MAX_BYTES = 1_000_000


class World(Protocol):
    """A request topic and a reply topic of `partitions` partitions each, and one group, whose positions begin at 0."""

    requests: str
    replies: str
    protocol: GroupProtocol
    partitions: int
    is_closed: bool

    def consumer(self) -> Any:
        """Make a consumer in the world's group; it joins when it subscribes."""

    def producer(self, name: str | None = None, timeout_s: float = 10.0) -> Any:
        """Make an idempotent producer; with a `name` a transactional one, whose transactions may take `timeout_s`."""

    def reader(self) -> Any:
        """Make a reader of compacted topics, as `Reading` shows it."""

    def expel(self, consumer: Any) -> None:
        """Throw a member out of the group, as if it had not been heard of for the session timeout."""

    def trim(self, partition: int, before: int) -> None:
        """Remove the requests before that offset, as retention does."""

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Let time pass until `condition`, which may poll. AssertionError after a minute."""

    def close(self) -> None:
        """End all clients."""


class _Plain(Cluster):
    """A cluster whose topics hold anything."""

    def published(self, log: Log, offset: int, message: Message) -> None:
        """Nobody judges what becomes readable."""


def answered(question: Question) -> dict[int, int]:
    """Ask to the end."""
    while True:
        try:
            next(question)
        except StopIteration as end:
            found: dict[int, int] = end.value
            return found


class Reading:
    """A reader of either kind, item by item."""

    def __init__(self, reader: CompactedReader | simulated_reader.Reader) -> None:
        self._reader = reader
        self._items: Items | None = None

    def ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """Give the ends of partitions."""
        return answered(self._reader.ends(topic, partitions))

    def since(self, topic: str, times_ms: dict[int, int]) -> dict[int, int]:
        """As `CompactedReader.since`."""
        return answered(self._reader.since(topic, times_ms))

    def begin(self, topic: str, ranges: dict[int, tuple[int, int]]) -> None:
        """Begin to read these."""
        self._items = self._reader.read(topic, ranges)

    def step(self, most: int = 1) -> list[tuple[str, int, int]] | None:
        """Take so many items; gives records and ends among them, None behind the last."""
        assert self._items is not None
        taken = [item for _ in range(most) for item in [next(self._items, "over")]]
        found = [item for item in taken if item is not None and not isinstance(item, str)]
        told = [("record", item.partition, item.offset) if isinstance(item, Record) else ("ended", item.partition, -1) for item in found]
        return None if not told and "over" in taken else told

    def follow(self, topic: str, offset: int) -> None:
        """Begin to hear what is new."""
        self._reader.follow(topic, offset)

    def news(self, wait_s: float) -> list[int]:
        """Give the offsets of what is new."""
        return [record.offset for record in self._reader.news(wait_s)]

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()


class Driven:
    """A simulated client, whose calls let virtual time pass until they have ended."""

    def __init__(self, world: SimulatedWorld, process: Process, client: object) -> None:
        self.process = process
        self._world = world
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **named: Any) -> Any:
            # A callback of the client is in the process already.
            if getcurrent() is not self.process.hub:
                return method(*args, **named)
            return self._world.do(self.process, partial(method, *args, **named))

        return call


class SimulatedWorld:
    """The simulator's cluster; chance is drawn from `seed`."""

    requests, replies = REQUESTS, REPLIES

    def __init__(self, protocol: GroupProtocol, partitions: int, seed: int, *, is_started: bool) -> None:
        self.protocol = protocol
        self.partitions = partitions
        self.is_closed = False
        self._chance = Random(seed)
        self._schedule = Schedule(self._chance)
        self._cluster = _Plain(self._schedule, self._chance, Broker(partitions, protocol, sweep_s=2.0), lambda _: None)
        self._cluster.reply_max_bytes = REPLY_MAX_BYTES
        self._cluster.lost_share = self._cluster.slow_share = 0.0
        if not is_started:
            self._cluster.positions.forget()
        self._processes: list[Process] = []

    def consumer(self) -> Driven:
        """Give a simulated consumer in a process of its own."""
        process = self._process()
        return Driven(self, process, simulated.Consumer(process, self._cluster, lambda: False))

    def producer(self, name: str | None = None, timeout_s: float = 10.0) -> Driven:
        """Give a simulated producer in a process of its own."""
        process = self._process()
        return Driven(self, process, simulated_producer.Producer(process, self._cluster, name, timeout_s))

    def reader(self) -> Driven:
        """Give a simulated reader in a process of its own."""
        process = self._process()
        return Driven(self, process, Reading(simulated_reader.Reader(process, self._cluster)))

    def expel(self, consumer: Driven) -> None:
        """Have the coordinator forget the member."""
        self._cluster.group.expire(consumer.process.name)

    def trim(self, partition: int, before: int) -> None:
        """Move the start of the log."""
        self._cluster.request_log(partition).start = before

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Ask, let some virtual time pass, and ask again."""
        end = self._schedule.now + WITHIN_S
        while not (answer := condition()):
            assert self._schedule.now < end, f"{what} did not come true within {WITHIN_S:g} virtual s; last seen: {answer!r}"
            self._schedule.run(self._schedule.now + 0.1)
        return answer

    def close(self) -> None:
        """Unwind the processes."""
        self.is_closed = True
        for process in self._processes:
            process.kill()

    def do(self, process: Process, call: Callable[[], object]) -> object:
        """Make a call in a thread of that process and give what it returns, or raises."""
        results: list[object] = []
        ends: list[BaseException | None] = []
        process.start("caller", lambda: results.append(call()), ends.append)
        assert self._schedule.run(self._schedule.now + CALL_S, lambda: bool(ends)), f"{call} hangs"
        process.threads = [thread for thread in process.threads if thread.name != "caller"]
        if ends[0] is not None:
            raise ends[0]
        return results[0]

    def _process(self) -> Process:
        def failed(error: BaseException) -> None:
            raise error

        process = Process(self._schedule, Random(self._chance.random()), f"p{len(self._processes)}", failed)
        self._processes.append(process)
        return process


class BrokerWorld:
    """Topics and a group of their own on a real broker, over clients from the product's factory."""

    def __init__(self, settings: Settings, protocol: GroupProtocol) -> None:
        self.requests, self.replies = settings.topics.requests, settings.topics.replies
        self.protocol = protocol
        self.partitions = settings.topics.partitions
        self.is_closed = False
        self._settings = settings
        self._consumers: list[Consumer] = []
        self._producers: list[Any] = []
        self._readers: list[Reading] = []

    def consumer(self) -> Any:
        """Give a real consumer."""
        made = clients.consumer(self._settings, group=self._settings.worker.group, protocol=self.protocol)
        self._consumers.append(made)
        return made

    def producer(self, name: str | None = None, timeout_s: float = 10.0) -> Any:
        """Give a real producer."""
        worker = self._settings.worker.model_copy(update={"transaction_timeout_s": timeout_s})
        settings = self._settings.model_copy(update={"worker": worker})
        transactional_id = None if name is None else f"{self._settings.worker.group}-{name}"
        made = clients.producer(settings, transactional_id=transactional_id, batch_max_bytes=REPLY_MAX_BYTES)
        self._producers.append(made)
        return made

    def reader(self) -> Reading:
        """Give the product's reader."""
        made = Reading(CompactedReader(self._settings))
        self._readers.append(made)
        return made

    def expel(self, consumer: Consumer) -> None:
        """Leave the group in the member's name."""
        expel(self._settings.kafka.bootstrap_servers, self._settings.worker.group, consumer.memberid() or "", self.protocol)

    def trim(self, partition: int, before: int) -> None:
        """Delete records."""
        part = TopicPartition(self.requests, partition, before)
        admin = clients.admin(self._settings)  # kept while the answer is on its way
        admin.delete_records([part])[part].result(30)

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Ask, wait a moment, and ask again."""
        return eventually(condition, WITHIN_S, what)

    def close(self) -> None:
        """Leave the group; let producers go as they are."""
        self.is_closed = True
        for producer in self._producers:
            producer.purge()
        for consumer in self._consumers:
            consumer.close()
        for reader in self._readers:
            reader.close()
