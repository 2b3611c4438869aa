"""A callee that stands still: what a worker says of it, lane by lane, and that it goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.kinds import key_on
from tests.e2e.stage import Worker, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

DUE, IDLE = "0", "1"


def gauge(worker: Worker, name: str) -> dict[str, float]:
    """Read a metric by partition."""
    families = text_string_to_metric_families(worker.get("/metrics").text)
    samples = [sample for family in families if family.name == f"dispatcher_{name}" for sample in family.samples]
    return {sample.labels["partition"]: sample.value for sample in samples}


@pytest.mark.parametrize("ordering", ["partition", pytest.param("key", marks=pytest.mark.soak)])
def test_only_lanes_with_work_are_late(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """The callee is stopped with SIGSTOP: the partition that has a request gets older, the other one does not, and the worker is healthy.

    It is not the worker's fault, and starting it anew would only make the call again; on SIGCONT the call ends, and the age is 0.
    """
    with stage(settings, tmp_path, partitions=2, worker={"ordering": ordering}) as set_up:
        worker, replies = set_up.worker().ready(), set_up.replies()
        eventually(lambda: gauge(worker, "lane_lag_records") == {DUE: 0, IDLE: 0}, what="both partitions are measured")
        set_up._upstream.signal(signal.SIGSTOP)
        set_up.submit([key_on(0, 2).decode()])
        eventually(lambda: gauge(worker, "lane_oldest_age_seconds")[DUE] > 2, what="the lane is late")
        assert {DUE: 1, IDLE: 0} == gauge(worker, "lane_inflight")
        assert {DUE: 1, IDLE: 0} == gauge(worker, "lane_lag_records")
        assert 0 == gauge(worker, "lane_oldest_age_seconds")[IDLE]
        assert {httpx.codes.OK} == {worker.get(path).status_code for path in ("/livez", "/readyz", "/startupz")}
        set_up._upstream.signal(signal.SIGCONT)
        replies.await_count(1)
        eventually(lambda: gauge(worker, "lane_oldest_age_seconds") == {DUE: 0, IDLE: 0}, what="no lane is late")
        assert 1 == set_up.witness()["calls"]
