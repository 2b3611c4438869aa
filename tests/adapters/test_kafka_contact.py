"""First contact with Kafka: in slices, so that Ctrl-C is heard."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from dispatcher.adapters.kafka.contact import SLICE_S, contact


class Broker:
    """Answers after some failures; remembers how long it might have taken."""

    def __init__(self, *failures: int) -> None:
        self.failures = list(failures)
        self.given: list[float] = []

    def ask(self, timeout_s: float) -> str:
        """Fail with the next code, or answer."""
        self.given.append(timeout_s)
        if self.failures:
            raise KafkaException(KafkaError(self.failures.pop(0)))
        return "answer"


def test_without_a_connection_a_question_is_short_and_asked_again() -> None:
    """What takes long then is connecting, which goes on in the background."""
    broker = Broker(KafkaError._TRANSPORT, KafkaError._TRANSPORT)
    assert contact(broker.ask, 60) == "answer"
    assert broker.given == [SLICE_S] * 3


def test_a_slow_broker_is_given_longer() -> None:
    """An answer that needs longer than a slice is waited for."""
    broker = Broker(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT)
    assert contact(broker.ask, 60) == "answer"
    assert broker.given == [SLICE_S, 2 * SLICE_S, 4 * SLICE_S]


@pytest.mark.parametrize(("code", "timeout_s"), [(KafkaError._AUTHENTICATION, 60), (KafkaError._TRANSPORT, SLICE_S / 2)])
def test_it_ends(code: int, timeout_s: float) -> None:
    """Any other failure, and a time that is over, end it at once."""
    broker = Broker(code)
    with pytest.raises(KafkaException):
        contact(broker.ask, timeout_s)
    assert broker.given == [pytest.approx(min(SLICE_S, timeout_s), abs=0.01)]


@pytest.mark.parametrize("command", [("topics", "check"), ("replies",), ("submit", "-k", "k", "-u", "u", "/x")])
def test_ctrl_c_ends_a_command_that_waits_for_kafka(command: tuple[str, ...]) -> None:
    """A mistyped address costs no half minute: 130, soon after the signal."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # takes connections and says nothing
        nobody.settimeout(60)
        line = [sys.executable, "-m", "dispatcher", "-b", "{}:{}".format(*nobody.getsockname()), "--timeout", "50s", *command]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process, nobody.accept()[0]:
            process.send_signal(signal.SIGINT)
            sent = time.monotonic()
            assert process.wait(60) == 130
    assert time.monotonic() - sent < 10
