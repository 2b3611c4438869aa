"""What the consumer remembers by itself, against librdkafka and its own small broker (no machine beside this one is asked)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from dispatcher.adapters.kafka.source import PORTION_MAX, Source
from dispatcher.settings import MIB

TOPIC, PARTITION, OTHER = "requests", 0, 1
WITHIN_S = 10.0


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """Make a consumer of a topic that holds ten records in each of two partitions."""
    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    servers = [f"{node.host}:{node.port}" for node in broker.list_topics(timeout=WITHIN_S).brokers.values()]
    for number in range(20):
        broker.produce(TOPIC, str(number).encode(), partition=number % 2)
    assert 0 == broker.flush(WITHIN_S)
    made = Consumer(
        {
            "bootstrap.servers": servers[0],
            "group.id": "workers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    yield made
    made.close()


@pytest.mark.parametrize("position", [0, None], ids=["paused", "unresolved"])
def test_a_partition_that_was_given_away_paused_is_read_when_it_comes_back(consumer: Consumer, position: int | None) -> None:
    """A lane that is full, or a position that was not settled in time, must not leave the next assignment standing for ever.

    The client keeps a pause beyond the assignment that it was made for.
    """
    source = Source(consumer, TOPIC, incremental=True)
    source.assign({PARTITION: position})
    if position is not None:
        assert 0 == _first_offset(source)
        source.pause(PARTITION)
    source.unassign([PARTITION])
    source.assign({PARTITION: 0})
    assert 0 == _first_offset(source)


def test_a_partition_that_is_paused_and_resumed_is_read_on_where_it_stood(consumer: Consumer) -> None:
    """Before the first fetch, at once, with records fetched ahead, and after a while: each record comes once, in order.

    A fetcher that has nothing else to do looks for resumed partitions once a second; this one is at it again at once.
    """
    source = Source(consumer, TOPIC, incremental=True)
    source.assign({PARTITION: 2})
    source.pause(PARTITION)
    source.resume(PARTITION)
    read: list[int] = []
    end = time.monotonic() + WITHIN_S
    while len(read) < 8 and time.monotonic() < end:
        read += [record.offset for record in source.poll(0.1).records]
        source.pause(PARTITION)
        assert [] == source.poll(0.05).records
        source.resume(PARTITION)
    assert list(range(2, 10)) == read


class Portions:
    """A client that has fetched this many records of one size ahead, and notes how many are taken of it at a time."""

    def __init__(self, count: int, value: bytes) -> None:
        self.left, self.value, self.asked = count, value, list[int]()

    def poll(self, _: float) -> object:
        """As the client: the first one."""
        return next(iter(self._messages(1)), None)

    def consume(self, most: int, _: float) -> list[object]:
        """As the client: what is there."""
        self.asked.append(most)
        return self._messages(most)

    def _messages(self, most: int) -> list[object]:
        count = min(most, self.left)
        self.left -= count
        return [Fetched(self.value) for _ in range(count)]


class Fetched:
    """A message as the client gives it."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        told = {"value": self._value, "timestamp": (0, 0), "topic": TOPIC, "partition": PARTITION, "offset": 0}
        return lambda: told.get(name)


def test_no_more_bytes_are_taken_at_once_than_there_is_room_for() -> None:
    """A compressed batch unfolds to hundreds of large records: few are taken at first, and again; small ones come by hundreds."""
    client = Portions(2000, b"x" * MIB)
    source = Source(client, TOPIC, incremental=True)  # type: ignore[arg-type]
    sizes = [[len(record.value or b"") for record in source.poll(0).records] for _ in range(3)]
    assert [3, 3, 3] == [len(of) for of in sizes]
    client.value = b"small"
    assert [500] == [len(source.poll(0).records) for _ in range(2)][1:]
    client.value = b"x" * MIB
    assert PORTION_MAX + 1 >= len(source.poll(0).records)
    assert 3 == len(source.poll(0).records)


def test_a_poll_says_whether_it_has_taken_all() -> None:
    """A pause throws away what it has left."""
    source = Source(Portions(501, b"small"), TOPIC, incremental=True)  # type: ignore[arg-type]
    assert [(500, False), (1, True), (0, True)] == [(len(batch.records), batch.is_all) for batch in (source.poll(0) for _ in range(3))]


class Reluctant:
    """A consumer whose fetcher is not ready to seek at first."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.refusals = 1

    def seek(self, part: TopicPartition) -> None:
        """Refuse once."""
        self.refusals -= 1
        if self.refusals >= 0:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._consumer.seek(part)

    def __getattr__(self, name: str) -> Any:  # everything else
        return getattr(self._consumer, name)


def test_a_seek_that_the_client_refuses_is_done_before_anything_else_is_read(consumer: Consumer) -> None:
    """The poller goes on; no record from the wrong place is handed over."""
    source = Source(Reluctant(consumer), TOPIC, incremental=True)  # type: ignore[arg-type]
    source.assign({PARTITION: 0})
    assert 0 == _first_offset(source)
    source.seek(PARTITION, 7)
    assert 7 == _first_offset(source)


@pytest.mark.parametrize("incremental", [True, False], ids=["incremental", "eager"])
def test_a_partition_whose_position_was_refused_is_read_on_from_another_one(consumer: Consumer, *, incremental: bool) -> None:
    """The client gives it up, and refuses to seek in it; others are read on from where they were."""
    source, (begin, end) = Source(consumer, TOPIC, incremental=incremental), (0, 10)
    source.assign({PARTITION: end + 1, OTHER: begin})
    read, refused = _read_until_refused(source)
    assert [(PARTITION, end + 1)] == refused
    assert (begin, end) == source.edges(PARTITION, WITHIN_S)
    source.restart(PARTITION, end - 1)
    while len(read) < 1 + end:
        read += [(record.partition, record.offset) for record in source.poll(WITHIN_S).records]
    assert [*((OTHER, offset) for offset in range(end)), (PARTITION, end - 1)] == sorted(read, key=lambda one: one[0] == PARTITION)


def _read_until_refused(source: Source) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    read: list[tuple[int, int]] = []
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        batch = source.poll(0.1)
        read += [(record.partition, record.offset) for record in batch.records]
        if batch.refused:
            return read, batch.refused
    return read, []


def _first_offset(source: Source) -> int | None:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        if records := source.poll(0.1).records:
            return records[0].offset
    return None


def test_without_a_member_id_there_is_no_group_to_speak_for(consumer: Consumer) -> None:
    """Metadata that names no member passes the broker's check for any partition: it is never handed out."""
    source = Source(consumer, TOPIC, incremental=True)
    assert not source.member_id()
    assert source.group() is None


class Broken:
    """Duties of which one raises, and what was asked of them."""

    def __init__(self, source: Source, bug: str) -> None:
        self.asked: list[str] = []
        self._source = source
        self._bug = bug

    def on_assigned(self, partitions: list[int]) -> None:
        self._note("assigned")
        self._source.assign(dict.fromkeys(partitions, 0))

    def on_revoked(self, partitions: list[int]) -> None:
        self._note("revoked")
        self._source.unassign(partitions)

    def on_lost(self, partitions: list[int]) -> None:
        self._note("lost")
        self._source.unassign(partitions)

    def _note(self, event: str) -> None:
        self.asked.append(event)
        if event == self._bug:
            raise ZeroDivisionError


@pytest.mark.parametrize("bug", ["assigned", "revoked"])
def test_a_duty_that_raises_is_heard_by_whoever_polls(consumer: Consumer, bug: str) -> None:
    """It comes out of the call in which it was made, as it is: neither swallowed, so that a partition stands for ever, nor a crash."""
    source = Source(consumer, TOPIC, incremental=True)
    duties = Broken(source, bug)
    source.subscribe(duties)

    def live() -> None:
        while not duties.asked:
            source.poll(0.1)
        source.close()

    with pytest.raises(ZeroDivisionError):
        live()
    assert bug == duties.asked[-1]
