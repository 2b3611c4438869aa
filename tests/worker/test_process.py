"""The worker's process: it ends when it is told to, whatever Kafka does meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.settings import Settings
from dispatcher.worker import process
from dispatcher.worker.process import Surroundings, Worker

NOBODY = "127.0.0.1:1"
SIGNAL_TO_END_S = 20


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_signal_ends_a_worker_whose_broker_has_gone(publishing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours is unpublished: a producer that never came up, or a step that Kafka does not answer, is not waited for."""
    monkeypatch.setattr(process, "PUBLISHER_END_S", 0.1)
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": NOBODY}, "worker": {"publishing": publishing, "slot": "7", "http_port": 0}}
    )
    topics = settings.topics
    limits = {topics.replies: 1_000_000, topics.dead_letters: 1_000_000}
    facts = TopicFacts(topics.requests, bytes(16), 2, 1_000_000)

    async def run() -> None:
        worker = Worker(settings, Surroundings(facts, {topics.replies: 2}, limits, "cooperative"), {})
        try:
            worker.signalled()
            await asyncio.wait_for(worker.ended(), SIGNAL_TO_END_S)
        finally:
            await worker.close()

    asyncio.run(run())
