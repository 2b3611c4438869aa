"""The publisher's thread, where nothing is to be published, and since when something waits."""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Any

import pytest

from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Command, Snapshot
from dispatcher.worker.publisher import Publisher
from tests.specimens import alone


class Idle:
    """Stands for sink, engine and observer of a worker to which nothing comes; counts how often its clients were served."""

    served = 0

    def serve(self) -> None:
        self.served += 1


def _made(idle: Any, inbox: SimpleQueue[object]) -> Publisher:
    poller: SimpleQueue[Command] = SimpleQueue()
    topics = alone(bytes(16), 1)
    return Publisher(Settings(), topics, {}, idle, idle, lambda *_: None, inbox, poller, Snapshot, idle, SystemClock())


def test_an_idle_publisher_serves_its_clients() -> None:
    """What librdkafka says while Kafka is away for days is taken in, and does not fill the memory."""
    idle = Idle()
    publisher = _made(idle, SimpleQueue())
    publisher.step()
    publisher.step()
    assert 2 == idle.served
    assert publisher.publishing_since is None


def test_it_is_told_since_when_something_is_being_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has gone through, or nobody waits for it any more."""
    inbox: SimpleQueue[object] = SimpleQueue()
    publisher, seen = _made(Idle(), inbox), list[float | None]()
    monkeypatch.setattr(publisher._way, "publish", lambda _: seen.append(publisher.publishing_since))
    inbox.put(Outcome(Owner(0, 1), None, None, position=1))
    before = time.monotonic()
    publisher.step()
    assert before <= (seen[0] or 0) <= time.monotonic()
    assert publisher.publishing_since is None
