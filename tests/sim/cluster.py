"""The simulated Kafka: logs, transactions, a group and its positions, and the network to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import orjson
from confluent_kafka import KafkaError

from dispatcher.adapters.kafka.clients import GroupProtocol
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.progress.commit_note import decode
from dispatcher.core.progress.strand import RequestTopic, RequestTopics, number_of, source_of, strand_of
from tests.guarantees.events import (
    Attempted,
    Committed,
    Event,
    Forgotten,
    Held,
    LetterVisible,
    Lost,
    Noted,
    Parked,
    Released,
    Unparked,
    reply_visible,
)
from tests.sim.faults import Refused, abortable, plain, retriable
from tests.sim.group import ClassicGroup, ConsumerGroup, Group, Shared
from tests.sim.logs import Log
from tests.sim.positions import Positions, To
from tests.sim.process import Process
from tests.sim.schedule import Schedule
from tests.sim.transactions import Transactions
from tests.specimens import alone

T = TypeVar("T")
REQUESTS, REPLIES, DEAD_LETTERS = "sim.requests", "sim.replies", "sim.dlq"
PARKED, STATE, CONTROL, WORKERS = "sim.parked", "sim.state", "sim.control", "sim.workers"
JOURNAL = "sim.journal"
# The topics that are compacted.
COMPACTED = (PARKED, STATE, CONTROL, WORKERS)
TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
# One way through the network: at most, usually, and for the few that are slow.
WIRE_S, WIRE_SLOW_S = 0.004, 8.0
# An answer that takes longer keeps a worker from what it promised to do in time.
PROMPT_S = 1.0
# After this long without an answer the client library sends the request again.
RESEND_S = 1.5
# The broker's `offset.metadata.max.bytes`; it takes one less (Kafka 4.4).
METADATA_MAX_BYTES = 4095


@dataclass(frozen=True, slots=True)
class Broker:
    """How the cluster is set up."""

    partitions: int
    protocol: GroupProtocol
    session_s: float = 6.0
    sweep_s: float = 10.0
    classes: tuple[str, ...] = ()  # of requests: each has a topic of its own

    @property
    def requests(self) -> RequestTopics:
        """The request topics."""
        if not self.classes:
            return alone(TOPIC_ID, self.partitions, REQUESTS)
        ids = [bytes([source]) + TOPIC_ID[1:] for source in range(len(self.classes))]
        named = zip(self.classes, ids, strict=True)
        return RequestTopics([RequestTopic(f"{REQUESTS}.{name}", topic_id, name) for name, topic_id in named], self.partitions)


class Cluster:
    """`tell` hears every event that a reader of committed records could see."""

    def __init__(self, schedule: Schedule, chance: Random, setup: Broker, tell: Callable[[Event], None]) -> None:
        self.schedule = schedule
        self.chance = chance
        self.setup = setup
        self.tell = tell
        self.requests = setup.requests
        self._sources = {topic.name: source for source, topic in enumerate(self.requests.of)}
        self._ids = {text: source for source, text in enumerate(self.requests.ids)}
        named = tuple(self._sources)
        topics = (*named, REPLIES, DEAD_LETTERS, PARKED, JOURNAL, STATE)
        self.logs = {
            # What stands in a request topic is known by its strand to everybody who looks on.
            (topic, n): Log(f"{topic}-{n}", strand_of(self._sources.get(topic, 0), n), now=lambda: schedule.now)
            for topic in topics
            for n in range(setup.partitions)
        }
        self.logs[CONTROL, 0] = Log(f"{CONTROL}-0", 0)
        self.logs[WORKERS, 0] = Log(f"{WORKERS}-0", 0)
        self._epochs: dict[str, dict[int, int]] = defaultdict(dict)  # worker -> partition -> the highest under which it has had it
        self._unaware: set[str] = set()  # workers that are thrown out and have not heard of it
        self.positions = Positions(self._committed)
        self.positions.commit(dict.fromkeys(self.strands, (0, "")))
        self.transactions = Transactions(schedule, chance, self.positions, setup.sweep_s, self.published)
        self.group = self._group()
        self.held: set[str] = set()  # targets of whom something is wanted on the control topic
        # Faults of the network and the broker, while they last.
        self.away_until = 0.0
        self.refusing_until = 0.0  # the group's coordinator takes no commits
        self.losing_until = 0.0  # many answers are lost
        self.slow_until = 0.0
        self.reply_max_bytes = 1 << 30
        # What a network does without any fault: the share of answers that are lost, and of ways that are slow.
        self.lost_share = self.slow_share = 0.002

    @property
    def strands(self) -> list[int]:
        """All partitions of the request topics."""
        return [n for source in range(len(self.requests.of)) for n in self.requests.strands(source)]

    def strand(self, topic: str, partition: int) -> int:
        """A partition of a request topic as everybody here knows it."""
        return strand_of(self._sources[topic], partition)

    def labelled(self, label: object) -> int:
        """The strand that people call so."""
        return next(strand for strand in self.strands if self.requests.label(strand) == label)

    def place(self, strand: int) -> tuple[str, int]:
        """Topic and number of a strand."""
        return self.requests.of[source_of(strand)].name, number_of(strand)

    def published(self, log: Log, offset: int, message: Message) -> None:
        """Say what has become readable, or will as soon as its marker is written."""
        headers = dict(message.headers)
        if message.topic == DEAD_LETTERS:
            prefix = "__dispatcher.errors."
            strand = self.strand(_text(headers[f"{prefix}topic"]), _number(headers[f"{prefix}partition"]))
            self.tell(LetterVisible(strand, _number(headers[f"{prefix}offset"])))
            return
        if message.topic == PARKED:
            self.tell((Unparked if message.value is None else Parked)(*self._original(message.key)))
            return
        if message.topic == STATE and (message.key or b"").startswith(b"budget/"):
            return
        if message.topic == STATE:
            place = self._original(message.key)
            self.tell(Forgotten(*place) if message.value is None else Attempted(*place, orjson.loads(message.value)["failures"]))
            return
        if message.topic == CONTROL and (message.key or b"").startswith(b"rights:"):
            return
        if message.topic == CONTROL:
            self._control(_text(message.key), is_ended=message.value is None)
            return
        if message.topic == JOURNAL:
            noted = orjson.loads(message.value or b"")
            source = next(source for text, source in self._ids.items() if text.startswith(noted["topic_id"]))
            self.tell(Noted(strand_of(source, log.partition), noted["offset"]))
            return
        number, offset_of = _number(headers["dispatcher-request-partition"]), _number(headers["dispatcher-request-offset"])
        partition = self.strand(_text(headers["dispatcher-request-topic"]), number)
        self.tell(reply_visible(partition, offset_of, (log.partition, offset), message.value))

    def _control(self, target: str, *, is_ended: bool) -> None:
        if is_ended:
            self.held.discard(target)
        else:
            self.held.add(target)
        for told in self.targets(target):
            self.tell((Released if is_ended else Held)(told))

    def targets(self, target: str) -> list[str]:
        """What a command is about, with strands instead of partitions."""
        kind, _, name = target.partition(":")
        if kind == "partition":
            return [f"{kind}:{strand}" for strand in self.requests.siblings(int(name))]
        if kind == "request" and len(self.requests.of) > 1:
            place, _, topic_id = name.partition("@")
            topic, number, offset = place.rsplit("/", 2)
            return [f"{kind}:{topic}/{self.strand(topic, int(number))}/{offset}@{topic_id}"]
        return [target]

    def check_commit(self, name: str, epoch: int, to: Mapping[int, To], *, transactional: bool) -> dict[int, KafkaError]:
        """May this member commit these now? Gives what is refused of a plain commit. Raises Refused for the whole of it."""
        if self.schedule.now < self.refusing_until:
            code = KafkaError.NOT_COORDINATOR if self.chance.random() < 0.5 else KafkaError.COORDINATOR_LOAD_IN_PROGRESS
            raise Refused(retriable(code))
        refused = {n: plain(KafkaError.OFFSET_METADATA_TOO_LARGE) for n, (_, text) in to.items() if len(text) > METADATA_MAX_BYTES}
        refused |= self.group.check(name, epoch, frozenset(to), transactional=transactional)
        if refused and transactional:
            raise Refused(abortable(next(iter(refused.values())).code()))
        return refused

    def request_log(self, partition: int) -> Log:
        """Give a partition of the request topic."""
        return self.logs[self.place(partition)]

    def _group(self) -> Group:
        setup = self.setup
        arguments = (self.schedule, self.chance, Shared(setup.partitions, len(self.requests.of)), setup.session_s, self._lost)
        if setup.protocol == "consumer":
            return ConsumerGroup(*arguments)
        return ClassicGroup(*arguments, cooperative=setup.protocol == "cooperative")

    def key_of(self, partition: int, offset: int) -> str:
        """Give the lane key of a request."""
        content = self.request_log(partition).entries[offset].content
        return "" if content is None else _text(content.key)

    def compact(self) -> None:
        """Remove what is superseded from the compacted topics, as far as readers of committed records get."""
        for topic, n in self.logs:
            if topic in COMPACTED:
                self.logs[topic, n].compact()

    def _committed(self, partition: int, position: int, text: str) -> None:
        assert position <= self.request_log(partition).end, f"position {position} lies beyond the end of partition {partition}"
        note = decode(text, self.requests.topic_id(partition))
        self.tell(Committed(partition, position) if note is None else Committed(partition, position, note.settled_at(position), note.epoch))

    def _original(self, key: bytes | None) -> tuple[int, int]:
        """Take the key of a parked request, or of what is noted of one, apart."""
        *_, topic_id, partition, offset = _text(key).split("/")
        return strand_of(self._ids[topic_id], int(partition)), int(offset)

    def _lost(self, worker: str) -> None:
        self._unaware.add(worker)
        for partition, epoch in self._epochs[worker].items():
            self.tell(Lost(worker, partition, epoch))

    def took(self, worker: str, partition: int, epoch: int) -> None:
        """Hear that a worker has begun with a partition."""
        self._epochs[worker][partition] = max(epoch, self._epochs[worker].get(partition, 0))
        if worker in self._unaware:
            self.tell(Lost(worker, partition, epoch))

    def has_heard(self, worker: str) -> None:
        """Hear that a worker knows what it has lost: whatever it takes from now on is its own again."""
        self._unaware.discard(worker)


class Wire:
    """The connection of one process's client to the cluster."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._process = process
        self._chance = process.chance
        self._arrival = 0.0

    def ask(self, request: Callable[[], T], answer: Callable[[T | KafkaError], None], is_open: Callable[[], bool] = lambda: True) -> None:
        """Have the cluster do `request`; `answer` hears how it ended, in the process, if it still lives.

        An answer may be lost after the request was done: then the library asks again, while `is_open`.
        """
        now = self._cluster.schedule.now
        # One connection: what is sent later does not come before what was sent earlier.
        self._arrival = max(self._arrival, now + self._delay())
        self._cluster.schedule.after(self._arrival - now, self._arrive, request, answer, is_open)

    def _arrive(self, request: Callable[[], T], answer: Callable[[T | KafkaError], None], is_open: Callable[[], bool]) -> None:
        cluster = self._cluster
        now = cluster.schedule.now
        if now < cluster.away_until:
            # The connection is gone and the request with it; the library sends it again when there is a connection.
            self._process.after(cluster.away_until - now + self._chance.random() * 0.2, self._again, request, answer, is_open)
            return
        try:
            result: T | KafkaError = request()
        except Refused as refused:
            result = refused.error
        if self._chance.random() < (0.3 if now < cluster.losing_until else cluster.lost_share):
            self._process.after(RESEND_S, self._again, request, answer, is_open)
            return
        self._process.after(self._delay(), answer, result)

    def _again(self, request: Callable[[], T], answer: Callable[[T | KafkaError], None], is_open: Callable[[], bool]) -> None:
        if is_open():
            self.ask(request, answer, is_open)

    def _delay(self) -> float:
        slow = 0.2 if self._cluster.schedule.now < self._cluster.slow_until else self._cluster.slow_share
        return self._chance.random() * (WIRE_SLOW_S if self._chance.random() < slow else WIRE_S)


def _number(text: bytes | None) -> int:
    return int(text or b"")


def _text(text: bytes | None) -> str:
    return (text or b"").decode()


def request_record(partition: int, offset: int, key: bytes | None, value: bytes | None, request_id: str, topic: str = REQUESTS) -> Record:
    """A request as a producer wrote it."""
    return Record(topic, partition, offset, key, value, (("ce_id", request_id.encode()),))
