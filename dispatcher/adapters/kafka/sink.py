"""Where outcomes are written: transactions (exactly once), or an idempotent producer (at least once).

Only the publisher thread may call any of this. What the client raises is turned into four kinds, since only the kind decides what may
be done next (`Failed.then`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import Message as ClientMessage

from dispatcher.adapters.kafka import admin, clients
from dispatcher.adapters.kafka.admin import Cluster
from dispatcher.adapters.kafka.faults import FENCED, is_fatal
from dispatcher.adapters.kafka.places import Places
from dispatcher.adapters.kafka.producer import RAISED
from dispatcher.adapters.kafka.source import Committed, committed_in
from dispatcher.core.messages.record import Message
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings

# One client call waits at most this long, so that the thread's tick shows that it lives; the caller asks again.
STEP_S = 5.0
# A call that may not come back at all (see `_leashed`) is given this long beyond its own time-out.
HANG_S = 2.0
# Each that does not come back leaves a producer with its five threads behind. A line that breaks so often is somebody's to look at, and
# a process that starts anew has lost nothing.
HUNG_MAX = 20
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE})
_UNWRITABLE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_PARTITIONS,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
_STALE_GROUP = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
_STOP = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)

Then = Literal["again", "abort", "reopen", "stop"]


class Failed(Exception):
    """A step of a transaction failed. `then` says what may be done.

    again   call the same step again: its fate is unknown, or the broker is away
    abort   abort the transaction and build a new one (`stale_group`: from newer group metadata)
    reopen  the producer is of no use any more: make a new one and reconcile with what is committed (`fenced`: or was replaced)
    stop    going on is senseless
    """

    def __init__(self, error: KafkaError) -> None:
        super().__init__(f"{error.name()}: {error.str()}")
        code = error.code()
        self.name = error.name()
        self.fenced = code in FENCED
        self.stale_group = code in _STALE_GROUP
        self.then: Then
        if code in _STOP:
            self.then = "stop"
        elif self.fenced or error.fatal():
            self.then = "reopen"
        elif error.txn_requires_abort():
            self.then = "abort"
        elif error.retriable() or code in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}:
            self.then = "again"
        else:
            self.then = "reopen"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message that the broker did not take: `index` in the order of produce; `kind` decides how it is replaced."""

    index: int
    kind: Literal["too_large", "unwritable", "fatal", "other"]
    name: str


def _undelivered(index: int, error: KafkaError) -> Undelivered:
    """Say what became of a message. A fatal error is told without its flag by the reports that follow it."""
    try:
        code, name = error.code(), error.name()
        if is_fatal(error):
            return Undelivered(index, "fatal", name)
    except SystemError:
        # What `SteadyProducer` keeps from us: nothing but a fatal error is raised so.
        return Undelivered(index, "fatal", "_FATAL")
    return Undelivered(index, "too_large" if code in _TOO_LARGE else "unwritable" if code in _UNWRITABLE else "other", name)


class Sink:
    """One producer at a time. `transactional_id` None makes it the at-least-once one; `limits` as `limits()` gives them."""

    def __init__(
        self, settings: Settings, transactional_id: str | None, limits: Mapping[str, int], *, logger: logging.Logger = clients.LOG
    ) -> None:
        self._settings = settings
        self._request_places = Places(settings.request_topics)
        self._logger = logger
        self._id = transactional_id
        self._limits = dict(limits)
        self._questions: Cluster | None = None
        self._producer: Producer | None = None
        self._outsider: Consumer | None = None
        self._undelivered: dict[int, Undelivered] = {}
        self._missing: set[str] = set()  # topics, as was last said
        self._places: dict[bytes, int] = {}
        # Reports of an earlier round (an aborted transaction's) may come late and must not be counted in this one.
        self._round = 0
        self._produced = 0
        self._unreported: set[int] = set()
        self._hung = 0

    def open(self) -> None:
        """Make a new producer; a transactional one settles whatever its predecessor of the same id left open."""
        self.close()
        smallest = min(self._limits.values(), default=None)
        self._producer = clients.producer(self._settings, transactional_id=self._id, batch_max_bytes=smallest, logger=self._logger)
        if self._id is not None:
            self._step(partial(self._producer.init_transactions, STEP_S))

    def begin(self) -> None:
        """Begin a transaction."""
        self._forget()
        self._step(self._open.begin_transaction)

    def produce(self, messages: Sequence[Message]) -> None:
        """Hand over messages in order; what is refused shows in `undelivered`."""
        producer = self._open
        for message in messages:
            index = self._produced
            self._produced += 1
            self._unreported.add(index)
            report = partial(self._report, self._round, index)
            while True:
                try:
                    producer.produce(message.topic, message.value, message.key, message.partition, report, headers=list(message.headers))
                except BufferError:
                    producer.poll(0.1)
                    continue
                except KafkaException as failure:
                    self._report(self._round, index, failure.args[0], None)
                break

    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None:
        """Put positions and metadata per strand into the transaction, as the member that `group` names."""
        offsets = [self._request_places.committing(n, position, text) for n, (position, text) in positions.items()]
        self._step(partial(self._leashed, partial(self._open.send_offsets_to_transaction, offsets, group, STEP_S)))

    def commit(self) -> None:
        """Commit the transaction; never without a message that a client refused because it had failed for good."""
        if any(failure.kind == "fatal" for failure in self._undelivered.values()):
            # librdkafka keeps such errors and the state of the transaction apart: a commit may pass, with positions and without outcomes.
            raise Failed(KafkaError(KafkaError._FATAL))
        self._step(partial(self._open.commit_transaction, STEP_S))

    def abort(self) -> None:
        """Abort the transaction."""
        self._step(partial(self._open.abort_transaction, STEP_S))

    def flush(self, timeout_s: float = STEP_S) -> bool:
        """At least once: wait until everything produced is acknowledged or refused; False where the time was too short."""
        if not self._open.flush(timeout_s) and self._unreported:
            # A client that fails for good may do so in the middle of a report, which then reaches nobody: its message may be there or not.
            self._undelivered |= {index: Undelivered(index, "fatal", "_FATAL") for index in sorted(self._unreported)}
            self._unreported.clear()
        return not self._unreported

    def forget(self) -> None:
        """At least once: begin a new count of produced messages."""
        self._forget()

    @property
    def undelivered(self) -> list[Undelivered]:
        """Messages since `begin` (or `forget`) that the broker did not take."""
        return list(self._undelivered.values())

    def take_places(self) -> dict[bytes, int]:
        """Where parked requests stand in their topic, by their keys there, as the broker told since this was asked; some may be missing."""
        places, self._places = self._places, {}
        return places

    def limits(self) -> dict[str, int] | None:
        """Ask the broker what the topics take now: bytes of one record per topic that we may write; None where it does not say.

        The next `open` makes a producer whose batches fit.
        """
        self._questions = self._questions or admin.untried(self._settings, STEP_S, logger=self._logger)
        topics = self._settings.topics
        written = {topics.replies, topics.dead_letters, topics.parked, topics.journal, topics.state, topics.control, *topics.reply_topics}
        try:
            found = admin.facts_of(self._questions, written)
        except BrokerError:
            return None
        self._limits = {name: fact.max_message_bytes for name, fact in found.items() if fact.is_writable}
        self._tell_missing(written - self._limits.keys())
        return dict(self._limits)

    def _tell_missing(self, missing: set[str]) -> None:
        """Say once, and by name, which topics are gone: what failed says only that one of them is."""
        if missing - self._missing:
            text = "missing, or not ours to write: %s; what goes there waits, or goes to the default reply topic"
            self._logger.error(text, ", ".join(sorted(missing)))
        self._missing = missing

    def committed(self, partitions: Iterable[int]) -> dict[int, Committed]:
        """Stable committed positions of the group in these strands, read without being a member. Raises Failed.

        By a consumer that never joins, not by the admin client: librdkafka 2.16 ends the process with a segmentation fault where that one
        asks for a group's positions while its coordinator loads.
        """
        if self._outsider is None:
            self._outsider = clients.consumer(
                self._settings, group=self._settings.worker.group, protocol="cooperative", logger=self._logger
            )
        asked = [self._request_places.part(n) for n in partitions]
        try:
            parts = self._outsider.committed(asked, timeout=STEP_S)
        except KafkaException as failure:
            raise Failed(failure.args[0]) from None
        for part in parts:
            if part.error is not None:
                raise Failed(part.error)
        return committed_in(self._request_places, parts)

    def serve(self) -> None:
        """Take in what the clients have to say beside answers, while nothing is published: log lines, errors.

        They keep it until somebody does: with Kafka away librdkafka 2.16 grew by 18 KiB a second, 1.5 GB a day.
        """
        asking = None if self._questions is None else self._questions.client
        for client in (self._producer, asking, self._outsider):
            if client is not None:
                client.poll(0)

    def close(self) -> None:
        """Let the producer go; nothing is waited for, and what it still holds is dropped."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = None

    @property
    def _open(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _forget(self) -> None:
        self._round += 1
        self._undelivered.clear()
        self._produced = 0
        self._unreported.clear()

    def _report(self, round_: int, index: int, error: KafkaError | None, message: ClientMessage | None) -> None:
        # Runs inside a call of the client: it may note, and nothing else.
        if round_ != self._round:
            return
        try:
            self._take_in(index, error, message)
        except RAISED:
            # A fatal error is on its way out of that call, and whatever is done first here meets it, be it a set's own method. Now it
            # has been met.
            self._take_in(index, error, message)

    def _take_in(self, index: int, error: KafkaError | None, message: ClientMessage | None) -> None:
        self._unreported.discard(index)
        if error is not None:
            self._undelivered[index] = _undelivered(index, error)
        elif message is not None and message.topic() == self._settings.topics.parked:
            self._note_place(message)

    def _note_place(self, message: ClientMessage) -> None:
        key, offset = message.key(), message.offset()
        # A tombstone has no place to come back to, and a message that was sent twice is told with none.
        if isinstance(key, bytes) and message.value() is not None and offset is not None and offset >= 0:
            self._places[key] = offset

    def _leashed(self, call: Callable[[], object]) -> None:
        """Make a client call in a thread of its own, and leave both behind if the call does not come back. Raises KafkaException.

        Sending offsets ignores its time-out while the group's coordinator is away, and may then hang for ever, also after the coordinator
        is back (librdkafka issues 5456 and 5511; 2.16 has it): also when a connection was only reset. What is left behind is a thread
        and a producer each time; a new producer of the same name fences it, should it ever wake. BrokerError after `HUNG_MAX` of them.
        """
        end: SimpleQueue[BaseException | None] = SimpleQueue()

        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - carried over to the caller, whatever it is
                end.put(error)
            else:
                end.put(None)

        Thread(target=run, name="send_offsets", daemon=True).start()
        try:
            error = end.get(timeout=STEP_S + HANG_S)
        except Empty:
            self._hung += 1
            if self._hung >= HUNG_MAX:
                hint = "its connections broke: look at the network, then start the worker again"
                raise BrokerError(f"Kafka's client did not come back {self._hung} times since this worker started", hint) from None
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD)) from None
        if error is not None:
            raise error

    def _step(self, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaException as failure:
            raise Failed(failure.args[0]) from None
