"""Agents that share a lane on a real broker: a flood of one of them, and the requests of the others."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from dispatcher.client.lanes import Lanes, partition
from dispatcher.core.operations.lane_board import partition_rows
from tests.e2e.history import assert_guarantees, commits, judged_stage
from tests.e2e.stage import Stage, Worker, by_request, header
from tests.topics import SettingsFactory
from tests.waiting import eventually

KEY = "doc:1"
FLOOD = 100
# A hundred times what each of the others has.
TIMES = 100
OTHERS, EACH = 10, 10


def test_lone_requests_pass_a_flood(settings: SettingsFactory, tmp_path: Path) -> None:
    """In a strict lane 100 requests of one agent stand before one of each of ten others: those are called among the first all the same.

    Each agent's replies stand in its order; everything is committed, and every guarantee holds.
    """
    with judged_stage(settings, tmp_path, partitions=1, latency_ms=5, worker={"fairness": "agent"}) as set_up:
        flood = set_up.submit([KEY] * FLOOD, prefix="flood", agent="flood")
        lone = [set_up.submit([KEY], prefix=f"lone{n}", agent=f"agent-{n}")[0] for n in range(10)]
        replies, worker = set_up.replies(), set_up.worker()
        records = replies.await_count(FLOOD + 10)
        assert {*flood, *lone} == set(by_request(records))
        order = [header(record, "ce_causationid") for record in records]
        assert flood == [name for name in order if name not in lone]
        # By what the lane knows when its first call begins it is two; a broker may hand it the log piece by piece.
        assert sum(name not in lone for name in order[: max(map(order.index, lone))]) < FLOOD / 2, order
        eventually(lambda: len({tuple(sorted(part.items())) for part in set_up.positions()}) == 1, 60, "committed == end")
        assert_guarantees(set_up, worker)


def all_is_known(set_up: Stage, lanes: Lanes) -> bool:
    """Whether the worker of a partition that is paused has read all that is not settled there, and no call is in hand."""
    (row,) = partition_rows(lanes.facts())
    return (row.held, row.in_flight, row.why) == (row.lag, 0, "paused")


def agents_called(set_up: Stage) -> list[str]:
    """Whose requests were called, in the order of that."""
    calls = sorted(set_up.calls(), key=lambda call: float(call["t_s"]))
    return [str(call["id"]).rpartition("-")[0] for call in calls]


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_one_agent_at_a_hundredfold_load(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """One of eleven agents has 100 times the requests of each other, and its flood is being worked off when those come.

    From the moment at which the lane knows of it the first request of each waits for two calls of the flood at most; and as long as they
    have any Jain's index over the calls of the others is at least 0.95.
    """
    worker = {"fairness": "agent", "ordering": ordering, "report_interval_s": 0.2}
    with judged_stage(settings, tmp_path, partitions=1, latency_ms=5, worker=worker) as set_up:
        set_up.submit([KEY] * (TIMES * EACH), prefix="flood", agent="flood")
        replies, running, lanes = set_up.replies(), set_up.worker(), Lanes(set_up.settings, timeout_s=60)
        replies.await_count(20, 180)
        lanes.pause(partition(0))
        others = [f"other{n}" for n in range(OTHERS)]
        for name in others:
            set_up.submit([KEY] * EACH, prefix=name, agent=name)
        eventually(lambda: all_is_known(set_up, lanes), 180, "the lane knows of all of them")
        before = len(set_up.calls())
        lanes.resume(partition(0))
        replies.await_count((TIMES + OTHERS) * EACH, 180)
        order = agents_called(set_up)[before:]
        waited = [order[: order.index(name)].count("flood") for name in others]
        indices = [jain([order[:calls].count(name) for name in others]) for calls in range(33, (OTHERS + 1) * EACH, 11)]
        print(f"{ordering}: calls of the flood before the first of each other: {waited}, Jain's index over the others: {min(indices):.3f}")
        assert max(waited) <= 2
        assert min(indices) >= 0.95
        assert abs(order[: (OTHERS + 1) * EACH].count("flood") - EACH) <= 2
        eventually(lambda: len({tuple(sorted(part.items())) for part in set_up.positions()}) == 1, 60, "committed == end")
        assert_guarantees(set_up, running)


def jain(shares: list[int]) -> float:
    """R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984: 1 where all have the same."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@pytest.mark.soak
@pytest.mark.faults
def test_what_ended_out_of_the_log_s_order_is_not_called_again(settings: SettingsFactory, tmp_path: Path) -> None:
    """Strict lanes, whose workers are killed in the middle of a transaction: the commit's map knows what ended above the position.

    Nothing of that is called again, each request has one reply, in the order of its agent, and others pass the flood under each owner.
    """
    worker = {"fairness": "agent"}
    with judged_stage(settings, tmp_path, partitions=2, latency_ms=10, worker=worker) as set_up:
        names = [name for n in range(2) for name in set_up.submit([f"doc:{n}"] * 150, prefix=f"flood{n}", agent="flood")]
        for n in range(3):
            names += set_up.submit([f"doc:{n % 2}", f"doc:{(n + 1) % 2}"] * 5, prefix=f"lone{n}", agent=f"agent-{n}")
        replies, doomed = set_up.replies(), list[Worker]()
        for _ in range(2):
            doomed.append(set_up.worker(fault=("after_offsets", 5)))
            assert -signal.SIGKILL == doomed[-1].wait(120)
        heir = set_up.worker()
        replies.await_count(len(names), 120)
        assert Counter(names) == Counter(by_request(replies.records).keys())
        eventually(lambda: len({tuple(sorted(part.items())) for part in set_up.positions()}) == 1, 60, "committed == end")
        assert_guarantees(set_up, *doomed, heir)
        assert any(commit.settled for commit in commits(set_up.settings)), "nothing ended out of the log's order"
