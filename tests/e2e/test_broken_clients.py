"""A client of a worker fails for good: the worker goes on with another one, or ends and says so. It never lives on and does nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dispatcher.client.lanes import Lanes, partition
from tests.e2e.stage import Stage, Worker, assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CANNOT = 3
WITHIN_S = 60.0
pytestmark = pytest.mark.soak


def _broken(set_up: Stage, which: str) -> Worker:
    return set_up.worker(program=("tests.e2e.broken", which))


@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_a_member_that_fails_for_good_ends_its_worker(settings: SettingsFactory, tmp_path: Path, protocol: str) -> None:
    """Exit 3, one sentence and a hint; another worker does the rest, once."""
    with stage(settings, tmp_path, latency_ms=10, partitions=2, worker={"protocol": protocol}) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n}" for n in range(300)])
        doomed = _broken(set_up, "member").ready()
        replies.await_count(20)
        doomed.signal(signal.SIGUSR1)
        assert CANNOT == doomed.wait(), doomed.text()
        words = [line for line in doomed.text().splitlines() if not line.startswith("{")]
        assert ["error: Kafka ended this worker's membership: _FATAL", "hint"] == [words[0], words[1].partition(":")[0]]
        set_up.worker()
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_producer_that_fails_for_good_is_made_anew(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """In the middle of what it publishes: nothing is lost, doubled or called again, and the worker lives on."""
    with stage(settings, tmp_path, latency_ms=10, partitions=2, worker={"publishing": publishing}) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n}" for n in range(600)])
        worker = _broken(set_up, "publisher").ready()
        for times in range(1, 4):
            replies.await_count(60 * times)
            worker.signal(signal.SIGUSR1)
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records, duplicates=publishing == "at_least_once")
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"]
        assert worker.popen.poll() is None


def test_readers_and_reporters_that_fail_for_good_are_made_anew(settings: SettingsFactory, tmp_path: Path) -> None:
    """What people want is heard afterwards, and what lanes do is told."""
    with stage(settings, tmp_path, latency_ms=10, partitions=2, worker={"ordering": "key", "report_interval_s": 0.2}) as set_up:
        replies = set_up.replies()
        workers = [_broken(set_up, which).ready() for which in ("reader", "reporter")]
        eventually(lambda: [1, 1] == [len(worker.live()) for worker in workers], what="each has its share")
        for worker in workers:
            worker.signal(signal.SIGUSR1)
        eventually(lambda: workers[0].events("restorer_failed"), what="the reader has failed")
        eventually(lambda: workers[1].events("report_failed"), what="the reporter has failed")
        operators = Lanes(set_up.settings, timeout_s=WITHIN_S)
        told = {operators.pause(partition(number)).confirmed_by for number in range(2)}
        assert {f"{set_up.settings.topics.prefix}-{worker.name}" for worker in workers} == told
        names = set_up.submit([f"doc:{n}" for n in range(20)])
        assert [] == replies.read()
        for number in range(2):
            operators.resume(partition(number))
        assert_all_is_well(set_up, names, replies.await_count(len(names)))
