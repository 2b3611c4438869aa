"""Reading one topic from where to where, without a group: nothing is joined, nothing is committed, nobody is disturbed.

Readers see what is committed and no more: "the end" is the last stable offset, and an open transaction stands behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import contact
from dispatcher.adapters.kafka.faults import Complaints, error_of
from dispatcher.adapters.kafka.offsets import at_times, patiently, watermarks
from dispatcher.adapters.kafka.records import record_of
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.positions import END, Anchor, Position, Span
from dispatcher.errors import ConfigError, DispatcherError, WaitTimeout
from dispatcher.settings import Settings

# One wait for a message; Ctrl-C is noticed after at most this long.
POLL_S = 0.2
# Between two looks whether an open transaction has ended.
STABLE_POLL_S = 0.1
# Contact with the broker when the caller says nothing: several attempts, and still an answer while a person waits.
TIMEOUT_S = 15.0

_GONE = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class Extent:
    """A span in one partition, in offsets: what is there (`first` up to `end`), and what is asked for (`start` up to `stop`)."""

    first: int
    end: int
    start: int
    stop: int | None


@dataclass(slots=True)
class Stretch:
    """What is read of one partition: from `start` up to, not including, `stop` (None: for ever). `position` is the next offset to read."""

    start: int
    stop: int | None
    position: int

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return self.stop is not None and self.position >= self.stop


class LogReader:
    """A groupless read_committed reader of one topic. Owned by one thread; a context manager.

    `timeout_s` bounds each contact with the broker: opening, and staying without it once it was lost. Errors: `ConfigError` for a topic
    or partition that does not exist, `BrokerError` where Kafka cannot be reached or refuses.
    """

    def __init__(self, settings: Settings, topic: str, timeout_s: float = TIMEOUT_S) -> None:
        self.topic = topic
        # What was searched, by partition: grows while `read` runs.
        self.stretches: dict[int, Stretch] = {}
        self._timeout_s = timeout_s
        self._complaints = Complaints(settings)
        self._troubled = False
        self._stopped = False
        self._consumer = clients.consumer(settings, on_error=self._heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; may be repeated."""
        self._consumer.close()

    def stop(self) -> None:
        """End what is being read, within about `POLL_S`. The one method that another thread than the owner may call."""
        self._stopped = True

    def read(self, span: Span, *, partitions: Sequence[int] | None = None, until_end: bool = False) -> Iterator[Record]:
        """Yield the records of `span` in each partition's order; `until_end` stops at the end that is there when it begins.

        A partition ends by *offset*: at a record at or behind its stop, or when the broker says that there is nothing up to there (logs
        have holes: aborted records, transaction markers, what retention took). Without a stop it follows for ever.
        """
        self.stretches = self._plan(span, partitions, until_end=until_end)
        yield from self._read()

    def read_ranges(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Record]:
        """Yield the records from an offset up to, not including, another, by partition. An end that is not there yet is waited for."""
        self.stretches = {number: Stretch(start, stop, start) for number, (start, stop) in ranges.items()}
        yield from self._read()

    def extents(self, span: Span, partitions: Sequence[int] | None = None) -> dict[int, Extent]:
        """Tell where a span lies in each partition, without reading it."""
        deadline = time.monotonic() + self._timeout_s
        try:
            numbers = self._partitions(partitions, deadline)
            edges = {number: self._edges(number, deadline) for number in numbers}
            starts = self._offsets(span.since, edges, deadline)
            stops = self._offsets(span.until, edges, deadline) if span.until is not None else {}
        except KafkaException as error:
            raise self._fault(error) from None
        return {number: Extent(first, end, starts[number], stops.get(number)) for number, (first, end) in edges.items()}

    def await_stable(self, ends: Mapping[int, int]) -> None:
        """Wait until no open transaction hides what stands before `ends`, by partition. WaitTimeout."""
        deadline = time.monotonic() + self._timeout_s
        while hidden := [n for n, extent in self.extents(Span(END), tuple(ends)).items() if extent.end < ends[n]]:
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"an open transaction hides the end of partition {hidden[0]} of {self.topic}",
                    "it ends by itself, mostly within a minute; try the same again then",
                )
            time.sleep(STABLE_POLL_S)

    def _read(self) -> Iterator[Record]:
        """Yield the records of the stretches, each to its stop."""
        pending = {number for number, stretch in self.stretches.items() if not stretch.done}
        if not pending:
            return
        self._assign()
        while pending and (message := self._next()) is not None:
            number = message.partition()
            if number is None or number not in pending:
                continue
            stretch = self.stretches[number]
            if (error := message.error()) is not None:
                self._event(message, error, stretch)
            else:
                record = record_of(message)
                stretch.position = record.next_offset
                if stretch.start <= record.offset and (stretch.stop is None or record.offset < stretch.stop):
                    yield record
            if stretch.done:
                pending.discard(number)
                # Else a busy partition would go on filling the prefetch queue of the others.
                self._consumer.pause([TopicPartition(self.topic, number)])

    def _plan(self, span: Span, partitions: Sequence[int] | None, *, until_end: bool) -> dict[int, Stretch]:
        """Decide every offset before the first record, so that what comes meanwhile moves no end."""
        plan = {}
        for number, extent in self.extents(span, partitions).items():
            stop = extent.stop
            if until_end:
                stop = extent.end if stop is None else min(stop, extent.end)
            plan[number] = Stretch(extent.start, stop, min(max(extent.start, extent.first), extent.end))
        return plan

    def _partitions(self, wanted: Sequence[int] | None, deadline: float) -> list[int]:
        """Return the partitions to read, all that there are unless some are named."""
        known = contact(lambda slice_s: self._consumer.list_topics(self.topic, timeout=slice_s), _left(deadline)).topics[self.topic]
        if known.error is not None:
            raise KafkaException(known.error)
        numbers = sorted(known.partitions)
        for number in wanted or ():
            if number not in known.partitions:
                raise ConfigError(f"topic {self.topic} has no partition {number}", f"it has 0 to {len(numbers) - 1}")
        return numbers if wanted is None else sorted(set(wanted))

    def _edges(self, number: int, deadline: float) -> tuple[int, int]:
        """Return the first offset and the end (the last stable offset) of a partition."""
        return patiently(partial(watermarks, self._consumer, (self.topic, number)), deadline)

    def _offsets(self, position: Position, edges: dict[int, tuple[int, int]], deadline: float) -> dict[int, int]:
        """Turn a position into an offset per partition; a time later than every record is the end."""
        if position.anchor is not Anchor.TIME:
            return {number: position.offset(first, end) for number, (first, end) in edges.items()}
        asked = {(self.topic, number): position.number for number in edges}
        found = patiently(partial(at_times, self._consumer, asked), deadline)
        return {number: end if offset is None else min(offset, end) for (_, number), offset in found.items() for end in edges[number][1:]}

    def _next(self) -> Message | None:
        """Wait for the next message or event; as long as the broker is there. None once the reader was stopped."""
        quiet_since = time.monotonic()
        while not self._stopped:
            message = self._consumer.poll(POLL_S)
            if message is not None:
                return message
            waits_for_end = any(stretch.stop is not None and not stretch.done for stretch in self.stretches.values())
            if self._troubled or (waits_for_end and time.monotonic() - quiet_since > self._timeout_s):
                self._probe()
                quiet_since = time.monotonic()
        return None

    def _probe(self) -> None:
        """Ask the broker anything: after this it is there, or the reader ends with the reason."""
        self._troubled = False
        number = next(iter(self.stretches))
        try:
            self._partitions(None, time.monotonic() + self._timeout_s)
            self._edges(number, time.monotonic() + self._timeout_s)
        except KafkaException as error:
            raise self._fault(error) from None

    def _event(self, message: Message, error: KafkaError, stretch: Stretch) -> None:
        """Take in what is not a record: the end of a partition, a start that retention took away, or a failure."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            stretch.position = max(stretch.position, message.offset() or 0)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            self._catch_up(message.partition() or 0, stretch)
        elif code in _GONE or error.fatal() or not error.retriable():
            raise self._fault(KafkaException(error))

    def _catch_up(self, number: int, stretch: Stretch) -> None:
        """Go on at what is left of a partition whose next record is no longer there."""
        try:
            first, end = self._edges(number, time.monotonic() + self._timeout_s)
            stretch.position = min(max(stretch.position, first), end)
        except KafkaException as error:
            raise self._fault(error) from None
        # librdkafka has stopped this partition and refuses to seek in it.
        self._assign()

    def _assign(self) -> None:
        """Read what is not done from where it stands; what was fetched ahead is fetched again."""
        self._consumer.assign(
            [TopicPartition(self.topic, n, stretch.position) for n, stretch in self.stretches.items() if not stretch.done]
        )

    def _fault(self, failure: KafkaException) -> DispatcherError:
        """Say why reading failed; a topic that is not there is a matter of settings."""
        error = error_of(failure)
        if error is not None and error.code() in _GONE:
            return no_topic(self.topic)
        return self._complaints.fault(failure, f"reading {self.topic}")

    def _heard(self, error: KafkaError) -> None:
        """Note trouble, told by librdkafka inside `poll`. Nothing is raised here: most of it passes by itself."""
        self._complaints.heard(error)
        self._troubled = True


def _left(deadline: float) -> float:
    """Return the seconds up to `deadline`; never 0, which librdkafka may take for "no wait" or "for ever"."""
    return max(0.05, deadline - time.monotonic())


def no_topic(topic: str) -> ConfigError:
    """Say that a topic does not exist, and how it comes to be."""
    return ConfigError(
        f"topic {topic} does not exist", "`dispatcher topics init` creates it; check topics.prefix and kafka.bootstrap_servers"
    )
