"""What a submitter makes of acknowledgements that fail, told by a producer that fails on demand; the rest is in e2e."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dispatcher.adapters.kafka import clients
from dispatcher.client import OPEN_MAX, Submitter, stamp
from dispatcher.core.messages.submission import Receipt, Submission, request
from dispatcher.errors import BrokerError, ConfigError, SubmitUnknown
from dispatcher.settings import Settings

SETTINGS = Settings()


class Producer:
    """Stands for librdkafka's: reports each delivery at the next poll, with the error that the key asks for."""

    def __init__(self) -> None:
        self.open: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self.most_open = 0
        self.offset = 0

    def list_topics(self, **_given: float) -> SimpleNamespace:
        """Know the request topic."""
        return SimpleNamespace(topics={SETTINGS.topics.requests: None})

    def produce(self, _topic: str, **given: Any) -> None:
        """Take a record; a key `refuse` is refused at once, as a lost producer does."""
        if given["key"].startswith(b"refuse"):
            raise KafkaException(KafkaError(int(given["key"].removeprefix(b"refuse"))))
        self.open.append((given["key"], given["on_delivery"]))
        self.most_open = max(self.most_open, len(self.open))

    def poll(self, timeout_s: float) -> None:
        """Report what is open, when somebody waits for it."""
        if not timeout_s:
            return
        for key, report in self.open:
            if key == b"never":
                continue
            place = SimpleNamespace(partition=lambda: 1, offset=lambda offset=self.offset: offset, timestamp=lambda: (1, 1_700_000_000_000))
            report(KafkaError(int(key)) if key.lstrip(b"-").isdigit() else None, place)
            self.offset += 1
        self.open.clear()

    def purge(self) -> None:
        """Forget what is open."""


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    """Put the producer that fails on demand in the place of the real one."""
    made = Producer()
    monkeypatch.setattr(clients, "producer", lambda *_given, **_named: made)
    return made


def of(key: object) -> Submission:
    """Make a request of a key."""
    return request(str(key), b'{"upstream": "u"}', stamp(request_id=f"id-{key}"))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        # What librdkafka says of its own queue, where a message that was sent already waits to be sent again.
        KafkaError._PURGE_QUEUE,
        KafkaError._FATAL,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        # A broker that has just been started knows no topic for a moment.
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_an_unknown_end_carries_the_id(producer: Producer, code: int) -> None:
    """A failed delivery that may have been written is SubmitUnknown with the id under which it can be sent again: exit 4."""
    with Submitter(SETTINGS) as submitter, pytest.raises(SubmitUnknown) as caught:
        submitter.submit(of(code))
    assert (caught.value.request_id, caught.value.exit_code) == (f"id-{code}", 4)
    assert f"id-{code}" in caught.value.message


def test_no_report_at_all_is_unknown(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is not success, and ends."""
    monkeypatch.setattr("dispatcher.client.submitter.REPORT_GRACE_S", 0.0)
    with Submitter(SETTINGS, timeout_s=0.05) as submitter, pytest.raises(SubmitUnknown):
        submitter.submit(of("never"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ConfigError),
    ],
)
def test_what_was_certainly_not_written_is_not_unknown(producer: Producer, code: int, kind: type[Exception]) -> None:
    """A refusal is an error that says so."""
    with Submitter(SETTINGS) as submitter, pytest.raises(kind):
        submitter.submit(of(code))


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError._UNKNOWN_TOPIC, KafkaError._STATE])
def test_what_the_producer_does_not_take_was_not_written(producer: Producer, code: int) -> None:
    """Refused before it was in any queue: nothing of it can be in the topic."""
    with Submitter(SETTINGS) as submitter, pytest.raises(BrokerError):
        submitter.submit(of(f"refuse{code}"))


def test_outcomes_come_in_order_and_bounded(producer: Producer) -> None:
    """However many requests there are, so many are open at once, and each outcome stands in its place."""
    keys: list[object] = [f"k-{n}" for n in range(3 * OPEN_MAX)]
    keys[5] = KafkaError._MSG_TIMED_OUT
    with Submitter(SETTINGS) as submitter:
        outcomes = list(submitter.submit_many(of(key) for key in keys))
    assert producer.most_open <= OPEN_MAX + 1
    assert [f"id-{key}" for key in keys] == [outcome.request_id for outcome in outcomes if isinstance(outcome, Receipt | SubmitUnknown)]
    assert isinstance(outcomes[5], SubmitUnknown)


def test_a_pause_settles_what_is_open(producer: Producer) -> None:
    """None between requests: everything before it has its outcome before the next request is asked for."""
    outcomes: list[Any] = []

    def requests() -> Any:
        yield of("a")
        yield of("b")
        yield None
        assert [outcome.request_id for outcome in outcomes] == ["id-a", "id-b"]
        yield of("c")

    with Submitter(SETTINGS) as submitter:
        for outcome in submitter.submit_many(requests()):
            outcomes.append(outcome)  # noqa: PERF402 - the generator above looks at it meanwhile
    assert [outcome.offset for outcome in outcomes] == [0, 1, 2]
