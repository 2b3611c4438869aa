"""Where partitions begin and end, told by clients that answer what a test says: what is an answer, and what is asked again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition

from dispatcher.adapters.kafka import admin as admin_module
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka import inquiry as inquiry_module
from dispatcher.adapters.kafka.admin import Cluster
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.adapters.kafka.starts import log_edges
from dispatcher.adapters.kafka.tail import Tail
from dispatcher.core.operations.positions import END, START, Anchor, Position, Span
from dispatcher.errors import BrokerError, ConfigError
from dispatcher.settings import Settings

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
PLACE = ("replies", 1)
NO_ANSWER = OFFSET_INVALID  # what confluent-kafka gives, without an error, where an attempt was too short
MOVED = [
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._NOENT,
]


def answered(answer: Any) -> Future[Any]:
    """Give a future with an answer; an `Err` is raised by it."""
    future: Future[Any] = Future()
    if isinstance(answer, Err):
        future.set_exception(KafkaException(KafkaError(answer.code)))
    else:
        future.set_result(answer)
    return future


class Err:
    """An error that Kafka's client answers."""

    def __init__(self, code: int) -> None:
        self.code = code


class Admin:
    """Answers every question with what this client remembers (`stuck`), or with the next of `answers`."""

    def __init__(self, *answers: int | Err, stuck: int | Err | None = None, partitions: int = 2) -> None:
        self.answers, self.stuck, self.partitions = list(answers), stuck, partitions

    def list_offsets(self, asked: Mapping[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        """Answer an offset, or an error."""
        answer = self.answers.pop(0) if self.stuck is None else self.stuck
        return {part: answered(answer if isinstance(answer, Err) else SimpleNamespace(offset=answer)) for part in asked}

    def describe_topics(self, _topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        """Describe a topic of so many partitions."""
        return {"replies": answered(SimpleNamespace(partitions=[None] * self.partitions))}

    def poll(self, _timeout_s: float) -> int:
        """Have nothing to tell."""
        return 0


class Consumer:
    """Answers watermarks and times in turn."""

    def __init__(self, marks: Iterable[tuple[int, int] | Err] = (), times: Iterable[int] = ()) -> None:
        self.marks, self.times = list(marks), list(times)
        self.assigned: list[int] = []

    def list_topics(self, topic: str, **_: object) -> Any:
        """Know the topic."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={1: None})})

    def get_watermark_offsets(self, _part: TopicPartition, **_: object) -> tuple[int, int]:
        """Answer first and end."""
        answer = self.marks.pop(0)
        if isinstance(answer, Err):
            raise KafkaException(KafkaError(answer.code))
        return answer

    def offsets_for_times(self, parts: list[TopicPartition], **_: object) -> list[TopicPartition]:
        """Answer an offset for a time."""
        return [TopicPartition(part.topic, part.partition, self.times.pop(0)) for part in parts]

    def incremental_assign(self, parts: list[TopicPartition]) -> None:
        """Remember from where."""
        self.assigned += [part.offset for part in parts]

    def incremental_unassign(self, _parts: list[TopicPartition]) -> None:
        """Forget."""

    def poll(self, _timeout_s: float) -> None:
        """Have nothing."""

    def close(self) -> None:
        """Be closed."""


def given(monkeypatch: pytest.MonkeyPatch, *made: Admin | Consumer) -> list[Admin | Consumer]:
    """Have clients made of these, in turn; gives those that are left."""
    left = list(made)
    for kind in ("admin", "consumer"):
        monkeypatch.setattr(clients, kind, lambda *_args, **_fields: left.pop(0))
    return left


@pytest.mark.parametrize("code", MOVED)
async def test_what_a_client_remembers_of_an_old_leader_is_asked_anew(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of Kafka a client may be wrong for good: a new one is asked, and it stays."""
    left = given(monkeypatch, Admin(stuck=Err(code)), Admin(7, 8))
    inquiry = Inquiry(SETTINGS, 60)
    assert {PLACE: 7} == await inquiry.ends([PLACE])
    assert {PLACE: 8} == await inquiry.ends([PLACE])
    assert [] == left
    await inquiry.close()


async def test_a_client_without_an_answer_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds on to a broker that is dead or stands still, and asks nobody else by itself: silence is all that is heard of it."""
    monkeypatch.setattr(inquiry_module, "SILENCE_S", 0)
    left = given(monkeypatch, Admin(stuck=NO_ANSWER), Admin(stuck=Err(KafkaError._TRANSPORT)), Admin(7))
    inquiry = Inquiry(SETTINGS, 60)
    assert {PLACE: 7} == await inquiry.ends([PLACE])
    assert [] == left
    await inquiry.close()


async def test_a_client_that_others_still_ask_is_kept_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes takes its answers with it: it goes after the last of them."""
    old = Admin(stuck=Err(KafkaError.FENCED_LEADER_EPOCH))
    slow: Future[Any] = Future()
    monkeypatch.setattr(old, "describe_topics", lambda _topics, **_fields: {"replies": slow})
    given(monkeypatch, old, Admin(7))
    inquiry = Inquiry(SETTINGS, 60)
    counting = asyncio.create_task(inquiry.partitions(["replies"]))
    assert {PLACE: 7} == await inquiry.ends([PLACE])
    slow.set_result(SimpleNamespace(partitions=[None] * 3))
    assert {"replies": 3} == await counting
    await inquiry.close()


async def test_a_time_that_was_too_short_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative offset without an error is no answer: it is asked again, and never read from."""
    given(monkeypatch, Admin(NO_ANSWER, NO_ANSWER, 7))
    inquiry = Inquiry(SETTINGS, 60)
    assert {PLACE: 7} == await inquiry.ends([PLACE])
    await inquiry.close()


@pytest.mark.parametrize("answer", [NO_ANSWER, Err(KafkaError._NOENT)])
async def test_without_an_answer_kafka_is_out_of_reach(answer: int | Err, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end it is said as a person knows it."""
    monkeypatch.setattr(clients, "admin", lambda *_args, **_fields: Admin(stuck=answer))
    inquiry = Inquiry(SETTINGS, 0.2)
    with pytest.raises(BrokerError, match=r"cannot reach Kafka at 127\.0\.0\.1:1"):
        await inquiry.ends([PLACE])
    await inquiry.close()


async def test_a_partition_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of Kafka's, and nothing to wait for."""
    monkeypatch.setattr(clients, "admin", lambda *_args, **_fields: Admin(stuck=Err(KafkaError._NOENT), partitions=1))
    inquiry = Inquiry(SETTINGS, 60)
    with pytest.raises(ConfigError, match=r"topic replies has no partition 1 \(it has 1\)"):
        await inquiry.ends([PLACE])
    await inquiry.close()


def test_the_edges_of_a_log_are_never_negative() -> None:
    """Row 22: a replay that took no answer for an empty log would call everything again."""
    admin: Any = Admin(NO_ANSWER, 7)
    assert {1: 7} == log_edges(Cluster(admin, Complaints(SETTINGS), 60), "replies", [1], "latest")
    silent: Any = Admin(stuck=NO_ANSWER)
    with pytest.raises(BrokerError, match="cannot reach Kafka"):
        log_edges(Cluster(silent, Complaints(SETTINGS), 0.2), "replies", [1], "latest")


@pytest.mark.parametrize("code", MOVED)
def test_the_edges_of_a_log_are_asked_of_a_new_client(code: int) -> None:
    """A long replay outlives a restart of Kafka."""
    old: Any = Admin(stuck=Err(code))
    new: Any = Admin(7)
    assert {1: 7} == log_edges(Cluster(old, Complaints(SETTINGS), 60, lambda: new), "replies", [1], "latest")


def test_who_asks_without_an_answer_for_long_asks_by_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question may be too short to call the client silent; then it is kept."""
    old: Any = Admin(stuck=NO_ANSWER)
    new: Any = Admin(7)
    cluster = Cluster(old, Complaints(SETTINGS), 0.1, lambda: new)
    with pytest.raises(BrokerError, match="cannot reach Kafka"):
        log_edges(cluster, "replies", [1], "latest")
    assert cluster.client is old
    monkeypatch.setattr(admin_module, "SILENCE_S", 0)
    cluster.timeout_s = 60
    assert {1: 7} == log_edges(cluster, "replies", [1], "latest")


def test_a_reader_takes_no_negative_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watermarks and times that nobody told are asked again, and so are those of a partition that moves."""
    moved, since = Err(KafkaError.FENCED_LEADER_EPOCH), Position(Anchor.TIME, 1)
    given(monkeypatch, Consumer([(-1, 9), (2, NO_ANSWER), moved, (2, 9)], [NO_ANSWER, 4]))
    with LogReader(SETTINGS, "replies", 60) as reader:
        found = reader.extents(Span(since, END))[1]
    assert (2, 9, 4, 9) == (found.first, found.end, found.start, found.stop)
    given(monkeypatch, Consumer([(-1, -1)] * 1000))
    with LogReader(SETTINGS, "replies", 0.2) as reader, pytest.raises(BrokerError, match="cannot reach Kafka"):
        reader.extents(Span(START))


def test_a_tail_that_lost_its_place_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from "the end" of no answer, replies would be missed."""
    consumer = Consumer([(-1, -1), (3, 9)])
    given(monkeypatch, consumer)
    tail = Tail(SETTINGS)
    tail._lost.add(PLACE)
    tail.read(0)
    assert [] == consumer.assigned
    tail.read(0)
    assert [3] == consumer.assigned


def test_one_place_asks() -> None:
    """Whoever asks for offsets elsewhere would have to know what is no answer. The source's look at its last fetch asks nobody."""
    package = Path(clients.__file__).parents[2]
    asking = re.compile(r"\.(list_offsets|get_watermark_offsets|offsets_for_times)\((?!.*cached=True)")
    assert {"offsets.py"} == {path.name for path in package.rglob("*.py") if asking.search(path.read_text(encoding="utf-8"))}
