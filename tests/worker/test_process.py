"""The worker's process: it ends when it is told to, whatever Kafka does meanwhile."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from threading import Event

import pytest

from dispatcher.adapters.http import HttpEngine, open_engine
from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.adapters.kafka.source import Batch, Source
from dispatcher.errors import BrokerError, ConfigError
from dispatcher.settings import Settings
from dispatcher.worker import process
from dispatcher.worker.poller import Poller
from dispatcher.worker.process import Worker
from dispatcher.worker.publisher import Publisher
from dispatcher.worker.restorer import Restorer
from dispatcher.worker.surroundings import Surroundings
from tests import loopback

NOBODY = "127.0.0.1:1"
SIGNAL_TO_END_S = 20
WITHIN_S = 60


def without_broker(**worker: object) -> Settings:
    """Make settings of a worker that no broker answers."""
    return Settings.model_validate({"kafka": {"bootstrap_servers": NOBODY}, "worker": {"slot": "7", "http_port": 0} | worker})


def surroundings(settings: Settings) -> Surroundings:
    """Make up what such a worker was told before."""
    topics = settings.topics
    limits = {topics.replies: 1_000_000, topics.dead_letters: 1_000_000}
    return Surroundings((TopicFacts(topics.requests, bytes(16), 2, 1_000_000),), {topics.replies: 2}, limits, "cooperative")


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


def test_a_terminal_that_closes_ends_its_workers_but_those_under_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without a handler of SIGHUP would end as after a crash: its partitions wait for its session to run out."""
    assert [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] == process.endings()
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    assert [signal.SIGTERM, signal.SIGINT] == process.endings()


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


def _is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Kafka nothing is read, nor is a partition given: what is seen is how the page goes on from ready."""
    monkeypatch.setattr(Restorer, "run", lambda restorer: setattr(restorer, "is_ready", True))
    monkeypatch.setattr(Poller, "is_ready", property(lambda _: True, lambda *_: None), raising=False)
    monkeypatch.setattr(Poller, "unconfirmed", property(lambda _: None, lambda *_: None), raising=False)


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_a_worker_that_cannot_go_on_is_not_ready_from_then_on(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client fails for good: `/readyz`, which was green, answers 503 until the worker has left its group and ends with exit code 3."""
    fenced, looked = Event(), Event()

    def fail() -> None:
        raise BrokerError("fenced")

    def publish(publisher: Publisher) -> None:
        publisher.is_open = True
        (fenced if client == "producer" else looked).wait(WITHIN_S)
        if client == "producer":
            fail()

    def poll(_: Source, timeout_s: float) -> Batch:
        if client == "consumer" and fenced.wait(timeout_s):
            fail()
        return Batch()

    monkeypatch.setattr(process, "LEAVE_S", WITHIN_S)
    monkeypatch.setattr(Publisher, "run", publish)
    monkeypatch.setattr(Source, "poll", poll)
    monkeypatch.setattr(Source, "close", lambda _: looked.wait(WITHIN_S))
    _is_joined(monkeypatch)

    async def run() -> list[tuple[int, str]]:
        settings = without_broker()
        http = open_engine(settings, {})
        worker = Worker(settings, surroundings(settings), http)
        ended = asyncio.create_task(worker.ended())
        try:
            found = [await _readiness(worker, until=200)]
            fenced.set()
            found.append(await _readiness(worker, until=503))
            assert not ended.done()
            looked.set()
            with pytest.raises(BrokerError, match="fenced") as error:
                await asyncio.wait_for(ended, WITHIN_S)
            assert 3 == error.value.exit_code
            # Nobody sees it green again, for as long as there is a page.
            return [*found, await _readiness(worker, until=503)]
        finally:
            looked.set()
            worker.close()
            await http.close()

    assert [(200, "ok\n"), (503, "ending\n"), (503, "ending\n")] == asyncio.run(run())


def test_a_worker_that_cannot_publish_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than one publication may take, whatever keeps it: the page says for how long; once it went through it is ready again."""
    stuck, through = Event(), Event()

    def publish(publisher: Publisher) -> None:
        publisher.is_open = True
        stuck.wait(WITHIN_S)
        publisher.publishing_since = publisher.tick - 2 * Settings().worker.commit_budget_s
        through.wait(WITHIN_S)
        publisher.publishing_since = None

    monkeypatch.setattr(Publisher, "run", publish)
    monkeypatch.setattr(Source, "poll", lambda *_: Batch())
    _is_joined(monkeypatch)

    async def run() -> list[tuple[int, str]]:
        settings = without_broker()
        http = open_engine(settings, {})
        worker = Worker(settings, surroundings(settings), http)
        try:
            found = [await _readiness(worker, until=200)]
            stuck.set()
            found.append(await _readiness(worker, until=503))
            through.set()
            return [*found, await _readiness(worker, until=200)]
        finally:
            stuck.set()
            through.set()
            worker.signalled()  # else its threads would outlive the test, and speak into others
            await asyncio.wait_for(worker.ended(), WITHIN_S)
            worker.close()
            await http.close()

    good, bad, again = asyncio.run(run())
    assert (good, again) == ((200, "ok\n"), (200, "ok\n"))
    assert "nothing could be published for" in bad[1]


async def _readiness(worker: Worker, until: int) -> tuple[int, str]:
    """Ask `/readyz` until it answers so; its loop turns meanwhile."""
    url = f"http://127.0.0.1:{worker.health.port}/readyz"
    end = asyncio.get_running_loop().time() + WITHIN_S
    while True:
        answer = await asyncio.to_thread(loopback.get, url, timeout_s=WITHIN_S)
        if answer.status_code == until:
            return answer.status_code, answer.text
        assert asyncio.get_running_loop().time() < end, f"{answer.status_code} {answer.text}"


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
