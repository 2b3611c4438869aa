"""What happened to requests on a real broker, told as events, for the guarantees that judge simulated worlds too.

Put together afterwards: calls from the callee's witness, losses from the workers' logs, requests and replies from their topics, and
every commit of the group from the broker's own log of them. One machine, so one clock: the events are ordered by wall time.

A reply counts from when the broker has it, as a commit does, on the topics of `judged_stage` at least once. Exactly once its time is that
of produce: the reply and the position are one transaction, whose offsets may be on their way before the reply is, and what is judged
is that no position stands without its reply.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import KafkaError, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.records import record_of
from dispatcher.core.messages.foresight import foresee
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import decode
from dispatcher.settings import Settings
from tests.e2e import operator
from tests.e2e.stage import Stage, Worker, header, stage
from tests.guarantees.events import (
    CallEnded,
    CallStarted,
    Committed,
    Ended,
    Event,
    Halted,
    Held,
    LetterVisible,
    Lost,
    Noted,
    Parked,
    Released,
    Submitted,
    Unparked,
    Withheld,
    reply_visible,
)
from tests.guarantees.judges import judged
from tests.topics import SettingsFactory

# The broker's log of commits. A key of version 0 or 1 is a commit's (group, topic, partition), others are members' and groups'.
OFFSETS = "__consumer_offsets"
COMMIT_KEYS_MAX = 1
COMPACT_VALUE = 4  # from this version of a value on its strings are written in Kafka's compact way
READ_S = 60.0
BATCH_MAX = 500

Told = tuple[float, int, Event]  # seconds since 1970; which comes first of what happened in the same millisecond; what happened


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed position, as the broker wrote it down; `epoch` is from the words beside it, None where they are not a worker's.

    `settled`: half-open ranges above the position.
    """

    at: float
    partition: int
    position: int
    epoch: int | None
    settled: tuple[tuple[int, int], ...] = ()


@contextmanager
def judged_stage(factory: SettingsFactory, folder: Path, **options: Any) -> Iterator[Stage]:
    """Set a stage whose history can be judged: at least once, replies, letters, what is parked and the journal bear the broker's time."""
    with stage(factory, folder, **options) as set_up:
        if set_up.settings.worker.publishing == "at_least_once":
            topics = set_up.settings.topics
            for topic in (topics.replies, topics.dead_letters, topics.parked, topics.journal):
                operator.configure(set_up.settings, topic, {"message.timestamp.type": "LogAppendTime"})
        yield set_up


def assert_guarantees(set_up: Stage, *workers: Worker, withheld: Iterable[Worker] = ()) -> None:
    """Judge what happened on this stage, now that all is said to be done. `withheld`: those whose way to Kafka was disturbed.

    Beyond what the guarantees say of positions: no owner commits any more once a later one has.
    """
    done = commits(set_up.settings)
    worker = set_up.settings.worker
    found = judged(worker.publishing, list(history(set_up, workers, withheld, done)), ordering=worker.ordering, fairness=worker.fairness)
    assert not found, found
    for partition in range(set_up.settings.topics.partitions):
        epochs = [commit.epoch for commit in done if commit.partition == partition and commit.epoch is not None]
        assert epochs, f"no commit of partition {partition} was found"
        assert sorted(epochs) == epochs, f"partition {partition}: an owner committed after a later one"


def history(set_up: Stage, workers: Iterable[Worker], withheld: Iterable[Worker], done: Iterable[Commit]) -> Iterator[Event]:
    """Tell what happened, in order, with the log's ends behind it."""
    topics = set_up.settings.topics
    told: list[Told] = [told for worker in withheld for told in _withheld(worker)]
    requests = {(record.partition, record.offset): record for record in whole(set_up.settings, topics.requests)}
    # A request has the time at which it was handed to its producer: nothing came of it before that.
    told += [(_time(record), 0, _submitted(record)) for record in requests.values()]
    told += _visible(whole(set_up.settings, topics.replies))
    told += _letters(whole(set_up.settings, topics.dead_letters), requests)
    told += _aside(set_up.settings)
    told += [
        (_time(record), 2, Noted(record.partition, orjson.loads(record.value or b"")["offset"]))
        for record in whole(set_up.settings, topics.journal)
    ]
    # Behind the replies of its millisecond, and what was parked with it.
    told += [(c.at, 3, Committed(c.partition, c.position, c.settled, -1 if c.epoch is None else c.epoch)) for c in done]
    lives = lives_of(workers)
    told += _losses(lives)
    told += _calls(set_up, {(partition, epoch): worker.name for _, partition, epoch, worker in lives}, requests)
    yield from (event for _, _, event in sorted(told, key=lambda entry: entry[:2]))
    yield from (Ended(partition, end) for partition, end in set_up.positions()[1].items())


def epochs_of(worker: Worker) -> set[tuple[int, int]]:
    """Name the assignments that a worker had so far: (partition, epoch)."""
    return {(event["partition"], event["epoch"]) for event in worker.events("live")}


def commits(settings: Settings) -> list[Commit]:
    """Give every commit of the workers' group to the request topic, in the broker's order."""
    topic_id = facts_of(connect(settings, READ_S), [settings.topics.requests])[settings.topics.requests].topic_id
    found = []
    for record in whole(settings, OFFSETS):
        key = record.key or b""
        (version,) = struct.unpack_from(">h", key)
        if version > COMMIT_KEYS_MAX or record.value is None:
            continue
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        if (group, topic) != (settings.worker.group, settings.topics.requests):
            continue
        (partition,) = struct.unpack_from(">i", key, at)
        position, words = _committed(record.value)
        # confluent-kafka sends the zero behind a C string as a part of it, and hides it where it reads one.
        note = decode(words.rstrip("\0"), topic_id)
        at_s = (record.timestamp_ms or 0) / 1000
        settled = () if note is None else note.settled_at(position)
        found.append(Commit(at_s, partition, position, None if note is None else note.epoch, settled))
    return found


def whole(settings: Settings, topic: str) -> list[Record]:
    """Read a topic from start to end, read_committed; the records of a partition stand in their order."""
    consumer = clients.consumer(settings)
    try:
        open_ = set(range(facts_of(connect(settings, READ_S), [topic])[topic].partitions))
        consumer.assign([TopicPartition(topic, n, 0) for n in open_])
        found: list[Record] = []
        end = time.monotonic() + READ_S
        while open_:
            assert time.monotonic() < end, f"partitions {open_} of {topic} were not read to their end in {READ_S:g} s"
            for message in consumer.consume(BATCH_MAX, 0.1):
                error = message.error()
                if error is None:
                    found.append(record_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_.discard(message.partition() or 0)
                elif not error.retriable():
                    raise AssertionError(error.str())
        return found
    finally:
        consumer.close()


def _committed(value: bytes) -> tuple[int, str]:
    """Read position and metadata, which begin the value beside its version and the leader's epoch."""
    version, position, _ = struct.unpack_from(">hqi", value)
    at = struct.calcsize(">hqi")
    if version < COMPACT_VALUE:
        return position, _text(value, at)[0]
    # The length plus one, seven bits in a byte, the lowest first.
    length = shift = 0
    while True:
        length |= (value[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if value[at - 1] < 0x80:
            return position, value[at : at + length - 1].decode()


def _text(of: bytes, at: int) -> tuple[str, int]:
    """Read one of Kafka's strings; gives the place behind it."""
    (length,) = struct.unpack_from(">h", of, at)
    return of[at + 2 : at + 2 + length].decode(), at + 2 + length


def _visible(records: Iterable[Record]) -> Iterator[Told]:
    """Tell of replies, in the order of their log: one that had to be sent again may stand later than its time."""
    latest: dict[int, float] = {}
    for record in records:
        at = latest[record.partition] = max((record.timestamp_ms or 0) / 1000, latest.get(record.partition, 0.0))
        partition, offset = int(header(record, "dispatcher-request-partition")), int(header(record, "dispatcher-request-offset"))
        yield at, 2, reply_visible(partition, offset, (record.partition, record.offset), record.value)


def _submitted(record: Record) -> Submitted:
    """A request, with its id, who asks, and what it asks for: its value, whatever else it says."""
    asks, agent = (record.value or b"").hex(), foresee(record).agent
    return Submitted(record.partition, record.offset, _key(record), name=header(record, "ce_id"), asks=asks, agent=agent)


def _letters(records: Iterable[Record], requests: dict[tuple[int, int], Record]) -> Iterator[Told]:
    """Tell of dead letters, and of what they halt."""
    prefix = "__dispatcher.errors."
    for record in records:
        place = int(header(record, f"{prefix}partition")), int(header(record, f"{prefix}offset"))
        at = _time(record)
        yield at, 2, LetterVisible(*place)
        if (request := requests.get(place)) is not None and b'"halt_key"' in (request.value or b""):
            yield at, 2, Halted(*place, _key(request))


def _aside(settings: Settings) -> Iterator[Told]:
    """Tell of what was parked and held."""
    for record in whole(settings, settings.topics.parked):
        _, partition, offset = _key(record).split("/")
        # A tombstone counts behind the reply that it was published with.
        if record.value is None:
            yield _time(record), 3, Unparked(int(partition), int(offset))
        else:
            yield _time(record), 2, Parked(int(partition), int(offset))
    for record in whole(settings, settings.topics.control):
        yield _time(record), 0, Released(_key(record)) if record.value is None else Held(_key(record))


def _withheld(worker: Worker) -> Iterator[Told]:
    """Tell of every publication that may have gone through without the worker's hearing of it."""
    yield 0.0, 0, Withheld(worker.name)
    yield from ((at_of(event), 0, Withheld(worker.name)) for event in worker.events("publish_failed"))


Life = tuple[float, int, int, Worker]  # since when, partition, epoch, whose


def lives_of(workers: Iterable[Worker]) -> list[Life]:
    """Give the assignments of these workers, those of a partition in their order."""
    lives = [(at_of(event), event["partition"], event["epoch"], worker) for worker in workers for event in worker.events("live")]
    return sorted(lives, key=lambda life: life[2])


def _losses(lives: list[Life]) -> Iterator[Told]:
    """Tell whose partition another one took over before it was handed over."""
    given = {
        worker: [(at_of(event), event["partitions"]) for event in worker.events("handed_over")] for worker in {life[3] for life in lives}
    }
    last: dict[int, Life] = {}
    for life in lives:
        since, partition, _, worker = life
        before = last.get(partition)
        last[partition] = life
        if before is None or before[3] is worker:
            continue
        if not any(partition in of and before[0] <= at <= since for at, of in given[before[3]]):
            yield since, 0, Lost(before[3].name, partition, before[2])


def _calls(set_up: Stage, owners: dict[tuple[int, int], str], requests: dict[tuple[int, int], Record]) -> Iterator[Told]:
    wall = time.time() - time.monotonic()
    for call in set_up.calls():
        partition, offset, epoch, number = call["partition"], call["offset"], call["epoch"], call["call"]
        key = _key(requests[partition, offset])
        started = CallStarted(number, partition, offset, epoch, owners[partition, epoch], call["attempt"], key)
        yield wall + call["t_s"], 1, started
        if "end_s" in call:
            yield wall + call["end_s"], 0, CallEnded(number)


def _time(record: Record) -> float:
    return (record.timestamp_ms or 0) / 1000


def _key(record: Record) -> str:
    return (record.key or b"").decode(errors="replace")


def at_of(event: dict[str, str]) -> float:
    """Give the time of a log line, in seconds since 1970."""
    return datetime.fromisoformat(event["ts"]).timestamp()
