"""What the sink makes of a client that misbehaves."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from dispatcher.adapters.kafka import sink
from dispatcher.adapters.kafka.sink import HUNG_MAX, Failed, Sink
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings


class Hanging:
    """A producer whose `send_offsets_to_transaction` comes back when the test lets it."""

    def __init__(self) -> None:
        self.gate: SimpleQueue[None] = SimpleQueue()

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.gate.get()


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
