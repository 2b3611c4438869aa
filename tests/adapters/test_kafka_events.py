"""What the source makes of the events that a consumer returns beside records: each is told apart from the others."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from dispatcher.adapters.kafka.source import Batch, Source
from dispatcher.errors import BrokerError

TOPIC = "requests"


class Event:
    """A message that is an error."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def error(self) -> KafkaError:
        return self._error

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7


class Telling:
    """A consumer that has one thing to say."""

    def __init__(self, error: KafkaError) -> None:
        self._events = [Event(error)]

    def poll(self, _: float) -> Event | None:
        return self._events.pop()

    def consume(self, *_: object) -> list[Event]:
        return []


def polled(code: int, *, fatal: bool = False) -> Batch:
    """Poll a consumer that tells of this error."""
    consumer: Any = Telling(KafkaError(code, "as the broker says", fatal))
    return Source(consumer, TOPIC, incremental=True).poll(0)


@pytest.mark.parametrize(
    ("code", "fatal", "words"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, "TOPIC_AUTHORIZATION_FAILED"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False, "GROUP_AUTHORIZATION_FAILED"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False, "UNKNOWN_TOPIC_OR_PART"),
        (KafkaError.FENCED_INSTANCE_ID, False, "FENCED_INSTANCE_ID"),
        (KafkaError._FATAL, False, "_FATAL"),
        (KafkaError.INVALID_REQUEST, True, "INVALID_REQUEST"),
    ],
)
def test_an_event_is_told_apart(code: int, words: str, *, fatal: bool) -> None:
    """What no repetition mends ends the worker by its name."""
    with pytest.raises(BrokerError, match=words) as caught:
        polled(code, fatal=fatal)
    assert caught.value.hint


def test_the_end_of_a_partition_is_no_error() -> None:
    """It is where the log ends for now."""
    assert Batch(ends=[(3, 7)]) == polled(KafkaError._PARTITION_EOF)


def test_a_position_that_the_log_does_not_hold_is_told_apart_from_an_end() -> None:
    """With where it is: that partition cannot go on, and others can."""
    assert Batch(refused=[(3, 7)]) == polled(KafkaError._AUTO_OFFSET_RESET)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_what_passes_by_itself_is_logged(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """The client tries again by itself; the worker goes on, and it can be read why nothing came."""
    assert Batch() == polled(code)
    assert "as the broker says" in caplog.text
