"""A worker in which something of ours raises, or stands: it ends loudly or says so; nothing goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event

import httpx
import pytest

from dispatcher.adapters.http import open_engine
from dispatcher.errors import DispatcherError
from dispatcher.worker import process
from dispatcher.worker.observer import WorkerObserver
from dispatcher.worker.poller import Poller
from dispatcher.worker.process import Worker
from dispatcher.worker.publisher import Publisher
from dispatcher.worker.restorer import Restorer
from tests import loopback
from tests.waiting import eventually_async
from tests.worker.test_process import SIGNAL_TO_END_S, surroundings, without_broker

Bugs = SimpleQueue[tuple[BaseException, str]]


@pytest.fixture
def bugs(monkeypatch: pytest.MonkeyPatch) -> Bugs:
    """What is told to the log, with its traceback."""
    told: Bugs = SimpleQueue()
    monkeypatch.setattr(WorkerObserver, "bug", lambda _, error, where: told.put((error, where)))
    return told


async def live(*steps: Callable[[Worker], object]) -> None:
    """Make a worker without a broker, take these steps, and wait for its end."""
    settings = without_broker(publishing="at_least_once")
    http = open_engine(settings, {})
    worker = Worker(settings, surroundings(settings), http)
    try:
        for step in steps:
            if asyncio.iscoroutine(awaited := step(worker)):
                await awaited
        await asyncio.wait_for(worker.ended(), SIGNAL_TO_END_S)
    finally:
        worker.close()
        await http.close()


def broken(*_: object) -> None:
    """Do what nobody thought of."""
    raise ZeroDivisionError


@pytest.mark.parametrize(("owner", "name"), [(Poller, "poller"), (Publisher, "publisher"), (Restorer, "restorer")])
def test_a_thread_that_dies_takes_the_worker_with_it(owner: type, name: str, bugs: Bugs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process stays that looks alive and polls, publishes or restores nothing: it ends with an error, and the log has the traceback."""
    monkeypatch.setattr(owner, "run", broken)
    with pytest.raises((ZeroDivisionError, DispatcherError)):
        asyncio.run(live())
    error, where = bugs.get_nowait()
    assert (ZeroDivisionError, name) == (type(error), where)


def test_a_bug_on_the_event_loop_ends_the_worker(bugs: Bugs) -> None:
    """Whatever the engine was about to do with its lanes, it has not done: the next owner begins from what is committed."""
    with pytest.raises(DispatcherError, match="internal error: ZeroDivisionError"):
        asyncio.run(live(lambda worker: worker._post(broken)))
    assert "event loop" == bugs.get_nowait()[1]


@pytest.mark.parametrize(("owner", "name"), [(Poller, "poller"), (Publisher, "publisher"), (Restorer, "restorer")])
def test_a_thread_that_stands_turns_livez_red(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client call that never comes back: `/livez` names the thread that does not turn, and not the event loop, which does."""
    gate = Event()
    monkeypatch.setattr(process, "LIVE_S", 2.0)
    monkeypatch.setattr(owner, "run", lambda *_: gate.wait(SIGNAL_TO_END_S))

    async def named(worker: Worker) -> None:
        def is_named() -> bool:
            answer = loopback.get(f"http://127.0.0.1:{worker.health.port}/livez", timeout_s=5)
            assert (answer.status_code == httpx.codes.OK) == (answer.text == "ok\n")
            return f"{name} has not turned" in answer.text and "event loop" not in answer.text

        await eventually_async(is_named, what=f"/livez names the {name} alone")
        gate.set()
        worker.signalled()

    asyncio.run(live(named))
