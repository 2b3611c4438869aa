"""The broker goes away while requests flow, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import free_port
from tests.brokers import tied
from tests.e2e.stage import assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually


@pytest.fixture
def own_broker(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of this test's own, on a port that stays its own (asking for `kafka` marks the test as one that needs a broker)."""
    broker = LocalBroker(tmp_path_factory.mktemp("own"), free_port())
    with tied(broker):
        yield broker


@pytest.mark.parametrize("grace_s", [pytest.param(0, id="crash"), pytest.param(20, id="clean", marks=pytest.mark.soak)])
def test_a_worker_outlives_its_broker(own_broker: LocalBroker, tmp_path: Path, prefix: str, grace_s: float) -> None:
    """Stopped or killed in the middle and started again: the worker goes on by itself and was alive all the time.

    Every request has one reply, in order. No call is made again because its transaction failed.
    """
    # Longer than the restart takes: a lone broker that aborts a transaction before it knows its own partitions forgets their markers,
    # and what the transaction wrote hides everybody's replies for good (seen with Kafka 4.4; other brokers of a cluster would not).
    worker = {"transaction_timeout_s": 60}
    settings = SettingsFactory(str(own_broker.status().bootstrap), prefix)
    with stage(settings, tmp_path, latency_ms=10, partitions=4, worker=worker) as set_up:
        names = set_up.submit([f"doc:{n % 40}" for n in range(1500)])
        running = set_up.worker().ready()
        eventually(lambda: len(set_up.calls()) > 200, what="work goes on")
        own_broker.down(grace_s)
        assert httpx.codes.OK == running.get("/livez").status_code
        own_broker.up()
        replies = set_up.replies()
        replies.await_count(len(names))
        assert httpx.codes.OK == running.get("/livez").status_code
        assert_all_is_well(set_up, names, replies.read())
        assert 0 == set_up.witness()["repeated"]["same_epoch"]
        assert running.popen.poll() is None
