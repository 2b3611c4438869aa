"""What the sink makes of a client that misbehaves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from dispatcher.adapters.kafka import admin, clients, sink
from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.adapters.kafka.sink import HUNG_MAX, Failed, Sink
from dispatcher.core.messages.record import Message
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from tests.broken_client import break_for_good
from tests.waiting import eventually

NOBODY = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1", "properties": {"reconnect.backoff.ms": "1"}}})


class Hanging:
    """A producer whose `send_offsets_to_transaction` comes back when the test lets it."""

    def __init__(self) -> None:
        self.gate: SimpleQueue[None] = SimpleQueue()

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.gate.get()


class MetByTheFirst(set[int]):
    """A set whose first removal meets the client's fatal error, as whatever is called first in a report may."""

    def discard(self, element: int) -> None:  # type: ignore[override]
        super().discard(element)
        if raised := self.__dict__.setdefault("raised", [SystemError("a result with an exception set")]):
            raise raised.pop()


def test_a_report_in_the_middle_of_a_fatal_error_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of it meets that error first: a message that was not written does not count as written."""
    made = Sink(NOBODY, None, {})
    monkeypatch.setattr(made, "_unreported", MetByTheFirst({0}))
    made._report(0, 0, KafkaError(KafkaError._FENCED), None)
    made._report(0, 1, KafkaError(KafkaError._FENCED), None)
    assert [(0, "fatal"), (1, "fatal")] == [(failure.index, failure.kind) for failure in made.undelivered]


def test_a_call_that_hangs_in_the_client_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may never come back from sending offsets (librdkafka issues 5456 and 5511): then a new producer has to be made."""
    monkeypatch.setattr(sink, "STEP_S", 0.01)
    monkeypatch.setattr(sink, "HANG_S", 0.01)
    hanging = Hanging()
    made = Sink(Settings(), "name", {})
    monkeypatch.setattr(made, "_producer", hanging)
    with pytest.raises(Failed) as caught:
        made.send_offsets({0: (1, "")}, None)
    assert caught.value.then == "reopen"
    assert not caught.value.fenced
    hanging.gate.put(None)


def test_a_line_that_breaks_again_and_again_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that is left behind costs a producer and its threads: bounded, and loud."""
    monkeypatch.setattr(sink, "STEP_S", 0.0)
    monkeypatch.setattr(sink, "HANG_S", 0.01)
    hanging = Hanging()
    made = Sink(Settings(), "name", {})
    monkeypatch.setattr(made, "_producer", hanging)
    for _ in range(HUNG_MAX - 1):
        with pytest.raises(Failed):
            made.send_offsets({0: (1, "")}, None)
    with pytest.raises(BrokerError, match=f"did not come back {HUNG_MAX} times"):
        made.send_offsets({0: (1, "")}, None)
    for _ in range(HUNG_MAX):
        hanging.gate.put(None)


@pytest.mark.parametrize("name", ["name", None])
def test_what_the_clients_say_while_nothing_is_published_does_not_pile_up(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is away and nothing is to be published: their log lines wait in memory until somebody serves them."""
    monkeypatch.setattr(sink, "STEP_S", 0.1)
    made = Sink(NOBODY, name, {})
    with contextlib.suppress(Failed):
        made.open()
    assert made.limits() is None

    def waiting() -> list[int]:
        clients: tuple[Any, ...] = (made._producer, made._questions and made._questions.client)
        return [len(client) for client in clients]

    eventually(lambda: all(waiting()), what="both have something to say")

    def served() -> bool:
        made.serve()
        return not any(waiting())

    eventually(served, what="it was taken in")
    made.close()


def test_a_message_that_is_not_delivered_is_never_counted_as_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that runs out of time leaves all three open; later each is told as undelivered, and only then is the flush done."""
    monkeypatch.setattr(clients, "producer", partial(clients.producer, delivery_timeout_s=1))
    made = Sink(NOBODY, None, {})
    made.open()
    made.produce([Message("replies", n, b"doc:1", b"{}", ()) for n in range(3)])
    assert not made.flush(0.01)
    assert [] == made.undelivered
    assert eventually(lambda: made.flush(0.1), what="the messages' own deadline")
    assert {0: "_MSG_TIMED_OUT", 1: "_MSG_TIMED_OUT", 2: "_MSG_TIMED_OUT"} == {lost.index: lost.name for lost in made.undelivered}
    made.close()


def test_a_topic_that_is_gone_is_named_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What failed says only that some topic is missing; whoever has to mend it needs its name, and not every second."""
    topics = NOBODY.topics
    there = {topics.replies, topics.parked, topics.control}
    monkeypatch.setattr(admin, "facts_of", lambda *_: {name: TopicFacts(name, bytes(16), 1, 1_000_000) for name in there})
    made = Sink(NOBODY, None, {})
    for _ in range(3):
        assert there == (made.limits() or {}).keys()
    there.add(topics.dead_letters)
    made.limits()
    there.remove(topics.dead_letters)
    made.limits()
    assert [topics.dead_letters in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True, True]


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Settings for librdkafka's own small broker."""
    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    nodes = broker.list_topics(timeout=10).brokers.values()
    yield Settings.model_validate({"kafka": {"bootstrap_servers": ",".join(f"{node.host}:{node.port}" for node in nodes)}})
    assert 0 == len(broker)


class Swallowing:
    """A producer that fails for good: the exception of it comes out of the call that serves reports, in place of the first of them."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def produce(self, *arguments: Any, **_: Any) -> None:
        self.reports.append(arguments[-1])

    def flush(self, _: float) -> int:
        for report in self.reports[1:]:
            report(KafkaError(KafkaError._PURGE_QUEUE), None)
        self.reports.clear()
        return 0


def test_a_report_that_a_broken_client_swallows_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for that one for ever, and looked alive. Its message is one that has to be sent by another client."""
    made = Sink(Settings(), None, {})
    monkeypatch.setattr(made, "_producer", Swallowing())
    made.produce([Message("replies", 0, b"k", b"v", ())] * 3)
    assert made.flush(0.1)
    assert {0: "fatal", 1: "other", 2: "other"} == {lost.index: lost.kind for lost in made.undelivered}


def test_nothing_is_committed_without_what_a_broken_client_refused(settings: Settings) -> None:
    """It refuses messages because it has failed for good, and would commit the transaction all the same: positions without outcomes."""
    made = Sink(settings, "name", {})
    made.open()
    made.begin()
    break_for_good(made._open)
    made.produce([Message(settings.topics.replies, 0, b"k", b"v", ())])
    assert ["fatal"] == [failure.kind for failure in made.undelivered]
    with pytest.raises(Failed) as caught:
        made.commit()
    assert "reopen" == caught.value.then
    made.close()
