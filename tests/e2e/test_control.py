"""The control topic as operators write it: what was written is read back, also behind somebody's open transaction, or it says so."""

from __future__ import annotations

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.client import control
from dispatcher.core.internal.control import PAUSED, RUNNING, key_target, message
from dispatcher.errors import BrokerError, WaitTimeout
from dispatcher.settings import Settings
from tests.topics import SettingsFactory

TARGET = key_target(b"doc:42")
WITHIN_S = 60.0


def test_a_command_is_read_back_behind_an_open_transaction(settings: SettingsFactory) -> None:
    """A worker's transaction that stands open hides what is written after it: that is waited for, and without end it is no success."""
    made = settings(partitions=1)
    topic = made.topics.control
    worker = clients.producer(made, transactional_id=f"{made.topics.prefix}-open")
    worker.init_transactions(WITHIN_S)
    worker.begin_transaction()
    worker.produce(topic, b"{}", b"key:other", 0)
    assert 0 == worker.flush(WITHIN_S)
    paused = control.command(TARGET, PAUSED, "why not")
    offset = control.write(made, message(paused, topic), WITHIN_S)
    assert 0 == len(control.desired(made, WITHIN_S))
    with pytest.raises(WaitTimeout, match="cannot be read back yet"):
        control.desired(made, 1.0, beyond=offset)
    worker.abort_transaction(WITHIN_S)
    assert [paused] == list(control.desired(made, WITHIN_S, beyond=offset).targets())
    ended = control.write(made, message(control.command(TARGET, RUNNING), topic), WITHIN_S)
    assert [] == list(control.desired(made, WITHIN_S, beyond=ended).targets())


def test_a_command_that_cannot_be_written_is_no_success() -> None:
    """Nobody answers: the sentence says that it may be given again."""
    nobody = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    with pytest.raises(BrokerError, match="cannot reach Kafka") as failure:
        control.write(nobody, message(control.command(TARGET, PAUSED), nobody.topics.control), 0.5)
    assert "run it again" in failure.value.hint
