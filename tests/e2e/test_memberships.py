"""What Kafka can take from a worker while it works: its place in the group, its topic; and what it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatcher.adapters.kafka.starts import init_topics
from tests.e2e import operator
from tests.e2e.stage import Process, assert_all_is_well, by_request, header, ids, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CANNOT = 3
# The least that the settings allow for.
INTERVAL_S = 11.6
SHORT_INTERVAL: dict[str, Any] = {"drain_s": 0.5, "transaction_timeout_s": 1, "max_poll_interval_s": INTERVAL_S}


def _words(ended: Process) -> str:
    """Wait for its end; give its last words, a sentence and a hint."""
    assert ended.wait() == CANNOT, ended.text()
    assert "Traceback" not in ended.text()
    words = [line for line in ended.text().splitlines() if not line.startswith("{")]
    assert ["error", "hint"] == [line.partition(":")[0] for line in words], words
    return "\n".join(words)


@pytest.mark.parametrize(
    ("protocol", "intervals"),
    [("consumer", 1), pytest.param("cooperative", 1, marks=pytest.mark.soak), pytest.param("consumer", 3, marks=pytest.mark.soak)],
)
def test_a_call_longer_than_the_poll_interval_costs_no_membership(
    settings: SettingsFactory, tmp_path: Path, protocol: str, intervals: int
) -> None:
    """The poller never waits for a call, nor for room: the partition is not lost, the call is made once, and the next ones follow it.

    Its buffer is full all the while, and it is not fetched from.
    """
    latency_ms = intervals * INTERVAL_S * 1000 + 1500
    with stage(settings, tmp_path, partitions=1, upstream={"call_timeout_s": 60}) as set_up:
        replies = set_up.replies()
        running = set_up.worker(protocol=protocol, lane_buffer_max_records=2, **SHORT_INTERVAL).ready()
        names = set_up.submit(["doc:1"], f"/echo?latency_ms={latency_ms:.0f}", prefix="long") + set_up.submit(["doc:1"] * 4)
        records = replies.await_count(len(names), 120)
        assert_all_is_well(set_up, names, records)
        assert names == [call["id"] for call in set_up.calls()]
        assert not running.events("lost") + running.events("revoked")
        assert 1 == len(running.events("live"))


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_calls_and_refusals_of_twice_the_poll_interval_cost_no_membership(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """A call of twice the interval, and a callee that refuses for as long, throw out neither of two workers: no call is made too often."""
    hinted_s, times = 2, round(2 * INTERVAL_S / 2)
    with stage(
        settings, tmp_path, partitions=4, worker={"ordering": ordering}, upstream={"call_timeout_s": 60, "breaker_failures": 0}
    ) as set_up:
        replies = set_up.replies()
        running = [set_up.worker(**SHORT_INTERVAL).ready() for _ in range(2)]
        eventually(lambda: [2, 2] == [len(worker.live()) for worker in running], what="each has its share")
        shared = [len(worker.events("revoked")) for worker in running]
        names = set_up.submit(["doc:long"], f"/echo?latency_ms={2 * INTERVAL_S * 1000:.0f}", prefix="long")
        names += set_up.submit([f"doc:{n}" for n in range(8)], f"/echo?fault=503&retry_after={hinted_s}&times={times}", prefix="refused")
        records = replies.await_count(len(names), 240)
        assert_all_is_well(set_up, names, records)
        assert 1 == len(set_up.calls(id=names[0]))
        assert [times + 1] * 8 == [len(set_up.calls(id=name)) for name in names[1:]]
        assert not [event for worker in running for event in worker.events("lost")]
        assert shared == [len(worker.events("revoked")) for worker in running]


@pytest.mark.soak
def test_fifty_calls_of_forty_seconds_hold_nobody_up(settings: SettingsFactory, tmp_path: Path) -> None:
    """Nothing of ours ends slow work but `call_timeout_s`: the calls run side by side, each is made once, and other keys are answered."""
    worker = {"ordering": "key", **SHORT_INTERVAL}
    with stage(settings, tmp_path, partitions=4, worker=worker, upstream={"call_timeout_s": 120}) as set_up:
        replies = set_up.replies()
        running = set_up.worker().ready()
        slow = set_up.submit([f"doc:{n}" for n in range(50)], "/echo?latency_ms=40000", prefix="slow")
        eventually(lambda: len(slow) == len(set_up.calls()), what="all of them are called")
        names = slow + set_up.submit([f"other:{n}" for n in range(50)], prefix="other")
        records = replies.await_count(len(names), 240)
        assert_all_is_well(set_up, names, records)
        assert len(names) == len(set_up.calls())
        assert set(names) - set(slow) == set(ids(records[:50])), "they came while the slow ones ran"
        assert not running.events("lost") + running.events("revoked")


def test_a_topic_that_is_made_anew_ends_its_workers(settings: SettingsFactory, tmp_path: Path) -> None:
    """Positions of the old topic mean nothing in the new one: exit 3 with what is wrong, long before the next look at the topic is due."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        topics, replies = set_up.settings.topics, set_up.replies()
        running = set_up.worker().ready()
        set_up.submit(["doc:1"])
        replies.await_count(1)
        eventually(lambda: len({tuple(part.items()) for part in set_up.positions()}) == 1, what="committed == end")
        admin = operator.connected(set_up.settings)
        operator.delete(admin, topics.requests)
        operator.create(admin, topics.requests, 1)
        assert "was made anew" in _words(running)


@pytest.mark.parametrize("protocol", ["consumer", pytest.param("cooperative", marks=pytest.mark.soak)])
def test_a_topic_that_is_deleted_ends_its_workers(settings: SettingsFactory, tmp_path: Path, protocol: str) -> None:
    """The group only takes the partitions away, in silence: the worker would idle, and call itself ready."""
    with stage(settings, tmp_path, partitions=2) as set_up:
        running = set_up.worker(protocol=protocol, topic_check_s=1).ready()
        operator.delete(operator.connected(set_up.settings), set_up.settings.topics.requests)
        assert "was deleted" in _words(running)


def test_a_topic_that_grows_ends_its_workers(settings: SettingsFactory, tmp_path: Path) -> None:
    """Also the one that is given none of the new partitions: its keys may have moved."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        workers = [set_up.worker(topic_check_s=1).ready() for _ in range(2)]
        operator.grow(operator.connected(set_up.settings), set_up.settings.topics.requests, 2)
        for worker in workers:
            assert "has grown beyond the 1 partitions" in _words(worker)


def test_a_queue_from_before_a_topic_grew_is_drained_first(settings: SettingsFactory, tmp_path: Path) -> None:
    """It grew while no worker ran: exit 3, and what that says to do answers everything that was queued, each request once."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        topics, admin = set_up.settings.topics, operator.connected(set_up.settings)
        names = set_up.submit([f"doc:{n}" for n in range(10)])
        for name in (topics.requests, topics.replies, topics.dead_letters, topics.parked, topics.journal, topics.state):
            operator.grow(admin, name, 2)
        words = _words(set_up.worker())
        assert "has grown beyond the 1 partitions" in words
        assert "`dispatcher topics init --fill-gaps earliest`" in words
        assert {1: 0} == init_topics(set_up.settings, fill_gaps="earliest").started
        set_up.worker(on_wrong_partition="warn")
        replies = set_up.replies()
        assert sorted(names) == sorted(by_request(replies.await_count(len(names))))
        assert {"ok"} == {header(record, "dispatcher-status") for record in replies.records}
