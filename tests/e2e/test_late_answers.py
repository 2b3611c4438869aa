"""An answer of the group's coordinator that comes too late: what it asked for is done all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.coordinator import describe_group
from tests.e2e.proxy import Proxy
from tests.e2e.stage import Stage, Worker, assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.faults, pytest.mark.soak]

# There and back: longer than the client waits for the answer to a heartbeat (its interval, 2 s on our own brokers), shorter than a session.
DELAY_S = 1.3


def _late(worker: Worker) -> int:
    """Count the heartbeats whose answers it did not wait for."""
    return sum("ConsumerGroupHeartbeatRequest in flight" in event["message"] for event in worker.events("kafka_client"))


def _shares(on: Stage) -> list[int]:
    """Tell how many partitions each member has, as the group sees it."""
    group, admin = on.settings.worker.group, clients.admin(on.settings)
    members = describe_group(admin, group, 15).members
    return sorted(len(member.assignment.topic_partitions) for member in members)


@pytest.fixture
def factory(beside: str, prefix: str) -> SettingsFactory:
    """Make settings for the broker itself."""
    return SettingsFactory(beside, prefix)


@pytest.mark.parametrize("protocol", ["consumer"])  # the one whose heartbeats are answered with partitions
def test_what_a_late_answer_asked_for_is_done_all_the_same(factory: SettingsFactory, way: Proxy, tmp_path: Path, protocol: str) -> None:
    """It asks a worker to give a partition to one that joins: without it nobody would have that partition."""
    with stage(factory, tmp_path, latency_ms=20, partitions=2, worker={"protocol": protocol}) as set_up:
        replies = set_up.replies()
        first = set_up.worker(broker=way.address).ready()
        eventually(lambda: first.live() == {0, 1}, what="it has all partitions")
        way.delay(DELAY_S)
        second = set_up.worker()
        eventually(lambda: sum(_shares(set_up)) == 2 and len(_shares(set_up)) == 2, what="the second one has joined")
        eventually(lambda: _late(first), what="an answer to the first one came too late")
        way.heal()
        names = set_up.submit([f"doc:{n}" for n in range(40)])
        eventually(second.live, what="the second one has a partition")
        assert_all_is_well(set_up, names, replies.await_count(len(names)))
