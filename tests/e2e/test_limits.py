"""A callee with a strict quota, on the broker: nobody is refused, whoever waits says why, and a limit that is set too high is found out."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from dispatcher.client.lanes import Lanes
from dispatcher.core.operations.lane_board import lane_rows
from tests.e2e.stage import Stage, Worker, assert_all_is_well, header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

KEYS = 12


def sections(folder: Path, **limit: Any) -> dict[str, Any]:
    """A credential with this limit, and lanes per key."""
    secret = folder / "team-a"
    secret.write_text("Bearer team-a")
    return {
        "credentials": {"team-a": {"value_file": str(secret)}},
        "upstream": {"credentials": ["team-a"]},
        "limits": {"team-a": {"credential": "team-a", **limit}},
        "worker": {"ordering": "key", "report_interval_s": 0.2},
    }


def reasons(set_up: Stage) -> set[str]:
    """Why lanes stand, as their worker says."""
    return {row.why for row in lane_rows(Lanes(set_up.settings, timeout_s=60).facts())}


def waits(worker: Worker) -> float:
    """How many calls were under a limit, as the metrics tell."""
    lines = worker.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('dispatcher_limiter_wait_seconds_count{upstream="sample"}'))


def test_a_quota_is_kept_by_waiting(settings: SettingsFactory, tmp_path: Path) -> None:
    """Twenty in a second and four at once, of 60 requests: no 429, and all are served in order. The margin is for slow machines."""
    made = sections(tmp_path, concurrency=4, requests=20, window_s=1, margin_s=1)
    with stage(settings, tmp_path, quota=("--quota-per-s", "20", "--quota-at-once", "4"), **made) as set_up:
        worker = set_up.worker().ready()
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(60)], "/echo?latency_ms=20", credential="team-a")
        eventually(lambda: "limit" in reasons(set_up), 60, "a lane says why it stands")
        replies = set_up.replies()
        assert_all_is_well(set_up, names, replies.await_count(len(names)))
        assert {"200": 60} == set_up.witness()["statuses"]
        assert set_up.witness()["in_flight_max"] <= 4
        assert 60 == waits(worker)


@pytest.mark.soak
def test_a_limit_that_is_set_too_high_is_found_out(settings: SettingsFactory, tmp_path: Path) -> None:
    """The callee takes a fifth of what is configured: it refuses some, and none of them is lost."""
    made = sections(tmp_path, concurrency=20, requests=100, window_s=1)
    with stage(settings, tmp_path, quota=("--quota-per-s", "20"), **made) as set_up:
        set_up.worker().ready()
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(400)], "/echo?latency_ms=20", credential="team-a")
        replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
        assert_all_is_well(set_up, names, replies.await_count(len(names), 180))
        assert {"ok"} == {header(record, "dispatcher-status") for record in replies.records}
        assert [] == letters.read()
        statuses = set_up.witness()["statuses"]
        print(statuses)
        assert 400 == statuses["200"]
        assert 0 < statuses["429"] < 200


@pytest.mark.faults
def test_three_workers_share_a_quota_and_one_is_killed(settings: SettingsFactory, tmp_path: Path) -> None:
    """Twenty in a second and six at once, of 240 requests: no 429 before, after and while one is killed, and all are answered."""
    made = sections(tmp_path, concurrency=6, requests=20, window_s=1, margin_s=0.3)
    made["upstream"]["call_timeout_s"] = 5
    with stage(settings, tmp_path, quota=("--quota-per-s", "20", "--quota-at-once", "6"), **made) as set_up:
        workers = [set_up.worker() for _ in range(3)]
        for worker in workers:
            worker.ready()
        eventually(lambda: all(worker.live() for worker in workers), 60, "each has partitions")
        names = set_up.submit([f"doc:{n % (4 * KEYS)}" for n in range(240)], "/echo?latency_ms=50", credential="team-a")
        eventually(lambda: set_up.witness()["statuses"].get("200", 0) >= 40, 60, "they are at it")
        workers[1].signal(signal.SIGKILL)
        replies = set_up.replies()
        assert_all_is_well(set_up, names, replies.await_count(len(names), 120))
        witness = set_up.witness()
        assert {"200"} == {*witness["statuses"]}
        assert witness["in_flight_max"] <= 6
