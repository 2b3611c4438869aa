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


@pytest.mark.parametrize("grace_s", [0, 20], ids=["crash", "clean"])
def test_a_worker_outlives_its_broker(own_broker: LocalBroker, tmp_path: Path, prefix: str, grace_s: float) -> None:
    """Stopped or killed in the middle and started again: the worker goes on by itself and was alive all the time.

    Every request has one reply, in order. No call is made again because its transaction failed.
    """
    settings = SettingsFactory(str(own_broker.status().bootstrap), prefix)
    with stage(settings, tmp_path, latency_ms=10, partitions=4) as set_up:
        names = set_up.submit([f"doc:{n % 40}" for n in range(1500)])
        worker = set_up.worker().ready()
        eventually(lambda: len(set_up.calls()) > 200, what="work goes on")
        own_broker.down(grace_s)
        assert httpx.codes.OK == worker.get("/livez").status_code
        own_broker.up()
        replies = set_up.replies()
        replies.await_count(len(names))
        assert httpx.codes.OK == worker.get("/livez").status_code
        assert_all_is_well(set_up, names, replies.read())
        assert 0 == set_up.witness()["repeated"]["same_epoch"]
        assert worker.popen.poll() is None
