"""Agents that share a lane on a real broker: a flood of one of them, and the requests of the others."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.history import assert_guarantees, judged_stage
from tests.e2e.stage import by_request, header
from tests.topics import SettingsFactory
from tests.waiting import eventually

KEY = "doc:1"
FLOOD = 100


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
