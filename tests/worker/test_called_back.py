"""Lanes that were parked before a limit that workers share: they are called back when it lets them through, and no more than may begin.

The clock of the test does not move by itself: what a timer brings back after seconds does not come back here.
"""

from __future__ import annotations

import pytest

from dispatcher.core.lanes.room import Room
from tests.worker.engine_stage import Stage
from tests.worker.test_sharing import Pair

pytestmark = pytest.mark.filterwarnings("error")
# Two records are half of what a partition holds: whatever waits long is parked.
SMALL = Room(records=4, size_bytes=1 << 30, unpublished_s=1000)


async def parked(pair: Pair, count: int, had: int) -> Stage:
    """The first worker has all of the limit, `had` calls of it open; the second has so many lanes, all but a few of them parked."""
    await pair.submit(0, had)
    await pair.go_on(0)
    assert [had, 0] == pair.calls()
    await pair.submit(1, count)
    await pair.go_on(1, 0)
    stage = pair.stages[1]
    await stage.until(lambda: len(stage.parked(1)) == count)
    assert [had, 0] == pair.calls()
    return stage


async def test_who_gains_a_share_calls_back_who_is_parked() -> None:
    """The other worker has nothing to do any more: calls begin at once, one after another, as each ends."""
    pair = Pair(SMALL, concurrency=1)
    stage = await parked(pair, 6, had=1)
    pair.stages[0].answer_all()
    await pair.stages[0].play()
    pair.watch.later_s += 1
    await pair.go_on(0, 1)
    assert [0, 1] == pair.calls()
    for count in range(1, 7):
        stage.answer_all()
        await stage.play()
        assert count == len(stage.answered())
    assert [] == stage.parked(1)


async def test_no_more_are_called_back_than_may_begin() -> None:
    """Each of them takes memory, and a reading."""
    pair = Pair(SMALL, concurrency=3)
    stage = await parked(pair, 20, had=3)
    assert 20 == len(stage.parked(1))
    pair.stages[0].answer_all()
    await pair.stages[0].play()
    pair.watch.later_s += 1
    assert 0 == stage.fetches
    await pair.go_on(0, 1)
    assert ([0, 3], 3) == (pair.calls(), stage.fetches)


async def test_who_has_no_slot_for_a_call_calls_nobody_back() -> None:
    """The only slot is taken by a call under no limit; when that has ended, somebody comes."""
    pair = Pair(SMALL, {"inflight_max": 1}, concurrency=1)
    stage = await parked(pair, 6, had=1)
    owner = stage.engine.partitions[1].owner
    stage.deliver(owner, (100, b"free"), content=b'{"upstream":"bare"}')
    await stage.play()
    assert [100] == list(stage.callee.calls)
    pair.stages[0].answer_all()
    await pair.stages[0].play()
    pair.watch.later_s += 1
    await pair.go_on(0, 1)
    assert ([100], 6) == (list(stage.callee.calls), len(stage.parked(1)))
    stage.answer_all()
    await stage.play()
    assert [0] == list(stage.callee.calls)


async def test_who_was_parked_and_is_paused_is_not_waited_for() -> None:
    """The first in line is paused meanwhile: the one behind it is called."""
    pair = Pair(SMALL, concurrency=1)
    stage = await parked(pair, 6, had=1)
    stage.want("key:k0", "paused")
    await stage.play()
    pair.stages[0].answer_all()
    await pair.stages[0].play()
    pair.watch.later_s += 1
    await pair.go_on(0, 1)
    assert [1] == list(stage.callee.calls)


async def test_what_was_parked_is_told_as_wanted() -> None:
    """Nobody stands in line any more, and all that there is would be of use."""
    pair = Pair(SMALL, concurrency=4)
    stage = await parked(pair, 6, had=4)
    gate = stage.engine._gate
    assert {6} == {crowd.calls for crowd in gate.waiting().values()}
    stage.engine.revoke([stage.engine.partitions[1].owner])
    assert {} == gate.waiting()
