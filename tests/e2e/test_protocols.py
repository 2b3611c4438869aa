"""Workers come, go and crash under each of Kafka's group protocols."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import keyed
from tests.e2e.history import assert_guarantees
from tests.e2e.keyed import Operator
from tests.e2e.stage import assert_all_is_well, kill, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

# One of each protocol that most other tests do not run; members that have names are theirs.
CORE = {("cooperative", "partition", "nameless"), ("eager", "partition", "nameless")}


def _cases() -> list[object]:
    cases = product(("cooperative", "consumer", "eager"), ("partition", "key"), ("nameless", "named"))
    return [pytest.param(*case, marks=() if case in CORE else pytest.mark.soak) for case in cases]


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.parametrize(("protocol", "ordering", "members"), _cases())
def test_workers_come_go_and_crash(settings: SettingsFactory, tmp_path: Path, protocol: str, ordering: str, members: str) -> None:
    """One works, two join, one is killed, one leaves: one reply each, in order, nothing repeated but by the next owner of a crash.

    With a lane for each key some wait and are parked, one is halted, one held.
    """
    latency_ms, worker = (400, keyed.WORKER) if ordering == "key" else (40, {})
    slot: dict[str, Any] = {"slot": None} if members == "nameless" else {}
    with stage(settings, tmp_path, latency_ms=latency_ms, partitions=6, worker={"protocol": protocol} | worker) as set_up:
        replies, operator = set_up.replies(), Operator(set_up)
        names = operator.hold() + set_up.submit([f"doc:{n % 60}" for n in range(400)])
        leaving = set_up.worker(**slot).ready()
        doomed, last = set_up.worker(**slot), set_up.worker(**slot)
        eventually(lambda: doomed.live() and last.live(), what="all have partitions")
        names += set_up.submit([f"doc:{n % 60}" for n in range(900)], prefix="second")
        replies.await_count(len(replies.read()) + 30)
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"], "no call is repeated by a hand-over"
        kill(doomed)
        replies.await_count(len(replies.read()) + 30)
        leaving.signal(signal.SIGTERM)
        assert 0 == leaving.wait()
        operator.let_go()
        eventually(lambda: operator.look() and len(replies.read()) >= len(names), what="all replies")
        operator.assert_done(replies.records)
        assert_all_is_well(set_up, names, replies.records)
        assert_guarantees(set_up, leaving, doomed, last)
        assert {protocol} == {event["protocol"] for worker in (leaving, doomed, last) for event in worker.events("started")}
