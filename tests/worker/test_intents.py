"""Requests that must not be called twice, in the engine: who has the slot, what goes out before the call, what is left without one."""

from __future__ import annotations

from typing import Any

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.tried import Tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.room import Room
from dispatcher.worker.letters import Drained
from tests.specimens import settings, value
from tests.waiting import eventually_async
from tests.worker.engine_stage import ROOM, Stage, keyed

ONCE = {"content": value(repeat="never")}


async def staged(room: Room = ROOM, **worker: Any) -> tuple[Stage, Owner]:
    """A stage with one partition, restored."""
    stage = Stage(keyed(**worker), room)
    owner = stage.assign()
    await stage.play()
    return stage, owner


async def test_the_intent_goes_out_before_the_call() -> None:
    """No call while nothing is published; then one, and the reply takes the intent away."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), **ONCE)
    await stage.play(publish=False)
    assert [] == stage.callee.started
    await stage.play()
    assert [0] == stage.callee.started
    assert stage.notes[0].known[0].begun
    stage.callee.answer(0)
    await stage.play()
    assert [(0, "ok")] == stage.answered()
    assert {} == stage.notes[0].known


async def test_intents_of_several_lanes_go_out_together() -> None:
    """What is ready at once is published at once: ten lanes wait for one publication, not one for the other."""
    stage, owner = await staged()
    stage.deliver(owner, *((n, b"k%d" % n) for n in range(10)), **ONCE)
    await stage.play(publish=False)
    assert 10 == stage.outcomes.qsize()
    assert [] == stage.callee.started
    assert 10 == stage._publish()
    await stage.play()
    assert list(range(10)) == stage.callee.started


async def test_an_intent_holds_the_slot_of_its_call() -> None:
    """So that what is intended is called at once when it may be; who stands in line comes behind it."""
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), **ONCE)
    stage.deliver(owner, (1, b"b"))
    await stage.play(publish=False)
    assert [] == stage.callee.started
    await stage.play()
    assert [0] == stage.callee.started
    stage.callee.answer(0)
    await stage.play()
    assert [0, 1] == stage.callee.started
    stage.callee.answer(1)
    await stage.play()
    assert (0, 0) == (stage.engine._turns._taken, stage.engine.partitions[0].calls)


async def test_a_pause_frees_the_slot() -> None:
    """The intent is withdrawn, and another lane is called; let go, it is called in its turn."""
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), **ONCE)
    stage.deliver(owner, (1, b"b"))
    await stage.play(publish=False)
    stage.want("key:a", "paused")
    await stage.play()
    assert [1] == stage.callee.started
    assert {} == stage.notes[0].known
    stage.want("key:a", "running")
    stage.callee.answer(1)
    await stage.play()
    assert [1, 0] == stage.callee.started
    assert stage.notes[0].known[0].begun


async def test_a_skip_frees_the_slot() -> None:
    """It ends without a call, though its intent was on its way."""
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), **ONCE)
    stage.deliver(owner, (1, b"b"))
    await stage.play(publish=False)
    stage.skip(0)
    await stage.play()
    assert [(0, "cancelled")] == stage.answered()
    assert [1] == stage.callee.started
    assert {} == stage.notes[0].known


async def test_the_slot_of_an_intent_that_ended_goes_on_to_the_next() -> None:
    """The head is skipped while its intent is on its way, and the one behind it has an intent too: one slot is taken, and given back once.

    Both were taken, and the first one was never given back.
    """
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), (1, b"a"), **ONCE)
    await stage.play(publish=False)
    stage.skip(0)
    await stage.play()
    assert [1] == stage.callee.started
    stage.callee.answer(1)
    await stage.play()
    assert 0 == stage.engine._turns._taken


async def test_who_gives_a_partition_up_withdraws_what_is_not_called() -> None:
    """Its next owner calls it; nothing is drained before that is published, and the slot is free."""
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), **ONCE)
    await stage.play(publish=False)
    stage.engine.revoke([owner])
    await stage.play(publish=False)
    assert [] == stage.told(Drained)
    await stage.play()
    assert [Drained(owner)] == stage.told(Drained)
    assert {} == stage.notes[0].known
    stage.engine.abandon([owner])
    after = stage.assign(epoch=8)
    await stage.play()
    stage.deliver(after, (0, b"a"), **ONCE)
    await stage.play()
    assert [0] == stage.callee.started


async def test_a_lost_partition_frees_its_slots() -> None:
    """Its intents are nobody's business here: the next owner reads them, or does not."""
    stage, owner = await staged(inflight_max=1)
    stage.deliver(owner, (0, b"a"), **ONCE)
    await stage.play(publish=False)
    stage.engine.abandon([owner])
    after = stage.assign(epoch=8)
    await stage.play(publish=False)
    stage.deliver(after, (1, b"b"))
    await stage.play(publish=False)
    assert [1] == stage.callee.started


async def test_an_acknowledgement_after_the_end_starts_nothing() -> None:
    """The assignment was lost meanwhile."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), **ONCE)
    await stage.play(publish=False)
    stage.engine.abandon([owner])
    await stage.play()
    assert [] == stage.callee.started


async def test_a_successor_tells_that_the_outcome_is_unknown() -> None:
    """Its predecessor died in the call: one call in all, a dead letter, and the next one of the lane has its turn."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"a"), **ONCE)
    await stage.play()
    assert [0] == stage.callee.started
    stage.engine.abandon([owner])
    after = stage.assign(epoch=8)
    await stage.play()
    stage.deliver(after, (0, b"a"), (1, b"a"), **ONCE)
    await stage.play()
    assert [(0, "dead")] == stage.answered()
    (outcome,) = stage.replied()
    assert outcome.letter is not None
    assert ("outcome_unknown", 1) == (outcome.letter.reason, outcome.letter.attempts)
    assert [0, 1] == stage.callee.started


async def test_tries_are_counted_on() -> None:
    """Two of three attempts were spent before the takeover: the third one is the last."""
    stage, owner = await staged()
    stage.engine.abandon([owner])
    stage.notes[0].known[0] = Tried(0, Tries(2, 2))
    stage.notes[0].known[9] = Tried(9, Tries(1, 1))
    after = stage.assign(epoch=8)
    await stage.play()
    stage.deliver(after, (0, b"a"))
    await stage.play()
    stage.callee.answer(0, 500)
    await stage.play()
    (outcome,) = stage.replied()
    assert outcome.letter is not None
    assert ("attempts_exhausted", 3) == (outcome.letter.reason, outcome.letter.attempts)
    assert [9] == list(stage.notes[0].known), "its request has not been read yet"


async def test_what_is_noted_of_a_request_that_has_ended_is_void() -> None:
    """It stands below the position: an owner that was lost left it."""
    stage = Stage(keyed())
    stage.notes[0].known = {3: Tried(3, Tries(1), begun=True), 7: Tried(7, Tries(1))}
    stage.assign(position=5)
    await stage.play()
    assert [7] == list(stage.notes[0].known)


async def test_the_next_attempt_waits_until_the_last_one_is_noted() -> None:
    """However short its backoff is: who dies now takes one attempt with it at most."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"))
    await stage.play()
    stage.callee.answer(0, 503, retry_after_s=0)
    await stage.play(publish=False)
    lane = stage.engine.partitions[0].lanes[b"a"]
    while "unpublished" != lane.why(stage.engine._clock.now())[0]:
        await stage.play(publish=False)
    stage.engine.advance(stage.engine.partitions[0], lane)
    await stage.play(publish=False)
    assert [0] == stage.callee.started
    await stage.until(lambda: [0, 0] == stage.callee.started)


async def opened(**worker: Any) -> tuple[Stage, Owner]:
    """A stage whose breaker has opened, for a moment, after one failure; what comes from now on must not be called twice."""
    upstream = {"breaker_failures": 1, "breaker_open_s": 0.05, "backoff_base_s": 100.0, "backoff_max_s": 100.0}
    stage = Stage(settings(upstream, worker={"ordering": "key", "on_wrong_partition": "warn", **worker}))
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"))
    await stage.play()
    stage.callee.answer(0, 500)
    await stage.play()
    return stage, owner


async def test_what_is_behind_an_intent_that_is_not_called_has_its_turn() -> None:
    """Two wait for a callee that was down. The first one is the probe, and is skipped before it is called: the second one is."""
    stage, owner = await opened()
    stage.deliver(owner, (1, b"b"), (2, b"c"), **ONCE)
    await stage.play(publish=False)  # the moment may be over before that
    assert [0] == stage.callee.started

    async def intended() -> bool:
        await stage.play(publish=False)
        return bool(stage.outcomes.qsize())

    await eventually_async(intended)  # type: ignore[arg-type] # mypy finds no T for a coroutine
    stage.skip(1)
    await stage.until(lambda: [0, 2] == stage.callee.started)
    stage.callee.answer(2)
    await stage.play()
    assert [(1, "cancelled"), (2, "ok")] == stage.answered()


async def test_a_lost_partition_gives_its_probe_back() -> None:
    """Its intent is on its way when it goes: a lane of another partition sends the probe."""
    stage, owner = await opened()
    other = stage.assign(1)
    await stage.play()
    stage.deliver(owner, (1, b"b"), **ONCE)
    await stage.play(publish=False)  # the moment may be over before that
    stage.deliver(other, (2, b"c"), **ONCE)
    await stage.play(publish=False)

    async def intended() -> bool:
        await stage.play(publish=False)
        return bool(stage.outcomes.qsize())

    await eventually_async(intended)  # type: ignore[arg-type] # mypy finds no T for a coroutine
    stage.engine.abandon([owner])
    await stage.until(lambda: [0, 2] == stage.callee.started)
