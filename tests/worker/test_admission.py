"""Lanes that wait for a callee, on the event loop: woken one after another, in time, and no more of them than may begin."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.breaker import State
from dispatcher.core.lanes.room import Room
from dispatcher.settings import Settings
from tests.specimens import settings, value
from tests.waiting import eventually_async
from tests.worker.engine_stage import Stage

OPEN, HALF_OPEN, CLOSED = (("openai", state) for state in (State.OPEN, State.HALF_OPEN, State.CLOSED))
BY_CREDENTIAL = value(credential="team-a")


def of(upstream: dict[str, Any] | None = None, **worker: Any) -> Settings:
    """Settings of a breaker that is open for a moment; `upstream` and `worker` change them."""
    upstream = {"breaker_open_s": 0.05, "backoff_base_s": 0.001, "backoff_max_s": 0.002, **(upstream or {})}
    return settings(upstream, worker={"ordering": "key", "on_wrong_partition": "warn", **worker})


async def staged(made: Settings, count: int, **fields: Any) -> Stage:
    """A stage of one partition with a request for each of so many keys, which all want to begin."""
    stage = Stage(made)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, *[(n, b"k%d" % n) for n in range(count)], **fields)
    await stage.play()
    return stage


async def fail(stage: Stage, *offsets: int) -> None:
    """These calls fail."""
    for offset in offsets:
        stage.callee.answer(offset, 500)
    await stage.play()


async def test_an_outage_is_waited_for_by_all_and_asked_after_by_one() -> None:
    """30 keys, ten slots: five calls fail, then those in hand, then one probe after another; when one goes well all others are called."""
    stage = await staged(of(inflight_max=10), 30)
    await fail(stage, *range(5))
    assert ([OPEN], 14) == (stage.ear.breakers, len(stage.callee.started))
    await fail(stage, *stage.callee.calls)
    assert ([OPEN], 14) == (stage.ear.breakers, len(stage.callee.started))
    for n in range(3):
        await stage.until(lambda: bool(stage.callee.calls))
        assert (1, 15 + n) == (len(stage.callee.calls), len(stage.callee.started))
        await fail(stage, *stage.callee.calls)
    assert [OPEN, *3 * [HALF_OPEN, OPEN]] == stage.ear.breakers
    assert [] == stage.answered()

    async def served() -> bool:
        await stage.play()
        stage.answer_all()
        return len(stage.answered()) == 30

    await eventually_async(served)  # type: ignore[arg-type] # mypy finds no T for a coroutine
    assert [HALF_OPEN, CLOSED] == stage.ear.breakers[-2:]
    assert {"ok"} == {status for _, status in stage.answered()}


async def test_those_who_waited_do_not_begin_all_at_once() -> None:
    """Nothing is known of the callee's pace: of 50 one or two begin in the first moments."""
    stage = await staged(of({"breaker_failures": 1}), 50)
    await fail(stage, *list(stage.callee.calls)[:1])
    rest = list(stage.callee.calls)
    await fail(stage, *rest)
    await stage.until(lambda: bool(stage.callee.calls))
    begun = len(stage.callee.started)
    stage.answer_all()
    await stage.play()
    await stage.play()
    assert len(stage.callee.started) - begun <= 2


async def test_who_waits_for_a_callee_holds_no_slot() -> None:
    """One slot: 20 keys wait for one upstream, and a key of another one is called at once."""
    stage = await staged(of({"breaker_failures": 1, "breaker_open_s": 1000}, inflight_max=1), 20)
    await fail(stage, 0)
    stage.deliver(stage.engine.partitions[0].owner, (20, b"other"), content=b'{"upstream":"bare"}')
    await stage.play()
    assert [20] == list(stage.callee.calls)


async def test_a_callee_that_is_well_again_finds_slots_beside_a_busy_one() -> None:
    """One slot, which others keep taken: those who waited come to stand in line, and are called."""
    stage = await staged(of({"breaker_failures": 1}, inflight_max=1), 3)
    owner = stage.engine.partitions[0].owner
    await fail(stage, 0)
    stage.deliver(owner, *[(n, b"b%d" % n) for n in range(10, 200)], content=b'{"upstream":"bare"}')
    await stage.play()

    async def served() -> bool:
        await stage.play()
        stage.answer_all()
        return {0, 1, 2} <= {offset for offset, _ in stage.answered()}

    await eventually_async(served)  # type: ignore[arg-type] # mypy finds no T for a coroutine


async def test_a_probe_that_goes_with_its_assignment_is_followed_by_another() -> None:
    """The partition is lost while its lane's probe is out: when that has ended the next lane of another partition is asked."""
    stage = Stage(of({"breaker_failures": 1}))
    first, second = stage.assign(0), stage.assign(1)
    await stage.play()
    stage.deliver(first, (0, b"a"), (1, b"b"))
    await stage.play()
    await fail(stage, 0)
    await fail(stage, 1)
    await stage.until(lambda: bool(stage.callee.calls))
    (probe,) = stage.callee.calls
    stage.deliver(second, (10, b"c"))
    await stage.play()
    stage.callee.lets_go.clear()
    stage.engine.abandon([first])
    await stage.play()
    assert probe in {0, 1}
    assert [probe] == list(stage.callee.calls)
    stage.callee.lets_go.set()
    await stage.until(lambda: [10] == list(stage.callee.calls))
    stage.answer_all()
    await stage.play()
    assert [(10, "ok")] == stage.answered()


async def test_one_answer_holds_all_lanes_with_its_credential() -> None:
    """20 keys, one slot: the first is told to come again in a while, no other is called, and then none is told a second time."""
    stage = await staged(of(inflight_max=1), 20, content=BY_CREDENTIAL)
    stage.callee.answer(0, 429, retry_after_s=0.2)
    await stage.play()
    assert ([0], {}) == (stage.callee.started, stage.callee.calls)

    async def served() -> bool:
        await stage.play()
        stage.answer_all()
        return len(stage.answered()) == 20

    await eventually_async(served)  # type: ignore[arg-type] # mypy finds no T for a coroutine
    assert 21 == len(stage.callee.started)


@pytest.mark.parametrize("records", [100, 1000])
async def test_what_waits_for_a_breaker_is_parked_under_pressure_alone(records: int) -> None:
    """200 keys in the room of a hundred records or of a thousand."""
    stage = Stage(of({"breaker_failures": 1, "breaker_open_s": 1000}), Room(records=records, size_bytes=1 << 30, unpublished_s=1000))
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"k0"))
    await stage.play()
    await fail(stage, 0)
    stage.deliver(owner, *[(n, b"k%d" % n) for n in range(1, 200)])
    await stage.until(lambda: len(stage.parked()) == (200 if records == 100 else 0))
    assert [0] == stage.callee.started


async def test_a_strict_partition_simply_waits() -> None:
    """Its head stands, and what is behind it."""
    stage = await staged(of({"breaker_failures": 1}, ordering="partition"), 3)
    await fail(stage, 0)
    (lane,) = stage.engine.partitions[0].lanes.values()
    for n in (0, 1, 2):
        await stage.until(lambda: bool(stage.callee.calls))
        assert [n] == list(stage.callee.calls)
        stage.answer_all()
        await stage.play()
    assert [(0, "ok"), (1, "ok"), (2, "ok")] == stage.answered()
    assert 0 == len(lane)
