"""The publisher's thread, where nothing is to be published."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from dispatcher.core.progress.strand import RequestTopics
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Command, Snapshot
from dispatcher.worker.publisher import Publisher


class Idle:
    """Stands for sink, engine and observer of a worker to which nothing comes; counts how often its clients were served."""

    served = 0

    def serve(self) -> None:
        self.served += 1


def test_an_idle_publisher_serves_its_clients() -> None:
    """What librdkafka says while Kafka is away for days is taken in, and does not fill the memory."""
    idle: Any = Idle()
    poller: SimpleQueue[Command] = SimpleQueue()
    publisher = Publisher(
        Settings(), RequestTopics.alone(bytes(16), 1), {}, idle, idle, lambda *_: None, SimpleQueue(), poller, Snapshot, idle, SystemClock()
    )
    publisher.step()
    publisher.step()
    assert 2 == idle.served
