"""A producer as confluent-kafka gives it to the worker's `Sink`, over the simulated cluster.

As librdkafka does it: a call that runs out of time goes on in the background, and the same call again waits for the same end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dispatcher.core.messages.record import Message
from tests.guarantees.events import Withheld
from tests.sim.cluster import PROMPT_S, REPLIES, Cluster, Wire
from tests.sim.consumer import GroupMetadata
from tests.sim.faults import abortable, plain, retriable, timed_out
from tests.sim.logs import Log
from tests.sim.process import Killed, Process

Report = Callable[[KafkaError | None, Any], None]
BATCH_MAX = 16
# How long the library waits before it asks again where the coordinator still writes the last transaction's markers.
BUSY_S = 0.01


@dataclass(slots=True)
class _Written:
    """A message that waits for its delivery."""

    message: Message
    report: Report


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as its report shows it."""

    message: Message
    place: int

    def topic(self) -> str:
        return self.message.topic

    def key(self) -> bytes | None:
        return self.message.key

    def value(self) -> bytes | None:
        return self.message.value

    def offset(self) -> int:
        return self.place


@dataclass(slots=True)
class _Operation:
    """A call on its way; it goes on when its caller has stopped waiting, to be asked for again, unless it `is_left` behind."""

    what: str
    result: object = None
    has_ended: bool = False
    is_left: bool = False

    def end(self, result: object) -> None:
        self.result, self.has_ended = result, True


class Producer:
    """Owned by the publisher's thread. With a `name` it is transactional."""

    def __init__(self, process: Process, cluster: Cluster, name: str | None, timeout_s: float) -> None:
        self._process = process
        self._cluster = cluster
        self._wire = Wire(cluster, process)
        self._name = name
        self._timeout_s = timeout_s
        self._epoch = -1
        self._fatal: KafkaError | None = None
        self._failed: KafkaError | None = None  # what makes the transaction in hand worth nothing but an abort
        self._operation: _Operation | None = None
        self._lanes: dict[Log, deque[_Written]] = {}
        self._sending: dict[Log, int] = {}  # messages on their way
        self._reports: deque[Callable[[], None]] = deque()
        self._round = 0
        self._purged = False
        self._in_transaction = False
        self._is_begun = False  # something of the transaction was sent
        self._known: set[str] = set()  # topics of which the library knows the partitions

    # --- as the worker calls it -----------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float) -> None:
        def asked(operation: _Operation) -> None:
            name = self._name or ""
            self._ask_until_free(lambda: self._cluster.transactions.init(name, self._timeout_s), operation)

        self._epoch = self._wait("init", asked, timeout)

    def begin_transaction(self) -> None:
        self._check()
        if self._operation is not None:
            raise KafkaException(retriable(KafkaError._CONFLICT))
        if self._in_transaction:
            raise KafkaException(plain(KafkaError._STATE))
        self._failed = None
        self._in_transaction = True
        self._is_begun = False

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int, report: Report, headers: list[Any]) -> None:
        self._check(fatal_too=False)
        if self._fatal is not None:
            raise KafkaException(plain(KafkaError._FATAL))
        if self._name is not None and (not self._in_transaction or self._failed is not None or self._operation is not None):
            raise KafkaException(plain(KafkaError._STATE))
        log = self._cluster.logs.get((topic, partition))
        if log is None:
            self._refuse(topic, report)
            return
        self._known.add(topic)
        message = Message(topic, partition, key, value, tuple(headers))
        self._lanes.setdefault(log, deque()).append(_Written(message, report))
        self._process.after(self._process.latency(), self._send, log, self._round)

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], group: GroupMetadata | None, timeout: float) -> None:
        to = {self._cluster.strand(part.topic, part.partition): (part.offset, part.metadata or "") for part in offsets}

        def asked(operation: _Operation) -> None:
            assert group is not None
            check = partial(self._cluster.check_commit, group.member, group.epoch, to, transactional=True)
            name, epoch = self._name or "", self._epoch
            self._is_begun = True
            self._ask_until_free(lambda: self._cluster.transactions.propose(name, epoch, to, check), operation)

        self._wait("send_offsets", asked, timeout)

    def commit_transaction(self, timeout: float) -> None:
        self._wait("commit", self._commit, timeout)
        self._in_transaction = False

    def abort_transaction(self, timeout: float) -> None:
        self._wait("abort", self._abort, timeout)
        self._in_transaction = False
        self._failed = None

    def flush(self, timeout: float) -> int:
        self._check(fatal_too=False)
        began = self._process.now
        self._process.thread.wait(timeout, lambda: not self._undelivered())
        if self._process.now - began > PROMPT_S:
            self._cluster.tell(Withheld(self._process.name))
        self.poll(0)
        return self._undelivered()

    def poll(self, _: float) -> int:
        """Make the reports that are due."""
        while self._reports:
            self._reports.popleft()()
        return 0

    def purge(self) -> None:
        self._drop()
        self._purged = True

    # --- operations -----------------------------------------------------------------------------------------------------------------

    def _wait(self, what: str, start: Callable[[_Operation], None], timeout: float) -> Any:
        self._check()
        operation = self._operation
        if operation is not None and operation.what != what:
            raise KafkaException(retriable(KafkaError._CONFLICT))
        if self._failed is not None and what not in {"abort", "init"}:
            raise KafkaException(self._failed)
        if operation is None:
            if what != "init" and not self._in_transaction:
                raise KafkaException(plain(KafkaError._STATE))
            operation = self._operation = _Operation(what)
            start(operation)
        self._process.thread.wait(timeout, lambda: operation.has_ended)
        self.poll(0)
        if not operation.has_ended:
            if what == "send_offsets":
                # The only call that is not resumed: asked for again, it is sent again, and anything else may come instead.
                operation.is_left, self._operation = True, None
            raise timed_out()
        self._operation = None
        if isinstance(operation.result, KafkaError):
            self._note(operation.result)
            raise KafkaException(operation.result)
        return operation.result

    def _note(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        elif error.txn_requires_abort():
            self._failed = error

    def _ask_until_free(self, request: Callable[[], object], operation: _Operation) -> None:
        """Ask; again while the coordinator is busy, or away."""

        def is_open() -> bool:
            return not self._purged and not operation.is_left

        def answered(result: object) -> None:
            if isinstance(result, KafkaError) and result.retriable() and is_open():
                self._process.after(BUSY_S * (1 + self._process.chance.random()), self._ask_until_free, request, operation)
            else:
                operation.end(result)

        self._wire.ask(request, answered, is_open)

    def _commit(self, operation: _Operation) -> None:
        """Everything is delivered first."""
        if self._fatal is not None or self._failed is not None:
            operation.end(self._fatal or self._failed)
        elif self._undelivered():
            self._process.after(0.002, self._commit, operation)
        else:
            self._end(operation, commit=True)

    def _abort(self, operation: _Operation) -> None:
        """What waits is dropped; what is on its way is waited for, so that it does not come after the end."""
        for log, lane in self._lanes.items():
            while len(lane) > self._sending.get(log, 0):
                lane.pop()
        if self._undelivered() and self._fatal is None:
            self._process.after(0.002, self._abort, operation)
        else:
            self._end(operation, commit=False)

    def _end(self, operation: _Operation, *, commit: bool) -> None:
        """Ask for the end of what was begun; of nothing, the coordinator knows nothing."""
        if self._is_begun:
            self._ask_until_free(partial(self._cluster.transactions.end, self._name or "", self._epoch, commit=commit), operation)
        else:
            operation.end(None)

    def _check(self, *, fatal_too: bool = True) -> None:
        if not self._process.alive:
            raise Killed
        if self._fatal is not None and fatal_too:
            raise KafkaException(self._fatal)

    # --- deliveries -----------------------------------------------------------------------------------------------------------------

    def _undelivered(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def _refuse(self, topic: str, report: Report) -> None:
        """There is no such partition: known at once, or only when the library has asked for the topic's partitions."""
        error = plain(KafkaError._UNKNOWN_PARTITION)
        if topic in self._known:
            raise KafkaException(error)
        self._known.add(topic)
        self._reports.append(partial(report, error, None))
        if self._name is not None:
            self._failed = abortable(KafkaError._INCONSISTENT)

    def _drop(self) -> None:
        self._lanes.clear()
        self._sending.clear()
        self._round += 1

    def _send(self, log: Log, round_: int) -> None:
        lane = self._lanes.get(log)
        if not lane or log in self._sending or round_ != self._round:
            return
        self._is_begun = True
        batch = [lane[i] for i in range(min(len(lane), self._process.chance.randint(1, BATCH_MAX)))]
        self._sending[log] = len(batch)
        messages = [written.message for written in batch]
        name, epoch, cluster = self._name, self._epoch, self._cluster
        appended = False
        places: list[int] = []

        def request() -> KafkaError | None:
            nonlocal appended
            if any(message.topic == REPLIES and message.size_bytes > cluster.reply_max_bytes for message in messages):
                return plain(KafkaError.MSG_SIZE_TOO_LARGE)
            if appended:  # sent again: an idempotent producer's batch is taken once
                return None
            if name is not None:
                places.extend(cluster.transactions.write(name, epoch, log, messages))
            else:
                for message in messages:
                    places.append(log.append(message))
                    cluster.published(log, places[-1], message)
            appended = True
            return None

        self._wire.ask(request, lambda error: self._sent(log, round_, batch, places, error), lambda: round_ == self._round)

    def _sent(self, log: Log, round_: int, batch: list[_Written], places: list[int], error: KafkaError | None) -> None:
        if round_ != self._round:
            return
        del self._sending[log]
        if error is not None and error.retriable():
            self._process.after(BUSY_S, self._send, log, round_)
            return
        if error is not None and self._name is not None:
            self._note(error if error.fatal() else abortable(error.code()))
        if error is not None and error.fatal():
            # The library says of itself that it is fenced, and of the message what the broker said.
            error = plain(KafkaError.INVALID_PRODUCER_EPOCH)
        lane = self._lanes[log]
        # A batch that had to be sent again may be told without its places.
        told = places if error is None and self._process.chance.random() > 0.02 else [-1] * len(batch)
        for written, place in zip(batch, told, strict=True):
            lane.popleft()
            self._reports.append(partial(written.report, error, Delivered(written.message, place)))
        self._send(log, round_)
