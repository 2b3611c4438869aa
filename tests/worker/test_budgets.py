"""Budgets in the engine: what is set aside stands in the state topic before the call, and the next owner goes on from there."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dispatcher.core.internal.account import account_name
from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.status import Reason, Status
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from tests.specimens import settings
from tests.worker.engine_stage import Stage

KEY = b"doc:3"
MODELS = {"m": {"usd_per_million": 1}}


def budgeted(ordering: str = "key", **budget: Any) -> Settings:
    """A dollar a day for each key, of which a call takes up to 40 cents."""
    budgets = {"all": {"keys": ["*"], "usd_per_day": 1, "reserve_usd": 0.4, **budget}}
    return settings({"backoff_base_s": 0.001}, budgets=budgets, models=MODELS, worker={"ordering": ordering})


def answered(cents: int, status: int = 200) -> Answered:
    """An answer that costs so many cents."""
    body = b'{"model":"m","usage":{"prompt_tokens":%d,"completion_tokens":0}}' % (cents * 10_000)
    return Answered(status, (("content-type", "application/json"),), body)


async def end(stage: Stage, offset: int, cents: int, status: int = 200) -> None:
    """End the open call of a request, once there is one: an attempt waits for its backoff."""
    while offset not in stage.callee.calls:
        await stage.play()
    stage.callee.calls[offset].set_result(answered(cents, status))
    await stage.play()


def spent(stage: Stage, key: bytes = KEY) -> Decimal:
    """What stands in the state topic, spent and set aside."""
    return stage.notes[0].accounts[account_name(key)].spent


@pytest.mark.parametrize("ordering", ["key", "partition"])
async def test_the_day_ends_where_the_budget_does(ordering: str) -> None:
    """Three calls of 30 cents, and the rest are dead letters, each with the time of the next day; another key goes on."""
    stage = Stage(budgeted(ordering))
    owner = stage.assign()
    stage.deliver(owner, *((n, KEY) for n in range(5)), (5, b"doc:5"))
    await stage.play()
    for offset in range(3):
        assert offset in stage.callee.calls
        await end(stage, offset, 30)
    await end(stage, 5, 30)
    assert [0, 1, 2, 5] == sorted(stage.callee.started)
    ends = {one.record.offset: one.reply for one in stage.published if one.record is not None and one.reply is not None}
    assert {3, 4} == {n for n, reply in ends.items() if reply.reason is Reason.BUDGET_EXHAUSTED and reply.status is Status.DEAD}
    assert all(ends[n].fault is not None and ends[n].fault.retry_at for n in (3, 4))  # type: ignore[union-attr] # said just before
    assert Decimal("0.9") == spent(stage)
    assert Decimal("0.3") == spent(stage, b"doc:5")


async def test_what_is_set_aside_stands_there_before_the_call() -> None:
    """A worker that dies between the two has called nothing; one that dies in the call has left its reserve."""
    stage = Stage(budgeted())
    stage.deliver(stage.assign(), (0, KEY))
    await stage.play(publish=False)
    assert [] == stage.callee.started
    await stage.play()
    assert ([0], Decimal("0.4")) == (stage.callee.started, spent(stage))


async def test_an_heir_counts_what_its_predecessor_may_have_spent() -> None:
    """In hand at the crash: its reserve is spent. It is called again all the same, and once more is not paid for."""
    stage = Stage(budgeted())
    owner = stage.assign()
    stage.deliver(owner, (0, KEY), (1, KEY))
    await stage.play()
    assert [0] == stage.callee.started
    stage.engine.abandon([owner])
    await stage.play()
    heir = stage.assign(epoch=8)
    stage.deliver(heir, (0, KEY), (1, KEY))
    await stage.play()
    await end(stage, 0, 40)
    assert Decimal("0.8") == spent(stage)
    assert [0, 0] == stage.callee.started
    ends = [one.reply.reason for one in stage.published if one.reply is not None and one.record is not None and one.record.offset == 1]
    assert [Reason.BUDGET_EXHAUSTED] == ends


async def test_a_failed_attempt_costs_what_it_was_billed_for() -> None:
    """Each attempt is set aside and settled for itself; what was not charged is given back."""
    stage = Stage(budgeted())
    stage.deliver(stage.assign(), (0, KEY))
    await stage.play()
    await end(stage, 0, 25, 500)
    assert spent(stage) in {Decimal("0.25"), Decimal("0.65")}  # the next one may be set aside for already
    await end(stage, 0, 10)
    assert Decimal("0.35") == spent(stage)
    assert [0, 0] == stage.callee.started


async def test_a_lane_may_wait_for_the_next_day() -> None:
    """`when_spent = "wait"`: nothing is lost, and its lane says why it stands."""
    stage = Stage(budgeted(when_spent="wait"))
    owner = stage.assign()
    stage.deliver(owner, (0, KEY), (1, KEY), (2, b"doc:5"))
    await stage.play()
    await end(stage, 0, 70)
    await end(stage, 2, 1)
    lane = stage.engine.partitions[0].lanes[KEY]
    assert lane.first_offset == 1
    assert "budget" == lane.why(SystemClock().now())[0]
    assert [0, 2] == sorted(stage.callee.started)


@pytest.mark.parametrize("how", ["cancelled", "timed out", "of a gateway"])
async def test_a_call_without_a_whole_answer_costs_its_reserve(how: str) -> None:
    """B37: cut off, out of time, or a gateway's word that it has heard nothing: the callee may have done it, and is not said to be free."""
    stage = Stage(budgeted())
    stage.deliver(stage.assign(), (0, KEY))
    await stage.play()
    if how == "cancelled":
        stage.cancel(0)
    elif how == "timed out":
        stage.callee.time_out(0)
    else:
        stage.callee.answer(0, 504)
    await stage.until(lambda: stage.callee.started == [0, 0] or stage.answered() == [(0, "cancelled")])
    assert Decimal("0.4" if how == "cancelled" else "0.8") == spent(stage)
    assert all(one.reply is None or one.reply.usage is None for one in stage.published)
