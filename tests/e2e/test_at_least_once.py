"""The main guarantees with `publishing = "at_least_once"`: nothing lost, order kept, duplicates only after a crash."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest

from tests.e2e.history import assert_guarantees, judged_stage
from tests.e2e.stage import assert_all_is_well, ids, kill
from tests.topics import SettingsFactory

WORKER = {"publishing": "at_least_once"}


@pytest.mark.faults
@pytest.mark.parametrize(("ordering", "latency_ms"), [("partition", 5), pytest.param("key", 50, marks=pytest.mark.soak)])
def test_a_crash_loses_nothing_and_keeps_the_order(settings: SettingsFactory, tmp_path: Path, ordering: str, latency_ms: float) -> None:
    """Kill -9 in the middle: every request is answered, calls stay in order; replies that stand twice are few, and counted."""
    with judged_stage(settings, tmp_path, latency_ms=latency_ms, partitions=4, worker=WORKER | {"ordering": ordering}) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n % 40}" for n in range(1500)])
        doomed = set_up.worker()
        heir = set_up.worker()
        replies.await_count(200)
        kill(doomed)
        while set(names) - set(ids(replies.records)):
            replies.await_count(len(replies.records) + 1)
        assert_all_is_well(set_up, names, replies.read(), duplicates=True)
        # What the first owner had answered and not committed, the second one answers again: from the journal, or by another call.
        called = [record for record in replies.records if not orjson.loads(record.value or b"{}").get("duplicate")]
        doubled = sum(replied - 1 for replied in ids(called).values())
        print(f"{doubled} replies stand twice, {set_up.witness()['repeated']} calls repeated")
        assert_guarantees(set_up, doomed, heir)
        assert doubled <= set_up.witness()["repeated"]["other_epoch"]


def test_an_orderly_end_doubles_nothing(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGTERM in the middle, a second worker goes on: one reply each, no call repeated, committed == end."""
    with judged_stage(settings, tmp_path, latency_ms=5, partitions=4, worker=WORKER) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n % 40}" for n in range(1000)])
        first = set_up.worker()
        replies.await_count(100)
        second = set_up.worker().ready()
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        replies.await_count(len(names))
        second.signal(signal.SIGTERM)
        assert 0 == second.wait()
        assert_all_is_well(set_up, names, replies.read())
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"]
        assert_guarantees(set_up, first, second)
