"""The thread that writes requests, told by a submitter that does what a test says."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from confluent_kafka import KafkaError

from dispatcher import BrokerError, ConfigError, DispatcherError, Receipt, Settings, SubmitUnknown
from dispatcher.client import sender as room
from dispatcher.client.sender import Outcome, Outgoing, Sender
from dispatcher.client.submitter import Sent, stamp
from dispatcher.core.messages.submission import Submission, request
from tests.waiting import eventually


class Submitter:
    """Stands for the real one: acknowledges at the next poll, but for what `held` names; a key `fatal` costs it its producer."""

    made: list[Submitter]
    held: set[str]
    gate: threading.Event  # clear: the thread is busy

    def __init__(self, _settings: Settings, **_given: float) -> None:
        self.sent: list[Sent] = []
        self.names: list[str] = []
        self.closed = False
        self.crash = False
        Submitter.made.append(self)

    def greet(self) -> None:
        """Have nothing to say."""

    def send(self, submission: Submission, ended: deque[Sent]) -> Sent:
        """Take a request."""
        made = Sent(submission.key, submission.request_id, "requests", ended)
        self.sent.append(made)
        self.names.append(submission.request_id or "")
        return made

    def poll(self, _timeout_s: float) -> None:
        """Acknowledge."""
        assert Submitter.gate.wait(60)
        if self.crash:
            raise RuntimeError("bug")
        for each in [each for each in self.sent if each.request_id not in Submitter.held]:
            self._end(each, KafkaError(KafkaError._FATAL, "fenced", True) if each.key == b"fatal" else None)  # noqa: FBT003 - theirs

    def outcome(self, sent: Sent) -> Outcome:
        """Say how it ended."""
        if sent.error is not None:
            return BrokerError("not written")
        return Receipt(sent.request_id or "", "t", 0, 0, sent.key, "2026-11-29T10:00:00.000Z")

    def close(self) -> None:
        """Let go; what is open is reported by nobody."""
        self.closed = True

    def _end(self, sent: Sent, error: KafkaError | None) -> None:
        self.sent.remove(sent)
        sent.settled, sent.error = True, error
        assert sent.ended is not None
        sent.ended.append(sent)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    """Give a sender that runs."""
    Submitter.made, Submitter.held, Submitter.gate = [], set(), threading.Event()
    Submitter.gate.set()
    monkeypatch.setattr(room, "Submitter", Submitter)
    made = Sender(Settings(), 30)
    made.start()
    yield made
    made.close()


def send(by: Sender, name: str, key: str = "k") -> tuple[Outgoing, SimpleQueue[Outcome]]:
    """Have a request sent."""
    told: SimpleQueue[Outcome] = SimpleQueue()
    return by.send(request(key, b'{"upstream": "u"}', stamp(request_id=name)), told.put), told


def test_each_is_told_once_and_in_order(sender: Sender) -> None:
    """A receipt for each; those that stay open hold up nobody."""
    Submitter.held = {"r-1"}
    told = [send(sender, f"r-{number}")[1] for number in range(4)]
    for number in (0, 2, 3):
        outcome = told[number].get(timeout=60)
        assert isinstance(outcome, Receipt)
        assert outcome.request_id == f"r-{number}"
    assert Submitter.made[0].names == [f"r-{number}" for number in range(4)]
    Submitter.held = set()
    assert isinstance(told[1].get(timeout=60), Receipt)
    assert all(queue.empty() for queue in told)


def test_what_is_withdrawn_in_time_is_not_sent(sender: Sender) -> None:
    """Whoever withdraws is told for certain whether that came in time; with the thread in a race no answer is wrong."""
    Submitter.gate.clear()
    late, late_told = send(sender, "late")
    eventually(lambda: late.handed)
    early, early_told = send(sender, "early")
    assert (late.withdraw(), early.withdraw()) == (False, True)
    Submitter.gate.set()
    assert isinstance(late_told.get(timeout=60), Receipt)
    assert "was not sent" in str(early_told.get(timeout=60))
    surely, told = ["early"], []
    for number in range(300):
        outgoing, outcomes = send(sender, f"r-{number}")
        told.append(outcomes)
        if outgoing.withdraw():
            surely.append(outgoing.submission.request_id or "")
    for outcomes in told:
        outcomes.get(timeout=60)
    assert "late" in Submitter.made[0].names
    assert not set(surely) & set(Submitter.made[0].names)


def test_a_producer_that_is_lost_is_replaced(sender: Sender) -> None:
    """What was open with it has an unknown end; the next request goes by a new one."""
    Submitter.held = {"open"}
    open_ = send(sender, "open")[1]
    eventually(lambda: Submitter.made and Submitter.made[0].names == ["open"])
    assert isinstance(send(sender, "lost", "fatal")[1].get(timeout=60), BrokerError)
    unknown = open_.get(timeout=60)
    assert isinstance(unknown, SubmitUnknown)
    assert unknown.request_id == "open"
    assert isinstance(send(sender, "next")[1].get(timeout=60), Receipt)
    assert [made.closed for made in Submitter.made] == [True, False]


def test_closing_tells_what_is_open(sender: Sender) -> None:
    """No asker is left without an answer, and no thread is left."""
    Submitter.held = {"open"}
    told = send(sender, "open")[1]
    eventually(lambda: Submitter.made and Submitter.made[0].names == ["open"])
    sender.close()
    assert isinstance(told.get(timeout=60), SubmitUnknown)
    assert "dispatcher-sender" not in {thread.name for thread in threading.enumerate()}
    assert Submitter.made[0].closed


def test_a_bug_is_told_to_all(sender: Sender) -> None:
    """Those that are open have an unknown end, those that come later one sentence."""
    Submitter.held = {"open"}
    told = send(sender, "open")[1]
    eventually(lambda: Submitter.made and Submitter.made[0].names == ["open"])
    Submitter.made[0].crash = True
    assert isinstance(told.get(timeout=60), SubmitUnknown)
    assert "RuntimeError" in str(send(sender, "later")[1].get(timeout=60))
    assert Submitter.made[0].closed


def test_a_producer_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that librdkafka refuses, say."""

    def refuse(_settings: Settings, **_given: float) -> Submitter:
        raise ConfigError("no such property")

    monkeypatch.setattr(room, "Submitter", refuse)
    made = Sender(Settings(), 30)
    made.start()
    outcome = send(made, "r")[1].get(timeout=60)
    made.close()
    assert isinstance(outcome, DispatcherError)
    assert outcome.exit_code == 2
