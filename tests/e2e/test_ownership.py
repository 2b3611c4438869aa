"""A partition that goes and comes back: its keys are called again only when their old calls have ended, and each call says whose it is."""

from __future__ import annotations

import signal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.messages.partitioner import partition_for
from tests.e2e.stage import Stage, Worker, assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CALL_S = 12
PARTITIONS = 2


def _keys() -> list[str]:
    """Give one key of each partition."""
    return [next(key for n in count() if partition_for((key := f"doc:{n}").encode(), PARTITIONS) == wanted) for wanted in range(PARTITIONS)]


def _begun(set_up: Stage) -> dict[int, int]:
    """Count the calls of the long requests that have begun, by partition."""
    calls = [call["partition"] for call in set_up.calls() if call["id"].startswith("long")]
    return {partition: calls.count(partition) for partition in range(PARTITIONS)}


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_a_key_whose_partition_bounces_is_never_called_twice_at_once(
    settings: SettingsFactory, tmp_path: Path, protocol: str, ordering: str
) -> None:
    """A long call is cut when its partition goes, made by the next owner, cut again when the partition comes back: one window at a time.

    Each call tells partition, offset and a higher epoch than the one before, so that a callee can refuse an older one; one reply.
    """
    worker = {"drain_s": 1, "protocol": protocol, "ordering": ordering}
    with stage(settings, tmp_path, partitions=PARTITIONS, worker=worker) as set_up:
        replies = set_up.replies()
        host = set_up.worker().ready()
        names = set_up.submit(_keys(), f"/echo?latency_ms={CALL_S * 1000}", prefix="long") + set_up.submit(_keys(), prefix="behind")
        eventually(lambda: min(_begun(set_up).values()) == 1, what="both long calls run")
        guest = set_up.worker()
        eventually(lambda: len(guest.live()) == 1, what="one partition has gone")
        (bounced,) = guest.live()
        eventually(lambda: _begun(set_up)[bounced] > 1, what="its call is made anew")
        guest.signal(signal.SIGTERM)
        assert 0 == guest.wait()
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        calls = _windows(set_up, bounced)
        assert ["client_closed", "client_closed", "answered"] == [call["outcome"] for call in calls]
        assert 1 == len({(call["partition"], call["offset"], call["id"]) for call in calls})
        assert [_epochs(host, bounced)[0], *_epochs(guest, bounced), _epochs(host, bounced)[1]] == [call["epoch"] for call in calls]
        for number in range(PARTITIONS):
            _assert_one_at_a_time(_windows(set_up, number))


def _windows(set_up: Stage, partition: int) -> list[dict[str, Any]]:
    return [call for call in set_up.calls(partition=partition) if call["id"].startswith("long")]


def _epochs(worker: Worker, partition: int) -> list[int]:
    return [event["epoch"] for event in worker.events("live") if event["partition"] == partition]


def _assert_one_at_a_time(calls: list[dict[str, Any]]) -> None:
    for before, after in pairwise(calls):
        assert before["end_s"] <= after["t_s"]
        assert before["epoch"] < after["epoch"]
