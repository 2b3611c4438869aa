"""The demo on a mock cluster, the ladder's last rung: its topics, and the demo's worker where the broker cannot be asked.

The product itself does not start without asking the broker about topics, limits and group protocol, and that is right: this is the one
place where a worker is told instead. As a program (`python -m dispatcher.demo.mock FILE`) it is that worker.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvloop
from confluent_kafka import TopicPartition

from dispatcher.adapters.config import load, resolve_secrets
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import TopicFacts, connect
from dispatcher.adapters.kafka.group import outsider
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.adapters.logs import configure
from dispatcher.settings import Settings
from dispatcher.worker.process import run_worker
from dispatcher.worker.surroundings import Surroundings

_ANSWER_S = 10.0


def make_topics(settings: Settings) -> None:
    """Create the topics, by naming them, and commit where the group begins."""
    client = clients.admin(settings)
    for name in plans(settings):
        client.list_topics(name, timeout=_ANSWER_S)
    starts = [TopicPartition(settings.topics.requests, partition, 0) for partition in range(settings.topics.partitions)]
    with outsider(connect(settings, _ANSWER_S), settings) as consumer:
        consumer.commit(offsets=starts, asynchronous=False)


def surroundings(settings: Settings) -> Surroundings:
    """Say what the broker would say if it could be asked."""
    topics = settings.topics
    written = (topics.replies, topics.dead_letters, topics.parked, topics.journal, topics.state, topics.control)
    limits = {name: int(plan.configuration["max.message.bytes"]) for name, plan in plans(settings).items() if name in written}
    requests = (TopicFacts(topics.requests, bytes(16), topics.partitions, topics.request_max_bytes),)
    return Surroundings(requests, {topics.replies: topics.partitions}, limits, "cooperative")


def main(path: Path) -> None:
    """Run one worker."""
    settings = load(file=path, flags={}, properties=[], environ={})
    secrets = resolve_secrets(settings, os.environ)
    configure(settings, secrets)
    uvloop.run(run_worker(settings, secrets, ask=surroundings))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
