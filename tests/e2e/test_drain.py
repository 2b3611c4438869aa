"""Handing partitions over: what is in hand is finished first, and nobody else waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.messages.partitioner import partition_for
from tests.e2e.stage import Stage, assert_all_is_well, stage
from tests.topics import GroupProtocol, SettingsFactory
from tests.waiting import eventually, let_pass

PARTITIONS = 12
LATENCY_MS = 100
SLOW_S = 25
BEFORE_S = 3
# How much of their own pace the partitions that stay must keep, on a machine that others use too.
PACE_KEPT = 0.7
ORDERINGS = ["partition", pytest.param("key", marks=[pytest.mark.soak, pytest.mark.faults])]


@pytest.mark.long
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_kept_partitions_go_on_at_full_rate_while_another_drains(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """A second worker joins while calls of 25 s run: their partitions are handed over only when those calls are answered.

    Until then the partitions that the first worker keeps complete calls from their buffers at the rate that they had before, and their
    replies are visible. No slow call is cut, repeated or answered twice. (Where the group runs eager all partitions are taken away at once,
    and there are none that could go on: the rest holds all the same.)
    """
    upstream, worker = {"call_timeout_s": 40}, {"ordering": ordering}
    keeps_some = GroupProtocol.name != "eager"
    with stage(settings, tmp_path, latency_ms=LATENCY_MS, partitions=PARTITIONS, upstream=upstream, worker=worker) as set_up:
        replies = set_up.replies()
        slow = range(0, PARTITIONS, 2)
        first = set_up.worker().ready()
        keys = [key for _ in range(SLOW_S * 1000 // LATENCY_MS) for key in _keys(set(range(PARTITIONS)) - set(slow))]
        names = set_up.submit(list(_keys(slow)), f"/echo?latency_ms={SLOW_S * 1000}", prefix="slow") + set_up.submit(keys)
        eventually(lambda: len({call["partition"] for call in set_up.calls()}) == PARTITIONS, what="all partitions are at work")
        began = time.monotonic()
        let_pass(BEFORE_S, "time to see the pace")
        set_up.worker()
        eventually(lambda: first.events("revoked"), what="partitions are taken away")
        revoking = time.monotonic()
        kept = first.live() - set(slow)
        assert first.live() != set(slow), "one way of 924 to choose: exactly the partitions that have nothing to drain were taken"
        eventually(lambda: replies.read() and first.events("handed_over"), SLOW_S + 10, "the drain ended")
        drained = time.monotonic()
        assert drained - revoking > SLOW_S / 2, "the slow calls were not waited for"
        calls = [call for call in set_up.calls() if call["partition"] in kept and "end_s" in call]
        before = _per_second(calls, began, revoking)
        during = _per_second(calls, revoking, drained)
        assert keeps_some == bool(kept)
        print(f"{during:.0f} of {before:.0f} calls a second in {len(kept)} kept partitions while others drained {drained - revoking:.0f} s")
        assert during > PACE_KEPT * before or not keeps_some
        seen = [at for record, at in replies.timed() if record.partition in kept and revoking < at < drained]
        assert len(seen) > PACE_KEPT * before * (drained - revoking) or not keeps_some
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"]
        assert {"answered"} == {call["outcome"] for call in set_up.calls()}


def _keys(partitions: Iterable[int], of: int = PARTITIONS) -> Iterator[str]:
    """Give one key for each of these partitions."""
    for wanted in partitions:
        yield next(key for n in count() if partition_for((key := f"doc:{n}").encode(), of) == wanted)


def _per_second(calls: list[dict[str, Any]], start: float, end: float) -> float:
    return len([call for call in calls if start < call["end_s"] <= end]) / (end - start)


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_call_longer_than_the_grace_is_cut_and_made_again_by_the_next_owner(
    settings: SettingsFactory, tmp_path: Path, ordering: str
) -> None:
    """A hand-over waits `drain_s` and no longer: the call is cut, made again under the same id and a higher epoch, answered once."""
    upstream, worker = {"call_timeout_s": 15, "backoff_base_s": 0.1}, {"drain_s": 1, "ordering": ordering}
    with stage(settings, tmp_path, partitions=2, upstream=upstream, worker=worker) as set_up:
        replies = set_up.replies()
        first = set_up.worker().ready()
        names = set_up.submit([*_keys(range(2), 2)], "/fault/hang?times=1", prefix="slow")
        names += set_up.submit([f"doc:{n}" for n in range(20)])
        eventually(lambda: len(_slow(set_up)) == 2, what="both partitions are at work")
        set_up.worker()
        eventually(lambda: first.events("drain_expired"), what="the grace has passed")
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        taken = first.events("drain_expired")[0]["partitions"]
        assert len(taken) == (2 if GroupProtocol.name == "eager" else 1)
        for moved in taken:
            cut, again = (call for call in _slow(set_up) if call["partition"] == moved)
            assert ("client_closed", "answered") == (cut["outcome"], again["outcome"])
            assert cut["id"] == again["id"]
            assert cut["epoch"] < again["epoch"]


def _slow(set_up: Stage) -> list[dict[str, Any]]:
    return [call for call in set_up.calls() if call["id"].startswith("slow")]
