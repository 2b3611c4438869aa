"""The reader of compacted topics where there is no Kafka; on a real broker: `tests/e2e/test_restorer.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dispatcher.adapters.kafka import compacted
from dispatcher.adapters.kafka.compacted import CompactedReader, Ended
from dispatcher.errors import BrokerAway
from dispatcher.settings import Settings
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
        reader.ends("t", [0])
    with pytest.raises(BrokerAway, match="cannot reach Kafka"):
        list(reader.read("t", {0: (0, 1)}))


def test_an_empty_range_needs_nobody(reader: CompactedReader) -> None:
    """Where nothing is to be read nothing is asked."""
    assert [Ended(0), Ended(1)] == list(reader.read("t", {0: (0, 0), 1: (7, 7)}))


def test_what_idle_clients_say_does_not_pile_up(reader: CompactedReader) -> None:
    """Kafka is away and nothing is read: what the clients report waits in memory until somebody takes it in."""
    with pytest.raises(BrokerAway):
        reader.ends("t", [0])
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
    reader._complaints.forget()
    eventually(lambda: reader.news(0) or reader._complaints.are_there, what="the one that reads is heard, too")
