"""The reader of compacted topics where there is no Kafka; on a real broker: `tests/e2e/test_restorer.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from dispatcher.adapters.kafka import clients, compacted
from dispatcher.adapters.kafka.compacted import CompactedReader, Ended
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.errors import BrokerAway
from dispatcher.settings import Settings
from tests.broken_client import break_for_good
from tests.sim.contract.worlds import answered
from tests.waiting import eventually

NOBODY = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1", "properties": {"reconnect.backoff.ms": "1"}}})


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompactedReader]:
    """Make a reader that does not wait long."""
    monkeypatch.setattr(compacted, "QUESTION_S", 0.2)
    monkeypatch.setattr(compacted, "QUIET_S", 0.1)
    made = CompactedReader(NOBODY)
    yield made
    made.close()


def test_no_answer_is_told_as_such(reader: CompactedReader) -> None:
    """A question, and a reading that has been quiet for long, end with the sentence that says where nobody answers."""
    with pytest.raises(BrokerAway, match="cannot reach Kafka"):
        answered(reader.ends("t", [0]))
    with pytest.raises(BrokerAway, match="cannot reach Kafka"):
        list(reader.read("t", {0: (0, 1)}))


def test_an_empty_range_needs_nobody(reader: CompactedReader) -> None:
    """Where nothing is to be read nothing is asked."""
    assert [Ended(0), Ended(1)] == list(reader.read("t", {0: (0, 0), 1: (7, 7)}))


def test_what_idle_clients_say_does_not_pile_up(reader: CompactedReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is away and nothing is read: what the clients report waits in memory until somebody takes it in."""
    monkeypatch.setattr(compacted, "POLL_S", 0)  # the reading itself hears nothing yet: librdkafka says the same again after 30 s
    with pytest.raises(BrokerAway):
        answered(reader.ends("t", [0]))
    reader._complaints = Complaints(NOBODY)  # of the one that reads
    reading = reader.read("t", {0: (0, 1)})
    assert next(reading) is None
    reading.close()
    assert reader._cluster is not None
    asking: Any = reader._cluster.client  # its type does not say that it has a length
    eventually(lambda: len(asking), what="the one that asks has something to say")

    def served() -> bool:
        assert [] == reader.news(0)
        return not len(asking)

    eventually(served, what="it was taken in")
    reader._cluster = None
    eventually(lambda: reader.news(0) or reader._complaints.are_there, what="the one that reads is heard, too")


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """Collect the consumers that are made."""
    made: list[Consumer] = []
    make = clients.consumer

    def keep(*arguments: Any, **keywords: Any) -> Consumer:
        made.append(make(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr(clients, "consumer", keep)
    return made


def test_a_reading_whose_client_fails_for_good_is_told_and_the_next_one_has_another(
    reader: CompactedReader, consumers: list[Consumer]
) -> None:
    """Told once, by a message that names a partition which is not read: who overhears it waits for ever."""
    for number in range(2):
        reading = reader.read("t", {7: (0, 1)})
        assert next(reading) is None
        break_for_good(consumers[-1])
        with pytest.raises(BrokerAway):
            list(reading)
        assert number + 1 == len(consumers)


def test_an_idle_client_that_fails_for_good_is_not_read_with(reader: CompactedReader, consumers: list[Consumer]) -> None:
    """It would bring nothing, and never say so again."""
    reading = reader.read("t", {7: (0, 1)})
    assert next(reading) is None
    reading.close()
    break_for_good(consumers[0])
    eventually(lambda: reader.news(0) or not reader._idle)
    assert next(reader.read("t", {7: (0, 1)})) is None
    assert 2 == len(consumers)


def test_news_go_on_with_another_client(reader: CompactedReader, consumers: list[Consumer]) -> None:
    """From where the first one was, once it has been told that it failed."""
    reader.follow("t", 5)
    break_for_good(consumers[0])
    with pytest.raises(BrokerAway):
        eventually(lambda: reader.news(0.1))
    assert 2 == len(consumers)
    assert ("t", 5) == reader._followed
    assert [("t", 0, 5)] == [(part.topic, part.partition, part.offset) for part in consumers[1].assignment()]
