"""Driving the demo: sends what is planned when it is due, and reads the replies while they come. One thread sends, one reads."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import httpx
import orjson

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.positions import START, Span
from dispatcher.demo.load import Planned
from dispatcher.demo.tally import Ending, Evidence, Position, Sent, calls_of, position_in, text_of
from dispatcher.errors import BrokerError, WaitTimeout
from dispatcher.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# Between two looks at the queue of replies; the display is no faster.
TICK_S = 0.05
# After the last request is sent: the fullest lane has some seconds of work left, retries included.
REST_S = 45.0
CONNECT_S = 15.0
# librdkafka gets a new idempotent producer its identity by a timer of 0.5 s: that is no request's overhead.
WARM_S = 0.7

Heard = tuple[Record, float] | BaseException


@dataclass(slots=True)
class Driven:
    """How far it is. Owned by the sending thread."""

    planned: int
    sent: list[Sent] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    seen_s: dict[Position, float] = field(default_factory=dict)
    failure: str | None = None

    @property
    def waiting(self) -> int:
        """Requests that have no reply yet."""
        return len(self.sent) - len(self.seen_s)

    @property
    def done(self) -> bool:
        """Whether every request is acknowledged and answered."""
        return len(self.sent) == self.planned and self.waiting <= 0


def drive(settings: Settings, plan: Sequence[Planned], watch: Callable[[Driven], None]) -> Driven:
    """Send the plan and follow its replies to the last one. `watch` is called every tick and may raise to end it.

    Errors: BrokerError if Kafka does not take a request; WaitTimeout if replies are missing REST_S after the last request.
    """
    heard: SimpleQueue[Heard] = SimpleQueue()
    reader = threading.Thread(target=_follow, args=(settings, len(plan), heard), name="replies", daemon=True)
    reader.start()
    driven = Driven(len(plan))
    producer = clients.producer(settings, linger_ms=1)
    producer.list_topics(settings.topics.requests, timeout=CONNECT_S)
    producer.poll(WARM_S)
    due = sorted(plan, key=lambda planned: planned.at_s, reverse=True)
    start = time.monotonic()
    end = start + (due[0].at_s if due else 0) + REST_S
    while not driven.done:
        while due and due[-1].at_s <= time.monotonic() - start:
            planned = due.pop()
            report = partial(_delivered, driven, planned, time.time())
            producer.produce(
                settings.topics.requests,
                planned.value,
                planned.key,
                partition=planned.partition,
                headers=list(planned.headers),
                on_delivery=report,
            )
        rest_s = due[-1].at_s - (time.monotonic() - start) if due else TICK_S
        producer.poll(max(0.0, min(rest_s, TICK_S)))
        _take(heard, driven)
        watch(driven)
        if driven.failure is not None:
            raise BrokerError(driven.failure)
        if time.monotonic() > end:
            raise WaitTimeout(
                f"{driven.waiting} requests have no reply {REST_S:g} s after the last was sent", "the worker's log may say why"
            )
    reader.join()
    return driven


def _delivered(driven: Driven, planned: Planned, at_s: float, error: KafkaError | None, message: Message) -> None:
    """Take in the acknowledgement of one request, inside `poll` of the sending thread."""
    if error is not None:
        driven.failure = f"Kafka did not take a request: {error.name()}"
        return
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    driven.sent.append(Sent(planned, (partition, offset), at_s))


def _follow(settings: Settings, count: int, heard: SimpleQueue[Heard]) -> None:
    """Read replies from the start of the topic until so many requests have one (the reading thread)."""
    answered: set[Position] = set()
    try:
        with LogReader(settings, settings.topics.replies) as log:
            for reply in log.read(Span(START)):
                heard.put((reply, time.time()))
                answered.add(request_of(reply))
                if len(answered) >= count:
                    return
    except BaseException as failure:  # noqa: BLE001 - handed to the thread that can say so
        heard.put(failure)


def _take(heard: SimpleQueue[Heard], driven: Driven) -> None:
    while True:
        try:
            news = heard.get_nowait()
        except Empty:
            return
        if isinstance(news, BaseException):
            raise news
        reply, at_s = news
        driven.seen_s.setdefault(request_of(reply), at_s)
        driven.statuses[text_of(reply, "dispatcher-status") or "?"] += 1


def request_of(reply: Record) -> Position:
    """Give the position of the request that a reply answers."""
    return position_in(reply, "dispatcher-request-partition", "dispatcher-request-offset")


def gather(settings: Settings, driven: Driven, upstream_url: str) -> Evidence:
    """Read everything again once the worker has ended: what is there now is all that there will be."""
    with LogReader(settings, settings.topics.replies) as log:
        endings = [_ending(reply) for reply in log.read(Span(START), until_end=True)]
    letters: defaultdict[Position, list[str]] = defaultdict(list)
    with LogReader(settings, settings.topics.dead_letters) as log:
        for letter in log.read(Span(START), until_end=True):
            position = position_in(letter, "__dispatcher.errors.partition", "__dispatcher.errors.offset")
            letters[position].append(text_of(letter, "__dispatcher.errors.reason") or "?")
    with httpx.Client(base_url=upstream_url, trust_env=False) as client:
        events = [orjson.loads(line) for line in client.get("/witness").raise_for_status().content.splitlines()]
        witness = orjson.loads(client.get("/witness/summary").raise_for_status().content)
    return Evidence(driven.sent, endings, letters, driven.seen_s, calls_of(events, witness["monotonic_to_unix_s"]), witness)


def _ending(reply: Record) -> Ending:
    value = orjson.loads(reply.value or b"{}")
    return Ending(request_of(reply), value.get("status", "?"), value.get("reason"))
