"""Reading our own topics while others write them: from where to where, up to an end that was asked for, and the news behind it.

Readers get what is committed. Where a topic ends is asked as one who reads everything: for a read_committed consumer the watermark is
the last stable offset, and what an open transaction of a former owner holds would be missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import STEP_S, Cluster
from dispatcher.adapters.kafka.faults import RIGHTS, Complaints, error_of, is_fatal
from dispatcher.adapters.kafka.log import Stretch, no_topic
from dispatcher.adapters.kafka.offsets import Place, ask_edges, ask_times, offset_of, patiently, time_offset_of, watermarks
from dispatcher.adapters.kafka.records import record_of
from dispatcher.adapters.kafka.tail import Tail
from dispatcher.core.messages.record import Record
from dispatcher.errors import BrokerAway, BrokerDenied, DispatcherError, PartitionAway, TopicAway
from dispatcher.settings import Settings

# One question, and one wait for a record: who reads has other things to do, and shows in between that it lives.
QUESTION_S = 3.0
POLL_S = 0.01
# The first question of a client. One in fifty is never answered: librdkafka 2.16 waits for metadata ("Failed to query partition leaders")
# that it asked for before it had a connection. Asked again it answers in milliseconds; a slow broker is given longer and longer.
FIRST_QUESTION_S = 0.25
# A fetch that is under way when a reading ends holds up the next one's first.
FETCH_WAIT_MS = 20
# Nothing came for this long: is the end still there? Kafka may be away, or the topic was made anew.
QUIET_S = 5.0

_GONE = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


_Offset = TypeVar("_Offset")


@dataclass(frozen=True, slots=True)
class Ended:
    """A partition has been read up to its stop."""

    partition: int


Item = Record | Ended | None
"""What a reading yields; None where nothing came for a moment, so that the owner may see to other things."""
Items = Generator[Item, None, None]
Question = Generator[bool, None, dict[int, int]]
"""What is asked: it yields True each time that it has waited a moment, and returns the answer by partition."""
_Answers = Mapping[Place, Future[ListOffsetsResultInfo]]


class CompactedReader:
    """Owned by one thread. Connections are opened when they are first needed, and kept; readings may be nested, each has its own.

    Raises `BrokerAway` where Kafka does not answer (who has time asks again), as `TopicAway` where it says that it knows no such topic
    and as `PartitionAway` where that has no such partition; `BrokerDenied` where a right is missing.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._complaints = Complaints(settings)
        self._cluster: Cluster | None = None
        self._question_s = FIRST_QUESTION_S
        self._idle: list[Consumer] = []
        self._tail: Tail | None = None
        self._followed = ("", 0)  # topic, and the offset behind its last record that was told

    def ends(self, topic: str, partitions: Collection[int]) -> Question:
        """Tell where partitions end, open transactions included."""
        return (yield from self._ends(topic, partitions))

    def since(self, topic: str, times_ms: Mapping[int, int]) -> Question:
        """Tell where the first record of a time (by partition, milliseconds since 1970) or later stands, or stands not before.

        Readers of what is committed are told of nothing behind the first open transaction: where there is none before it, it may stand
        there, from where the log was stable before it was asked.
        """
        stable = yield from self._ends(topic, tuple(times_ms), committed=True)
        times = {(topic, number): time_ms for number, time_ms in times_ms.items()}

        def ask(client: AdminClient, attempt_s: float) -> _Answers:
            return ask_times(client, times, attempt_s)

        found = yield from self._told(topic, ask, time_offset_of)
        return stable | {number: offset for number, offset in found.items() if offset is not None}

    def _ends(self, topic: str, partitions: Collection[int], *, committed: bool = False) -> Question:
        places = [(topic, number) for number in partitions]

        def ask(client: AdminClient, attempt_s: float) -> _Answers:
            return ask_edges(client, places, "latest", attempt_s, committed=committed)

        return (yield from self._told(topic, ask, offset_of))

    def _told(
        self, topic: str, ask: Callable[[AdminClient, float], _Answers], take: Callable[[ListOffsetsResultInfo], _Offset]
    ) -> Generator[bool, None, dict[int, _Offset]]:
        """Ask for offsets until there is an answer, which `take` takes out of what comes."""
        if self._cluster is None:
            self._cluster = Cluster(self._asking(), self._complaints, QUESTION_S, self._asking)
        cluster = self._cluster

        def once(attempt_s: float) -> Generator[bool, None, dict[int, _Offset]]:
            attempt_s, self._question_s = min(attempt_s, self._question_s), 2 * self._question_s
            answers = ask(cluster.client, attempt_s)
            try:
                yield from _landed(answers.values(), attempt_s + 1)
                found = {number: take(answer.result(timeout=0)) for (_, number), answer in answers.items()}
            except KafkaException as failure:
                if (error := error_of(failure)) is not None and error.code() == KafkaError._NOENT:
                    yield from self._require(cluster.client, topic, {number for _, number in answers})
                raise
            self._question_s = QUESTION_S
            return found

        try:
            found = yield from cluster.insisting(once, f"asking for places in {topic}")
        except DispatcherError as fault:
            raise _passing(fault) from None
        self._complaints.forget()
        return found

    def _require(self, client: AdminClient, topic: str, partitions: Collection[int]) -> Generator[bool, None, None]:
        """Nobody leads one of these: raise TopicAway where there is no such topic, PartitionAway where there is no such partition.

        librdkafka says the same of those as of a partition that has no leader for a moment. What cannot be found out is left open.
        """
        (described,) = client.describe_topics(TopicCollection([topic]), request_timeout=QUESTION_S).values()
        yield from _landed([described], QUESTION_S + 1)
        try:
            count = len(described.result(timeout=0).partitions)
        except (KafkaException, FutureTimeout) as failure:
            if (error := error_of(failure)) is not None and error.code() in {*_GONE, *RIGHTS}:
                raise self._fault(failure, topic) from None
            return
        if count <= max(partitions):
            raise PartitionAway(f"topic {topic} has no partition {max(partitions)} (it has {count})", "was the topic made anew?")

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Items:
        """Yield the records from an offset up to, not including, another, by partition, in each one's order.

        A partition ends by offset, whatever is missing before it (compaction, aborted records, markers); an open transaction before its
        stop is waited for. An empty range takes no request.
        """
        stretches: dict[int, Stretch] = {}
        for number, (start, stop) in ranges.items():
            if start < stop:
                stretches[number] = Stretch(start, stop, start)
            else:
                yield Ended(number)
        if stretches:
            yield from self._reading(topic, stretches)

    def follow(self, topic: str, offset: int) -> None:
        """Have `news` of the one partition of `topic`, from `offset` on."""
        self._tail = self._tail or Tail(self._settings)
        self._followed = topic, offset
        self._tail.add((topic, 0), offset)

    def news(self, timeout_s: float) -> list[Record]:
        """Give what has come in the topic that is followed; waits for the first record, at most `timeout_s`."""
        self._serve()
        if self._tail is None:
            return []
        topic, offset = self._followed
        try:
            batch = self._tail.read(timeout_s)
        except KafkaException as failure:
            self._tail = None
            self.follow(topic, offset)
            raise self._fault(failure, topic) from None
        if batch.records:
            self._followed = topic, batch.records[-1].next_offset
            return batch.records
        for place, fault in batch.faults.items():
            self._tail.drop(place)
            self._tail.add(place, offset)
            raise _passing(fault)
        return []

    def close(self) -> None:
        """Let go of the connections."""
        for consumer in self._idle:
            consumer.close()
        self._idle.clear()
        if self._tail is not None:
            self._tail.close()
        self._tail = self._cluster = None

    def _serve(self) -> None:
        """Take in what the clients that nobody reads with have to say: it would fill the memory while Kafka is away."""
        self._idle = [consumer for consumer in self._idle if not _has_failed(consumer.poll(0))]
        if self._cluster is not None:
            self._cluster.client.poll(0)

    def _asking(self) -> AdminClient:
        self._question_s = FIRST_QUESTION_S
        return clients.admin(self._settings, on_error=self._complaints.heard)

    def _reading(self, topic: str, stretches: dict[int, Stretch]) -> Items:
        """Read with a consumer that nobody else reads with; one that failed is not used again."""
        consumer = self._consumer()
        try:
            yield from self._items(consumer, topic, stretches)
            self._idle.append(consumer)
        except (KafkaException, DispatcherError) as failure:
            self._let_go(consumer, failure)
            raise self._fault(failure, topic) from None
        except GeneratorExit:
            consumer.unassign()
            self._idle.append(consumer)
            raise

    def _consumer(self) -> Consumer:
        if self._idle:
            return self._idle.pop()
        return clients.consumer(self._settings, fetch_wait_ms=FETCH_WAIT_MS, on_error=self._complaints.heard)

    def _let_go(self, consumer: Consumer, failure: BaseException) -> None:
        error = error_of(failure)
        if error is None or not is_fatal(error):  # one that has failed for good would not come back from being closed
            with suppress(KafkaException):
                consumer.close()

    def _items(self, consumer: Consumer, topic: str, stretches: dict[int, Stretch]) -> Items:
        _begin(consumer, topic, stretches)
        quiet_since = time.monotonic()
        while stretches:
            message = consumer.poll(POLL_S)
            now = time.monotonic()
            if message is None:
                if now - quiet_since > QUIET_S:
                    yield from self._look(topic, stretches)
                    quiet_since = time.monotonic()
                yield None
                continue
            quiet_since = now
            error = message.error()
            if _has_failed(message):
                raise KafkaException(error)
            number = message.partition()
            stretch = None if number is None else stretches.get(number)
            if number is None or stretch is None:
                continue
            if error is not None:
                _event(consumer, message, error, stretch)
            else:
                record = record_of(message)
                stretch.position = record.next_offset
                if stretch.start <= record.offset and (stretch.stop is None or record.offset < stretch.stop):
                    yield record
            if stretch.done:
                del stretches[number]
                consumer.incremental_unassign([TopicPartition(topic, number)])
                yield Ended(number)

    def _look(self, topic: str, stretches: Mapping[int, Stretch]) -> Items:
        """Nothing came for a while: an open transaction, unless Kafka is away or the log is not the one that it was."""
        ends: dict[int, int] = {}
        for _ in _kept(self.ends(topic, tuple(stretches)), ends):
            yield None
        for number, end in ends.items():
            if (stop := stretches[number].stop) is not None and end < stop:
                raise BrokerAway(f"partition {number} of {topic} ends before where it did end", "was the topic made anew?")

    def _fault(self, failure: BaseException, topic: str) -> DispatcherError:
        error = error_of(failure)
        if error is not None and error.code() in _GONE:
            gone = no_topic(topic)
            return TopicAway(gone.message, gone.hint)
        return _passing(self._complaints.fault(failure, f"reading {topic}"))


def _landed(answers: Collection[Future[Any]], within_s: float) -> Generator[bool, None, None]:
    """Wait for answers in steps; who takes one that is not there afterwards is told so by it."""
    end = time.monotonic() + within_s
    while wait(answers, STEP_S).not_done and time.monotonic() < end:
        yield True


def _kept(question: Question, answer: dict[int, int]) -> Generator[bool, None, None]:
    """The steps of a question, whose answer goes into `answer`."""
    answer.update((yield from question))


def _has_failed(message: Message | None) -> bool:
    """Whether a client says that it is of no use any more. It names no topic, and partition 0 all the same."""
    return message is not None and (error := message.error()) is not None and is_fatal(error)


def _begin(consumer: Consumer, topic: str, stretches: Mapping[int, Stretch]) -> None:
    # What was removed at the beginning is passed over by Kafka; elsewhere it has to be found out.
    consumer.incremental_assign(
        [TopicPartition(topic, number, stretch.position or OFFSET_BEGINNING) for number, stretch in stretches.items()]
    )


def _event(consumer: Consumer, message: Message, error: KafkaError, stretch: Stretch) -> None:
    """Take in what is not a record: the end of what is stable, a start that is gone, or a failure."""
    code = error.code()
    topic, number = message.topic(), message.partition()
    if code == KafkaError._PARTITION_EOF:
        stretch.position = max(stretch.position, message.offset() or 0)
    elif code in _LOST and topic is not None and number is not None:
        first, _ = patiently(lambda left_s: watermarks(consumer, (topic, number), left_s), time.monotonic() + QUESTION_S)
        stretch.position = max(stretch.position, first)
        consumer.incremental_unassign([TopicPartition(topic, number)])
        _begin(consumer, topic, {number: stretch})
    elif code in _GONE or code in RIGHTS or error.fatal() or not error.retriable():
        raise KafkaException(error)


def _passing(fault: DispatcherError) -> DispatcherError:
    """The fault as one that may pass, unless it is a right that is missing: a topic may be made anew, a login be mended."""
    return fault if isinstance(fault, BrokerAway | BrokerDenied) else BrokerAway(fault.message, fault.hint)
