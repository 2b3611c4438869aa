"""Writing requests. A `Submitter` owns one idempotent producer, belongs to one thread and is a context manager.

Without a `timeout_s` contact with the broker may take `TIMEOUT_S` (15 s).
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import SLICE_S, contact
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.log import TIMEOUT_S, no_topic
from dispatcher.client.incarnation import short_topic_id
from dispatcher.core.instant import Instant
from dispatcher.core.messages.classes import classes_of
from dispatcher.core.messages.request_id import CHANCE_BITS, time_ordered
from dispatcher.core.messages.submission import Receipt, Stamp, Submission
from dispatcher.errors import ConfigError, DispatcherError, SubmitUnknown
from dispatcher.settings import Settings

# Requests of one submitter without an acknowledgement: enough to fill batches, few enough to name when the broker goes away.
OPEN_MAX = 1000
# Gathers requests that are submitted together into batches; nobody notices in a single one.
LINGER_MS = 5
# How long after its own time-out librdkafka may take to report a delivery.
REPORT_GRACE_S = 5.0
POLL_S = 0.1

# The broker's refusals: it did not write what it was given. All else in a delivery report says nothing of what was sent before: a request
# whose acknowledgement was lost waits in librdkafka's queue to be sent again, and is purged, or fails with its producer, from there. Nor
# does a topic that the broker does not know: one that has just been started knows none for a moment.
_REFUSED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)


def stamp(source: str = "dispatcher/client", request_id: str | None = None, settings: Settings | None = None) -> Stamp:
    """Make the marks of a new request: now, and a new id unless one is given. `settings`: as the workers have them, if that is known."""
    now_ms = time.time_ns() // 1_000_000
    known = () if settings is None else (settings.worker.publishing, classes_of(settings))
    return Stamp(request_id or time_ordered(now_ms, secrets.randbits(CHANCE_BITS)), source, _rfc3339(now_ms), *known)


@dataclass(slots=True)
class Sent:
    """A request on its way. The callback of librdkafka fills in how it ended, puts it into `ended`, and does nothing else."""

    key: bytes | None
    request_id: str | None
    topic: str
    ended: deque[Sent] | None = None
    settled: bool = False
    taken: bool = False  # by the producer: what it refused at once was certainly not written
    error: KafkaError | None = None
    place: tuple[int, int, int] = (-1, -1, 0)  # partition, offset, milliseconds since 1970


class Submitter:
    """Writes requests to the request topic: idempotent, placed by murmur2, in the order given.

    `timeout_s` bounds the wait for the broker, and for the acknowledgement of each request. Errors: `BrokerError` and `ConfigError` mean
    that nothing was written; `SubmitUnknown` carries the id under which submitting again is safe.
    """

    def __init__(self, settings: Settings, *, timeout_s: float | None = None, linger_ms: float = LINGER_MS) -> None:
        self._settings = settings
        self._timeout_s = timeout_s or TIMEOUT_S
        self._topic_ids: dict[str, str] = {}
        self._complaints = Complaints(settings)
        self._producer = clients.producer(
            settings, linger_ms=linger_ms, delivery_timeout_s=self._timeout_s, on_error=self._complaints.heard
        )

    def __enter__(self) -> Self:
        """Reach the broker and see that the topic is there, so that what fails later failed on its own."""
        try:
            # All topics: asking for one by name would create it on a broker that allows it, with any number of partitions.
            known = contact(lambda slice_s: self._producer.list_topics(timeout=slice_s), self._timeout_s).topics
        except KafkaException as error:
            self._producer.poll(0)
            raise self._complaints.fault(error, "submitting") from None
        for view in self._settings.meant:
            if view.topics.requests not in known:
                raise no_topic(view.topics.requests)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what nobody waits for any more; what was acknowledged is unharmed."""
        self._producer.purge()
        self._producer.poll(0)

    def submit(self, submission: Submission) -> Receipt:
        """Write one request and wait for its acknowledgement."""
        sent = self.send(submission)
        self._await(sent)
        outcome = self.outcome(sent)
        if isinstance(outcome, DispatcherError):
            raise outcome
        return outcome

    def submit_many(self, submissions: Iterable[Submission | None]) -> Iterator[Receipt | DispatcherError]:
        """Write requests as they come and yield how each ended, in their order; at most `OPEN_MAX` are open at once.

        A None in between means that the next may take its time: everything open is settled before it is asked for.
        """
        waiting: deque[Sent] = deque()
        for submission in submissions:
            if submission is not None:
                waiting.append(self.send(submission))
            yield from self._ready(waiting, OPEN_MAX if submission is not None else 0)
        yield from self._ready(waiting, 0)

    def _ready(self, waiting: deque[Sent], open_max: int) -> Iterator[Receipt | DispatcherError]:
        self.poll(0)
        while waiting and (waiting[0].settled or len(waiting) > open_max):
            sent = waiting.popleft()
            self._await(sent)
            yield self.outcome(sent)

    def greet(self) -> None:
        """Reach the broker, if it is there, before the first request.

        A producer that is given one within its first milliseconds, before it is connected, asks for its producer id half a second later
        (librdkafka 2.16).
        """
        with contextlib.suppress(KafkaException):
            self._producer.list_topics(timeout=SLICE_S)

    def poll(self, timeout_s: float) -> None:
        """Take in how requests ended: those that have, or the first to end within `timeout_s`."""
        self._producer.poll(timeout_s)

    def send(self, submission: Submission, ended: deque[Sent] | None = None) -> Sent:
        """Hand a request to the producer; a full queue is waited for, since callers have no better idea. It is in `ended` once it has."""
        sent = Sent(submission.key, submission.request_id, submission.topic or self._topic, ended)
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    sent.topic,
                    value=submission.value,
                    key=submission.key,
                    headers=list(submission.headers),
                    on_delivery=partial(_delivered, sent),
                )
                sent.taken = True
            except BufferError:
                self._producer.poll(POLL_S)
                if time.monotonic() < deadline:
                    continue
                _settle(sent, KafkaError(KafkaError._QUEUE_FULL))
            except KafkaException as error:
                _settle(sent, error.args[0])
            return sent

    @property
    def _topic(self) -> str:
        """Where requests stand that do not say it. ConfigError where they must: they are of one class."""
        return classes_of(self._settings).topic_of(None) or self._settings.topics.requests

    def _await(self, sent: Sent) -> None:
        deadline = time.monotonic() + self._timeout_s + REPORT_GRACE_S
        while not sent.settled and time.monotonic() < deadline:
            self._producer.poll(POLL_S)

    def outcome(self, sent: Sent) -> Receipt | DispatcherError:
        """Say how a request ended; one that has not has an unknown end."""
        if not sent.settled or sent.error is not None:
            return self._failure(sent)
        partition, offset, time_ms = sent.place
        try:
            name = sent.request_id or f"{sent.topic}/{partition}/{offset}@{self._short_topic_id(sent.topic)}"
        except DispatcherError as error:
            return error
        return Receipt(name, sent.topic, partition, offset, sent.key, _rfc3339(time_ms))

    def _failure(self, sent: Sent) -> DispatcherError:
        """Say why there is no acknowledgement, and above all whether the request may be in the topic all the same."""
        error = sent.error
        if error is not None and error.code() in {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}:
            limit = self._settings.topics.request_max_bytes
            return ConfigError(
                "the request is larger than its topic takes", f"topics.request_max_bytes is {limit}: pass large content by reference"
            )
        if error is not None and (error.code() in _REFUSED or not sent.taken):
            return self._complaints.explain(error, "submitting")
        name = f"request {sent.request_id}" if sent.request_id else "a request without an id"
        hint = (
            "it may be in the topic: submit it again under this id"
            if sent.request_id
            else "it may be in the topic: look at `dispatcher requests`"
        )
        return SubmitUnknown(f"no acknowledgement for {name} within {self._timeout_s:g} s", hint, request_id=sent.request_id)

    def _short_topic_id(self, topic: str) -> str:
        """Return the beginning of a topic's id, as ids of requests without one have it; asked for once."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = short_topic_id(self._settings, topic, self._timeout_s)
        return self._topic_ids[topic]


def _delivered(sent: Sent, error: KafkaError | None, message: Message) -> None:
    """Take in a delivery report. Called by librdkafka inside `poll`: must not raise, must not call the producer."""
    if error is None:
        sent.place = (message.partition() or 0, message.offset() or 0, message.timestamp()[1])
    _settle(sent, error)


def _settle(sent: Sent, error: KafkaError | None) -> None:
    sent.error, sent.settled = error, True
    if sent.ended is not None:
        sent.ended.append(sent)


def _rfc3339(time_ms: int) -> str:
    return Instant(0, time_ms / 1000).rfc3339()
