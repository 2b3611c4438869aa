"""Workers come, crash and go, and every request keeps its promise."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from dispatcher.core.messages.record import Record
from tests.e2e.history import assert_guarantees
from tests.e2e.stage import header, ids, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

REQUESTS, KEYS, PARTITIONS = 5_000, 200, 12
VISIBLE_WITHIN_S = 20


# 200 keys are called at once where each has a lane of its own: the load is to last as long as with 12 lanes.
@pytest.mark.faults
@pytest.mark.timeout(240)
@pytest.mark.soak  # the chaos run shows it too
@pytest.mark.parametrize(("ordering", "latency_ms"), [("partition", 20), ("key", 330)])
def test_every_request_is_answered_once_and_in_order_while_workers_come_crash_and_go(
    settings: SettingsFactory, tmp_path: Path, ordering: str, latency_ms: float
) -> None:
    """5,000 requests over 200 keys: two workers, one joins, one is killed inside a transaction, one gets SIGTERM.

    Every request has one terminal reply under read_committed, no call starts out of order, none overlap, everything is committed, and
    everybody's replies are visible again within 20 s of the kill. Calls repeated after the kill are allowed.
    """
    with stage(settings, tmp_path, latency_ms=latency_ms, partitions=PARTITIONS, worker={"ordering": ordering}) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(REQUESTS)])
        first = set_up.worker().ready()
        doomed = set_up.worker(fault=("after_offsets", 25))
        replies.await_count(500)
        third = set_up.worker()
        doomed.wait()
        killed = time.monotonic()
        assert doomed.popen.returncode == -signal.SIGKILL
        third.ready()

        def visible() -> set[int]:
            replies.read()
            return {record.partition for record, at in zip(replies.records, replies.arrived, strict=True) if at > killed}

        unfinished = _unfinished(set_up.positions())
        eventually(lambda: unfinished <= visible(), VISIBLE_WITHIN_S, "replies in every partition that had work")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        replies.await_count(REQUESTS, 120)

        assert ids(replies.read()) == dict.fromkeys(names, 1)
        assert {header(record, "dispatcher-status") for record in replies.records} == {"ok"}
        _assert_in_order(replies.records, by_key=ordering == "key")
        eventually(lambda: len(set(map(tuple, (d.items() for d in set_up.positions())))) == 1, 30, "committed == end")
        seen = set_up.witness()
        assert seen["out_of_order"] == {"partition": 0, "key": 0}, seen["findings"]
        assert seen["not_repeated"] == {"partition": 0, "key": 0}
        assert seen["overlaps"] == {kind: {"same_epoch": 0, "other_epoch": 0} for kind in ("partition", "key")}
        assert seen["calls"] == REQUESTS + seen["repeated"]["other_epoch"] + seen["endings"].get("client_closed", 0)
        assert seen["repeated"]["same_epoch"] == 0
        assert_guarantees(set_up, first, doomed, third)


def _unfinished(positions: tuple[dict[int, int], dict[int, int]]) -> set[int]:
    committed, ends = positions
    return {n for n in committed if committed[n] < ends[n]}


def _assert_in_order(records: list[Record], *, by_key: bool) -> None:
    """Replies stand in the reply topic in the order of their requests, lane by lane."""
    offsets: dict[tuple[int, bytes | None], list[int]] = {}
    for record in records:
        assert header(record, "dispatcher-request-partition") == str(record.partition)
        lane = record.partition, record.key if by_key else None
        offsets.setdefault(lane, []).append(int(header(record, "dispatcher-request-offset")))
    for lane, found in offsets.items():
        assert found == sorted(found), lane
