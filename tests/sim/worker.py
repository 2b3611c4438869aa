"""A worker process of a simulated world: the product's poller, engine and publisher, with what is outside of them replaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from dispatcher.adapters.kafka.bulletin import DELIVERY_S
from dispatcher.adapters.kafka.sink import HANG_S, STEP_S, Sink
from dispatcher.adapters.kafka.source import Source
from dispatcher.core.callees.gate import Turned
from dispatcher.core.internal.control import CANCEL, read_command
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.floor import Share
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from dispatcher.worker.engine import Engine
from dispatcher.worker.letters import Command, PublisherEnded, Stop
from dispatcher.worker.poller import Poller
from dispatcher.worker.publisher import Publisher
from dispatcher.worker.restorer import Restorer
from dispatcher.worker.share_log import ShareLog
from tests.guarantees.events import Cancelled, Crashed, Decided, Event, Held, Queued, Released
from tests.sim.callee import Callee
from tests.sim.cluster import CONTROL, DEAD_LETTERS, JOURNAL, PARKED, REPLIES, STATE, WORKERS, Cluster, Wire
from tests.sim.consumer import Consumer
from tests.sim.faults import plain
from tests.sim.process import Killed, Process, ProcessClock
from tests.sim.producer import Producer
from tests.sim.reader import IDLE_S, Reader

T = TypeVar("T")
MIB = 1024 * 1024
LIMITS = {REPLIES: 8 * MIB, DEAD_LETTERS: 8 * MIB, PARKED: 2 * MIB, JOURNAL: MIB, STATE: MIB, CONTROL: MIB}


class SimulatedSink(Sink):
    """The product's sink over a simulated producer."""

    def __init__(self, settings: Settings, transactional_id: str | None, process: Process, cluster: Cluster, ear: Ear) -> None:
        super().__init__(settings, transactional_id, LIMITS)
        self._process = process
        self._cluster = cluster
        self._ear = ear
        self._outsider: Any = Consumer(process, cluster, lambda: False)

    def open(self) -> None:
        """As `Sink.open`."""
        self.close()
        producer = Producer(self._process, self._cluster, self._id, self._settings.worker.transaction_timeout_s)
        self._producer: Any = producer
        if self._id is not None:
            self._step(partial(producer.init_transactions, STEP_S))

    def _leashed(self, call: Callable[[], object]) -> None:
        """As `Sink._leashed`, without a thread: some calls that run out of time would not have come back."""
        try:
            call()
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._TIMED_OUT or self._process.chance.random() < 0.5:
                raise
            self._process.pause(HANG_S)
            raise KafkaException(plain(KafkaError._WAIT_COORD)) from None

    def flush(self, timeout_s: float = STEP_S) -> bool:
        """As `Sink.flush`, and heard of where the time was too short."""
        done = super().flush(timeout_s)
        if not done:
            self._ear.info("flush_expired")
        return done

    def serve(self) -> None:
        """As `Sink.serve`: these clients have nothing to say."""

    def limits(self) -> dict[str, int] | None:
        """As `Sink.limits`: what the topics take now; None where the cluster cannot be asked."""
        self._process.thread.wait(self._process.latency())
        if self._process.now < self._cluster.away_until:
            return None
        return LIMITS | {REPLIES: self._cluster.reply_max_bytes}


class Ear:
    """Log and observer in one: counts what is said, and keeps it where it is to be shown."""

    def __init__(self, worker: str, process: Process, tally: Counter[str], trace: list[str] | None) -> None:
        self._worker = worker
        self._process = process
        self._tally = tally
        self._trace = trace
        self.took: Callable[[object, int], None] = lambda _partition, _epoch: None  # hears of every epoch that begins

    def info(self, event: str, **fields: object) -> None:
        """Hear of an event."""
        if not self._process.alive:
            return
        self._tally[event] += 1
        if event == "live":
            self.took(fields["partition"], cast("int", fields["epoch"]))
        if self._trace is not None:
            self._trace.append(f"{self._process.now:9.3f} {self._worker} {event} {fields}")

    warning = error = info

    def publish_failed(self, what: str, name: str) -> None:
        """Hear of a step that failed, and of the error's name."""
        if self._process.alive:
            self._tally[name] += 1
        self.info(f"{what}_failed", name=name)

    def bug(self, error: BaseException, where: str) -> None:
        """Hear of the adapter's bugs that the callee plays."""
        self.info("bug", error=str(error), where=where)

    def answered(self, _: object, __: object, verdict: object, ___: float) -> None:
        """Hear of a call's end: `retry`, `settled` or `dead`."""
        if self._process.alive:
            self._tally[type(verdict).__name__.lower()] += 1

    def cancelled(self, request: Request, _: float) -> None:
        """Hear of a call that was cut off."""
        self.info("cancelled", at=(request.record.partition, request.record.offset))

    def settled(self, outcome: Any, *, misplaced: bool) -> None:
        """Hear of an outcome; how many were unknown is counted."""
        if outcome.reply is not None and outcome.reply.reason is Reason.OUTCOME_UNKNOWN:
            self._tally["outcome_unknown"] += 1
        if self._trace is not None:
            record = outcome.record
            at = None if record is None else (record.partition, record.offset)
            self.info("settled", at=at, position=outcome.position, misplaced=misplaced)

    def acknowledged(self, *told: Any) -> None:
        """Hear of an outcome that is published."""
        if self._trace is not None:
            self.info("acknowledged", owner=told[-1].owner, position=told[-1].position)

    def parked(self, _: object, outcomes: Sequence[Outcome]) -> None:
        """Hear of requests that are moved aside."""
        self.info("parked", at=[(one.owner.partition, one.record.offset) for one in outcomes if one.record is not None])

    def lent(self, limit: str, quantity: str, amount: int) -> None: ...

    def missing(self, owner: Owner, entries: Sequence[Entry]) -> None:
        """Hear of parked requests that were not found."""
        self.info("missing", partition=owner.partition, offsets=[entry.offset for entry in entries])

    def map_full(self, partition: Partition, *, is_full: bool) -> None:
        """Hear of a commit that could carry no more."""
        self.info("map_full", owner=partition.owner, is_full=is_full)

    def breaker_turned(self, turned: Turned) -> None:
        """Hear of a circuit breaker."""
        self.info(f"breaker_{turned.state.text}", waiting=turned.waiting)

    def heard(self, *_: object) -> None:
        """Hear of anything else."""

    started = billed = assigned = measured = gone = stood = passed = heard


class Bulletin:
    """Tells the latest in the workers topic, as `adapters.kafka.bulletin` does: nothing while something is on its way."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._process = process
        self._log = cluster.logs[WORKERS, 0]
        self._wire = Wire(cluster, process)
        self._open_until = 0.0  # while something is on its way, until it is given up

    def tell(self, message: Message) -> bool:
        """As `Bulletin.tell`."""
        if self._process.now < self._open_until:
            return False
        until = self._open_until = self._process.now + DELIVERY_S
        is_written = False

        def write() -> None:
            nonlocal is_written
            if not is_written:  # sent again, it is taken once
                self._log.append(message)
            is_written = True

        def written(_: object) -> None:
            if self._open_until == until:
                self._open_until = 0.0

        self._wire.ask(write, written, lambda: self._process.now < until)
        return True

    def close(self, last: Message, timeout_s: float) -> None:
        """As `Bulletin.close`."""
        self._process.thread.wait(timeout_s, lambda: self._process.now >= self._open_until)
        self._open_until = 0.0
        self.tell(last)
        self._process.thread.wait(timeout_s, lambda: self._process.now >= self._open_until)


class RestorerClock:
    """The restorer's and the share log's, which wait for letters and look at the news in between: here only when there are any."""

    def __init__(self, process: Process, reader: Reader) -> None:
        self.now = process.instant
        self.pause = process.pause
        self._process = process
        self._reader = reader

    def take(self, queue: SimpleQueue[T], wait_s: float) -> T | None:
        """As `Clock.take`."""
        if not self._process.alive:
            raise Killed
        if queue.empty() and wait_s > 0:
            self._process.thread.wait(IDLE_S, lambda: self._reader.has_news or not queue.empty())
        return self._process.take(queue, 0)


class TellingEngine(Engine):
    """The product's, which tells what it has read and how it ends."""

    tell: Callable[[Event], None] = staticmethod(lambda _: None)

    def delivered(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None:
        """As `Engine.delivered`."""
        for owner, batch in records.items():
            for record in batch if self._of(owner) is not None else ():
                self.tell(Queued(owner.strand, record.offset, owner.epoch))
        super().delivered(records, ends)

    def settle(self, partition: Partition, outcome: Outcome, now: float) -> None:
        """As `Engine.settle`."""
        if outcome.record is not None:
            self.tell(Decided(partition.owner.strand, outcome.record.offset, partition.owner.epoch))
        super().settle(partition, outcome, now)


class Worker:
    """One process, as `dispatcher.worker.process.Worker` makes and ends it."""

    def __init__(
        self,
        cluster: Cluster,
        callee: Callee,
        settings: Settings,
        name: str,
        chance: Random,
        tally: Counter[str],
        trace: list[str] | None,
        ended: Callable[[Worker, BaseException | None], None],
        room: Room | None = None,
    ) -> None:
        self.settings = settings
        self.process = process = Process(cluster.schedule, chance, name, self._broken)
        self._cluster = cluster
        self._ended = ended
        self._error: BaseException | None = None
        self._running = 4 if settings.limits else 3
        self._wanted: set[str] = set()  # targets that the engine has heard are held
        self.terminated = False
        self.ear = Ear(name, process, tally, trace)
        self.ear.took = lambda label, epoch: cluster.took(name, cluster.labelled(label), epoch)
        clock = ProcessClock(process)
        self._to_poller: SimpleQueue[Command] = SimpleQueue()
        self._to_publisher: SimpleQueue[object] = SimpleQueue()
        self._to_restorer: SimpleQueue[object] = SimpleQueue()
        count, ids = cluster.setup.partitions, cluster.requests.ids
        decoders = [Decoder(view, name, count, {REPLIES: count}) for view, name in zip(settings.views, ids, strict=True)]
        shares = [Share(of.weight, of.concurrency) for of in settings.classes.values()]
        # The loop is handed over as the running one, since that is what the engine asks for.
        asyncio._set_running_loop(process.loop)
        try:
            letters = (self._to_poller, self._to_publisher, self._to_restorer)
            self.engine = TellingEngine(decoders, callee.engine(process), *letters, self.ear, clock, chance.random, room, shares=shares)
            self.engine.tell = cluster.tell
        finally:
            asyncio._set_running_loop(None)
        topics = cluster.requests
        consumer: Any = Consumer(process, cluster, lambda: not self._to_poller.empty())
        source = Source(consumer, *settings.request_topics, incremental=cluster.setup.protocol != "eager")
        common = (process.post,)
        self.poller = Poller(
            *(settings.worker, topics, source, self.engine, *common),
            *(self._to_poller, self._to_publisher, clock, self.ear, self._die),
        )
        transactional_id = f"{settings.worker.group}-{settings.worker.slot}" if settings.worker.publishing == "exactly_once" else None
        sink = SimulatedSink(settings, transactional_id, process, cluster, self.ear)
        self.publisher = Publisher(
            *(settings, topics, LIMITS, sink, self.engine, *common, self._to_publisher, self._to_poller),
            *(lambda: self.poller.snapshot, self.ear, clock),
        )
        reader = Reader(process, cluster)
        self.restorer = Restorer(
            *(settings, topics, reader, self.engine, self._told, self._to_restorer, RestorerClock(process, reader), self.ear)
        )
        if settings.limits:
            self._share(cluster)
        process.start("poller", lambda: self.poller.run(self._may_join), self._poller_ended)
        process.start("publisher", self.publisher.run, self._publisher_ended)
        process.start("restorer", self.restorer.run, self._restorer_ended)

    def _share(self, cluster: Cluster) -> None:
        """Share the limits with the other workers of the world."""
        process, inbox = self.process, SimpleQueue[Message | Stop]()
        asyncio._set_running_loop(process.loop)
        try:
            self.sharing = self.engine.share(f"{self.settings.worker.slot}/{process.name}", inbox.put)
        finally:
            asyncio._set_running_loop(None)
        reader, bulletin = Reader(process, cluster), Bulletin(process, cluster)
        share_clock = RestorerClock(process, reader)
        self.share_log = ShareLog(WORKERS, reader, bulletin, self.sharing.told, process.post, inbox, share_clock, self.ear)
        process.start("share log", self.share_log.run, self._share_log_ended)

    def terminate(self) -> None:
        """SIGTERM."""
        if not self.terminated:
            self.terminated = True
            self.process.after(0, self._to_poller.put, Stop())

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.alive:
            self._cluster.tell(Crashed(self.process.name))
            self.process.kill()

    def _die(self, message: str) -> None:
        self.ear.info("died", message=message)
        self._gone(None)

    def _may_join(self) -> bool:
        return self.publisher.is_open and self.restorer.is_ready

    def _told(self, function: Callable[..., None], *args: Any) -> None:
        """Post what the restorer has read, and tell of what it says of keys and partitions."""
        if function == self.engine.commanded:
            self.process.post(self._commanded, *args)
        self.process.post(function, *args)
        if function == self.engine.commanded:
            # A turn later: what the engine has started before begins in this one.
            self.process.post(self.process.post, self._held, *args)

    def _commanded(self, records: list[Record]) -> None:
        for record in records:
            if (record.key or b"").startswith(b"rights:"):
                continue
            command = read_command(record)
            if command is not None and command.state == CANCEL:
                (told,) = self._cluster.targets(command.target)
                partition, offset = map(int, told.partition("@")[0].rsplit("/", 2)[1:])
                self._cluster.tell(Cancelled(partition, offset, self.process.name, self.process.now))
            target = (record.key or b"").decode()
            if record.value is None:
                self._wanted.discard(target)
                for told in self._cluster.targets(target):
                    self._cluster.tell(Released(told, self.process.name))
            else:
                self._wanted.add(target)

    def _held(self, records: list[Record]) -> None:
        for target in dict.fromkeys((record.key or b"").decode() for record in records):
            if target in self._wanted:
                for told in self._cluster.targets(target):
                    self._cluster.tell(Held(told, self.process.name, self.process.now))

    def _broken(self, error: BaseException) -> None:
        """Something raised on the event loop, which nothing may."""
        self._gone(error)

    def _poller_ended(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._to_publisher.put(Stop())
        self._to_restorer.put(Stop())
        if self.settings.limits:
            self.process.post(lambda: self.share_log.farewell(self.sharing.leave()))
        self._one_less()

    def _publisher_ended(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._to_poller.put(PublisherEnded())
        self._one_less()

    def _restorer_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._gone(error)
        self._one_less()

    def _share_log_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._gone(error)
        self._one_less()

    def _one_less(self) -> None:
        self._running -= 1
        if not self._running:
            self._gone(self._error, orderly=self._error is None)

    def _gone(self, error: BaseException | None, *, orderly: bool = False) -> None:
        if isinstance(error, BrokerError):
            self.ear.info("gave_up", message=error.message)
        self._cluster.tell(Crashed(self.process.name, orderly=orderly))
        self._cluster.schedule.after(0, self._ended, self, error)
        self.process.kill()
