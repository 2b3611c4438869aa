"""Where partitions end, asked of a broker that stands still for a while, and of one that was started again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from dispatcher.adapters.kafka import inquiry, starts
from dispatcher.adapters.kafka.admin import connect
from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.adapters.kafka.offsets import ask_edges
from dispatcher.adapters.kafka.starts import log_edges
from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.settings import Settings
from tests.brokers import tied
from tests.e2e.test_replay import fill
from tests.topics import SettingsFactory

pytestmark = [pytest.mark.broker, pytest.mark.faults]
PARTITIONS = range(3)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of this module's own, on a port that stays its own."""
    broker = LocalBroker(tmp_path_factory.mktemp("own"), free_port())
    with tied(broker):
        yield broker


@pytest.fixture
def made(own: LocalBroker, prefix: str) -> Settings:
    """Make topics with 60 requests."""
    settings = SettingsFactory(str(own.status().bootstrap), prefix)(partitions=3)
    fill(settings, 60)
    return settings


@pytest.fixture
def freeze(own: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ModuleType], None]]:
    """Have the broker stand still from now until a question of this module is asked for the second time."""
    process = int(str(own.status().process))
    times: list[float] = []

    def ask(*arguments: Any, **named: Any) -> Any:
        times.append(0)
        if len(times) == 2:
            os.kill(process, signal.SIGCONT)
        return ask_edges(*arguments, **named)

    def freeze(module: ModuleType) -> None:
        monkeypatch.setattr(module, "ask_edges", ask)
        os.kill(process, signal.SIGSTOP)

    yield freeze
    os.kill(process, signal.SIGCONT)


async def ask(settings: Settings, between: Callable[[], object]) -> int:
    """Ask where the partitions of the request topic end, once before and once after something; gives the sum."""
    places = [(settings.topics.requests, number) for number in PARTITIONS]
    asked = Inquiry(settings, 60)
    try:
        await asked.ends(places)
        await asyncio.to_thread(between)
        return sum((await asked.ends(places)).values())
    finally:
        await asked.close()


async def test_a_client_hears_no_end_from_a_broker_that_stands_still(made: Settings, freeze: Callable[[ModuleType], None]) -> None:
    """Without an answer there is no offset, which would mean to read all that is there: it is asked again."""
    assert 60 == await ask(made, lambda: freeze(inquiry))


def test_a_replay_sees_no_empty_log_in_a_broker_that_stands_still(made: Settings, freeze: Callable[[ModuleType], None]) -> None:
    """Row 22: taken for empty, a log that holds the replays would have them called once more."""
    cluster = connect(made, 60)
    log_edges(cluster, made.topics.requests, [0], "latest")
    freeze(starts)
    assert 60 == sum(log_edges(cluster, made.topics.requests, list(PARTITIONS), "latest").values())


async def test_an_open_client_outlives_a_restart_of_kafka(own: LocalBroker, made: Settings) -> None:
    """Row 3: what it remembers of the leaders of before is forgotten, in a client that asks and in a replay."""
    cluster = connect(made, 60)
    log_edges(cluster, made.topics.requests, list(PARTITIONS), "latest")

    def restart() -> None:
        own.down()
        own.up()

    assert 60 == await ask(made, restart)
    ends = await asyncio.to_thread(log_edges, cluster, made.topics.requests, list(PARTITIONS), "latest")
    assert 60 == sum(ends.values())
