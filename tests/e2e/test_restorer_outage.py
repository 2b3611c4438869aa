"""The restorer while Kafka stands still, and once it was started again: everything that was asked is answered, whole and once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.core.lanes.outcome import Owner
from dispatcher.settings import Settings
from dispatcher.worker.letters import Fetch, Restore
from tests.brokers import tied
from tests.e2e.test_restorer import TIMEOUT_S, Log, Running
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.faults, pytest.mark.soak]
PARTITIONS = range(3)


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of the test's own, on a port that stays its own."""
    broker = LocalBroker(tmp_path_factory.mktemp("own"), free_port())
    with tied(broker):
        yield broker


@pytest.fixture
def made(own: LocalBroker, prefix: str) -> Settings:
    """Make topics with two parked requests in each partition."""
    settings = SettingsFactory(str(own.status().bootstrap), prefix)(partitions=len(PARTITIONS))
    for partition in PARTITIONS:
        Log(settings).write(*[Log(settings).request(n, partition=partition) for n in (3, 5)])
    return settings


def ask_all(running: Running) -> None:
    """Ask for each partition, and for what is parked there."""
    for partition in PARTITIONS:
        running.inbox.put(Restore(Owner(partition, 1)))


def assert_all_told(running: Running, settings: Settings) -> None:
    """See every answer, once; then ask for the requests and see them."""
    told = dict(running.next("restored") for _ in PARTITIONS)
    assert {Owner(partition, 1): [3, 5] for partition in PARTITIONS} == {
        owner: [entry.offset for entry in entries] for owner, entries in told.items()
    }
    for owner, entries in told.items():
        running.inbox.put(Fetch(owner, tuple(entries)))
    for _ in PARTITIONS:
        owner, found, missing = running.next("fetched")
        assert ([Log(settings).request(n, partition=owner.partition) for n in (3, 5)], []) == (found, missing)
    assert running.is_silent()


def test_a_broker_that_stands_still_is_waited_for(own: LocalBroker, made: Settings) -> None:
    """At the start, while it is asked and while it is read: the thread shows that it lives, and answers when Kafka does."""
    process = int(str(own.status().process))
    os.kill(process, signal.SIGSTOP)
    running = Running(made)
    first = running.restorer.tick
    eventually(lambda: running.restorer.tick > first, what="a sign of life")
    assert not running.restorer.is_ready
    os.kill(process, signal.SIGCONT)
    assert [] == running.next("commanded")
    os.kill(process, signal.SIGSTOP)
    ask_all(running)
    again = running.restorer.tick
    eventually(lambda: running.restorer.tick > again + 5, what="some more of them")
    assert running.is_silent()
    os.kill(process, signal.SIGCONT)
    assert_all_told(running, made)
    running.close()


def test_a_broker_that_was_started_again_is_read_on(own: LocalBroker, made: Settings) -> None:
    """What it remembers of the leaders of before is forgotten: old connections give news, indexes and requests as new ones would."""
    running = Running(made)
    running.next("commanded")
    ask_all(running)
    assert_all_told(running, made)
    own.down()
    ask_all(running)
    own.up()
    assert_all_told(running, made)
    producer = clients.producer(made)
    producer.produce(made.topics.control, b"{}", b"key:doc:1", 0)
    assert 0 == producer.flush(TIMEOUT_S)
    assert [b"key:doc:1"] == [record.key for record in running.next("commanded")]
    running.close()
