"""The control topic as operators use it: reading what is wanted, and writing a command that stands there when this returns."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer

from confluent_kafka import KafkaError, KafkaException, Message

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import Command, Desired
from dispatcher.core.messages import record
from dispatcher.core.messages.request_id import CHANCE_BITS, time_ordered
from dispatcher.core.operations.positions import START, Anchor, Position, Span
from dispatcher.errors import BrokerAway, DispatcherError, WaitTimeout
from dispatcher.settings import Settings

POLL_S = 0.1
# How long after its own time-out librdkafka may take to report a delivery.
REPORT_GRACE_S = 5.0


def desired(settings: Settings, timeout_s: float, *, beyond: int = -1) -> Desired:
    """Read what is wanted now, the whole topic. Blocks. Errors as `LogReader` has them.

    `beyond`: the record at this offset is waited for, since a transaction of a worker may stand open before it, which hides it from all
    readers. WaitTimeout where it does not come within `timeout_s`.
    """
    found = Desired()
    with LogReader(settings, settings.topics.control, timeout_s) as reader:
        for one in reader.read(Span(START), until_end=True):
            found.apply(one)
    if found.position <= beyond:
        with following(settings, settings.topics.control, at(found.position), timeout_s) as later:
            for one in later:
                found.apply(one)
                if found.position > beyond:
                    break
            else:
                hint = "a transaction of a worker may be open before it: look again in some seconds, with `dispatcher lanes list`"
                raise WaitTimeout(f"what was written to the control topic at offset {beyond} cannot be read back yet", hint)
    return found


def command(target: str, state: str, reason: str = "", *, ends: str = "", key: bytes | None = None) -> Command:
    """Make a command of whoever runs this, now. `key`: the lane key of the request that it is about."""
    now_ms = time.time_ns() // 1_000_000
    made = time_ordered(now_ms, secrets.randbits(CHANCE_BITS))
    return Command(made, target, state, Instant(0, now_ms / 1000).rfc3339(), whoami(), reason, ends, text_of(key))


def text_of(key: bytes | None) -> str:
    """Give a lane key as a command names it: empty where it is no text, which no lane has."""
    try:
        return (key or b"").decode()
    except UnicodeDecodeError:
        return ""


def whoami() -> str:
    """Name whoever runs this: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@dataclass(slots=True)
class _Report:
    """How a delivery ended; filled in by librdkafka."""

    offset: int | None = None
    error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error = error
        if error is None:
            self.offset = message.offset()


def write(settings: Settings, message: record.Message, timeout_s: float) -> int:
    """Write one record to the control topic; its offset once all replicas in sync have it. Blocks.

    BrokerError where it was refused, or where there was no answer within `timeout_s`: it may stand there all the same, and to write the
    same command again does no harm.
    """
    complaints, report = Complaints(settings), _Report()
    producer = clients.producer(settings, delivery_timeout_s=timeout_s, on_error=complaints.heard)
    doing = "writing to the control topic"
    try:
        producer.produce(message.topic, message.value, message.key, message.partition, report, headers=list(message.headers))
    except KafkaException as failure:
        raise complaints.fault(failure, doing) from None
    end = time.monotonic() + timeout_s + REPORT_GRACE_S
    while report.offset is None and report.error is None and time.monotonic() < end:
        producer.poll(POLL_S)
    if report.offset is not None:
        return report.offset
    producer.purge()
    raise _unwritten(complaints, report.error, doing)


def _unwritten(complaints: Complaints, error: KafkaError | None, doing: str) -> DispatcherError:
    if error is not None and error.code() == KafkaError._MSG_TIMED_OUT:
        error = None
    found = complaints.explain(error, doing)
    if isinstance(found, BrokerAway):
        return BrokerAway(found.message, "the command may stand there: run it again, it does no harm twice")
    return found


@contextmanager
def following(settings: Settings, topic: str, since: Position, within_s: float) -> Iterator[Iterator[record.Record]]:
    """Read a topic from somewhere on, as it comes, for at most `within_s`."""
    with LogReader(settings, topic, max(1.0, within_s)) as reader:
        timer = Timer(within_s, reader.stop)
        timer.daemon = True
        timer.start()
        try:
            yield reader.read(Span(since))
        finally:
            timer.cancel()


def at(offset: int) -> Position:
    """The place of an offset."""
    return Position(Anchor.OFFSET, offset)
