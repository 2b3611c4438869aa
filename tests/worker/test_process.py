"""The worker's process: it ends when it is told to, whatever Kafka does meanwhile."""

from __future__ import annotations

import asyncio
import resource
import socket
from threading import Event

import pytest

from dispatcher.adapters.http import HttpEngine, open_engine
from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.adapters.kafka.source import Source
from dispatcher.errors import BrokerError, ConfigError
from dispatcher.settings import Settings
from dispatcher.worker import process
from dispatcher.worker.process import Surroundings, Worker
from dispatcher.worker.restorer import Restorer

NOBODY = "127.0.0.1:1"
SIGNAL_TO_END_S = 20


def without_broker(**worker: object) -> Settings:
    """Make settings of a worker that no broker answers."""
    return Settings.model_validate({"kafka": {"bootstrap_servers": NOBODY}, "worker": {"slot": "7", "http_port": 0} | worker})


def surroundings(settings: Settings) -> Surroundings:
    """Make up what such a worker was told before."""
    topics = settings.topics
    limits = {topics.replies: 1_000_000, topics.dead_letters: 1_000_000}
    return Surroundings(TopicFacts(topics.requests, bytes(16), 2, 1_000_000), {topics.replies: 2}, limits, "cooperative")


async def ended(publishing: str = "at_least_once", *, signalled: bool = True) -> None:
    """Run a worker without a broker until it ends."""
    settings = without_broker(publishing=publishing)
    http = open_engine(settings, {})
    worker = Worker(settings, surroundings(settings), http)
    try:
        if signalled:
            worker.signalled()
        await asyncio.wait_for(worker.ended(), SIGNAL_TO_END_S)
    finally:
        worker.close()
        await http.close()


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_signal_ends_a_worker_whose_broker_has_gone(publishing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours is unpublished: a producer that never came up, or a step that Kafka does not answer, is not waited for."""
    monkeypatch.setattr(process, "PUBLISHER_END_S", 0.1)
    asyncio.run(ended(publishing))


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Give a client that does not come back from leaving the group."""
    never = Event()
    monkeypatch.setattr(process, "LEAVE_S", 0.1)
    monkeypatch.setattr(Source, "close", lambda _: never.wait(SIGNAL_TO_END_S + 5))
    return never


def test_a_client_that_does_not_let_go_is_left(stuck: Event) -> None:
    """By then everything is published and given up: the group notices after its session timeout."""
    asyncio.run(ended())
    stuck.set()


def test_a_client_that_does_not_let_go_after_a_fault_is_left_with_an_error(stuck: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends by itself says that something was wrong."""

    def refuse(*_: object) -> None:
        raise BrokerError("no")

    monkeypatch.setattr(Source, "subscribe", refuse)
    # Without Kafka there is no control topic to be read before.
    monkeypatch.setattr(Restorer, "run", lambda restorer: setattr(restorer, "is_ready", True))
    with pytest.raises(BrokerError):
        asyncio.run(ended(signalled=False))
    stuck.set()


def test_a_port_that_is_taken_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left open that would complain behind it."""
    closed = []

    class Engine(HttpEngine):
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    monkeypatch.setattr("dispatcher.adapters.http.engine.HttpEngine", Engine)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        settings = without_broker(http_port=stranger.getsockname()[1], publishing="at_least_once")
        with pytest.raises(ConfigError, match="cannot listen on"):
            asyncio.run(process.run_worker(settings, {}, surroundings))
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [
        pytest.param(1024, 4096, [(1256, 4096)], id="raised to what is needed"),
        pytest.param(1024, resource.RLIM_INFINITY, [(1256, resource.RLIM_INFINITY)], id="no hard limit"),
        pytest.param(256, 1024, [(1024, 1024)], id="as far as it goes"),
        pytest.param(1256, 4096, [], id="enough"),
        pytest.param(resource.RLIM_INFINITY, resource.RLIM_INFINITY, [], id="no limit"),
    ],
)
def test_a_worker_may_open_as_many_files_as_calls(
    soft: int, hard: int, then: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that cannot be opened spends an attempt of its request: where files ran out, healthy requests ended as dead letters."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    process.allow_files(1000)
    assert then == asked


def test_it_does_so_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's connections are opened under the same limit."""
    asked: list[int] = []

    def refuse(_: Settings) -> Surroundings:
        assert [7] == asked
        raise BrokerError("no")

    monkeypatch.setattr(process, "allow_files", asked.append)
    with pytest.raises(BrokerError):
        asyncio.run(process.run_worker(Settings.model_validate({"worker": {"inflight_max": 7}}), {}, refuse))
