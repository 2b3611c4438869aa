"""Requests that somebody cancels: queued ones end without a call, one in a call with it, and the next of the lane begins after that."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dispatcher.core.internal.control import CANCEL, HALTED, PAUSED, SKIP, key_target, partition_target, request_target
from dispatcher.core.lanes.ending import CUT_OFF
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.parking import Bounds
from dispatcher.worker.letters import Cut, Drained
from tests.specimens import answer
from tests.worker.engine_stage import CONTROL, Stage, target_of

pytestmark = pytest.mark.filterwarnings("error")


async def staged(*sent: tuple[int, bytes]) -> tuple[Stage, Owner]:
    """A stage with one partition of which nothing is parked, and these requests."""
    stage = Stage()
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, *sent)
    await stage.play()
    return stage, owner


def commands_ended(stage: Stage) -> list[str]:
    """Targets of which a tombstone was published on the control topic, each beside a reply or alone."""
    return [(message.key or b"").decode() for one in stage.published for message in one.extra if message.topic == CONTROL]


def kinds(stage: Stage) -> dict[int, str]:
    """What `error.kind` says of those that did not go well."""
    replies = [one.reply for one in stage.published if one.reply is not None]
    return {reply.record.offset: reply.fault.kind for reply in replies if reply.fault is not None}


@pytest.mark.parametrize("key", ["a", ""])
async def test_a_call_is_cut_off_and_the_next_one_begins_when_it_has_ended(key: str) -> None:
    """The adapter needs a moment to close its connection: until then the lane stands. The command ends with the reply."""
    stage, _ = await staged((0, b"a"), (1, b"a"))
    stage.callee.lets_go.clear()
    stage.cancel(0, key)
    await stage.play()
    assert ([0], []) == (stage.callee.started, stage.answered())
    stage.callee.lets_go.set()
    await stage.play()
    assert ([0, 1], [(0, "cancelled")]) == (stage.callee.started, stage.answered())
    assert ([target_of(0)], {0: CUT_OFF}) == (commands_ended(stage), kinds(stage))
    stage.answer_all()
    await stage.play()
    assert [(0, "cancelled"), (1, "ok")] == stage.answered()
    assert 0 == stage.engine.partitions[0].calls


async def test_what_waits_ends_at_once_without_a_call() -> None:
    """Queued, in a backoff, paused, halted, not come yet: `cancelled`, out of turn; the others go on."""
    stage, owner = await staged((0, b"a"), (1, b"a"), (2, b"b"))
    stage.callee.answer(2, 503, retry_after_s=100)
    await stage.play()
    stage.want(key_target(b"c"), PAUSED)
    stage.want(key_target(b"d"), HALTED)
    stage.want(partition_target(1), PAUSED)
    stage.deliver(owner, (3, b"c"), (4, b"d"))
    await stage.play()
    for offset, key in ((1, "a"), (2, "b"), (3, "c"), (4, ""), (9, "e")):
        stage.cancel(offset, key)
    await stage.play()
    assert [(1, "cancelled"), (2, "cancelled"), (3, "cancelled"), (4, "cancelled")] == stage.answered()
    stage.deliver(owner, (8, b"e"), (9, b"e"))
    await stage.play()
    assert (9, "cancelled") == stage.answered()[-1]
    assert [0, 2, 8] == stage.callee.started
    assert [target_of(n) for n in (1, 2, 3, 4, 9)] == commands_ended(stage)
    assert dict.fromkeys((1, 2, 3, 4, 9), "cancelled") == kinds(stage)


async def test_what_is_parked_is_read_again_to_be_answered() -> None:
    """It holds neither memory nor slot, and ends without its turn having come."""
    stage, owner = await staged((0, b"a"), (1, b"a"))
    stage.callee.answer(0, 503, retry_after_s=100)
    await stage.play()
    partition = stage.engine.partitions[0]
    for lane in partition.lanes.values():
        moved, _ = lane.park(0, Bounds(1 << 20), stage.engine._clock.now())
        stage.engine.publish(*(done for one in moved for done in partition.settle(one, 0.0)))
    await stage.play()
    assert [0, 1] == stage.parked()
    stage.cancel(1, "a")
    stage.cancel(0, "a")
    await stage.play()
    assert ([(1, "cancelled"), (0, "cancelled")], []) == (stage.answered(), stage.parked())
    assert [target_of(1), target_of(0)] == commands_ended(stage)
    assert owner == partition.owner


async def test_an_answer_of_the_same_turn_wins() -> None:
    """It has come before the command is read: the reply is what the callee said, and the command ends with it."""
    stage, _ = await staged((0, b"a"))
    stage.answer_all()
    for _ in range(3):
        await asyncio.sleep(0)
    stage.cancel(0, "a")
    await stage.play()
    assert ([(0, "ok")], [target_of(0)]) == (stage.answered(), commands_ended(stage))
    stage.cancel(0, "a")
    await stage.play()
    assert ([(0, "ok")], [target_of(0)] * 2) == (stage.answered(), commands_ended(stage))


async def test_an_adapter_that_answers_all_the_same_is_believed() -> None:
    """Cancelled in its last step, it gave what it had: that counts, and the lane goes on as ever."""
    stage, _ = await staged()
    made: list[int] = []

    async def stubborn(*_: object) -> object:
        made.append(len(made))
        with suppress(asyncio.CancelledError):
            if made == [0]:
                await asyncio.Event().wait()
        return answer()

    stage.callee.call = stubborn  # type: ignore[method-assign, assignment]
    owner = stage.engine.partitions[0].owner
    stage.deliver(owner, (0, b"a"), (1, b"a"))
    await stage.play()
    stage.cancel(0, "a")
    await stage.play()
    assert ([(0, "ok"), (1, "ok")], [0, 1]) == (stage.answered(), made)
    assert [target_of(0)] == commands_ended(stage)


async def test_asked_twice_is_once() -> None:
    """One reply; the second command finds nothing left to do, and ends too. A skip that comes between takes nothing back."""
    stage, _ = await staged((0, b"a"))
    stage.callee.lets_go.clear()
    for state in (CANCEL, SKIP, CANCEL):
        stage.want(target_of(0), state, key="a")
    await stage.play()
    stage.callee.lets_go.set()
    await stage.play()
    stage.cancel(0, "a")
    await stage.play()
    assert ([(0, "cancelled")], {0: CUT_OFF}) == (stage.answered(), kinds(stage))
    assert [target_of(0)] * 2 == commands_ended(stage)


async def test_a_call_that_has_not_begun_is_cut_off_too() -> None:
    """A task that is cancelled before its first step never runs a line: its slot comes back all the same."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"a"))
    stage.cancel(0, "a")
    await stage.play()
    assert ([(0, "cancelled")], [1]) == (stage.answered(), stage.callee.started)
    stage.answer_all()
    await stage.play()
    assert [(0, "cancelled"), (1, "ok")] == stage.answered()
    assert 0 == stage.engine.partitions[0].calls


async def test_a_call_that_is_cut_off_belongs_to_the_drain() -> None:
    """A partition that is revoked while it is being cut off is drained once the reply is published, and not before."""
    stage, owner = await staged((0, b"a"), (1, b"a"))
    stage.callee.lets_go.clear()
    stage.cancel(0, "a")
    stage.engine.revoke([owner])
    await stage.play()
    assert [] == stage.told(Drained)
    stage.callee.lets_go.set()
    await stage.play()
    assert ([(0, "cancelled")], [Drained(owner)]) == (stage.answered(), stage.told(Drained))
    assert [0] == stage.callee.started


async def test_a_call_is_cut_off_in_a_drain() -> None:
    """Nobody waits for it any longer: neither whoever cancelled it, nor the next owner of the partition."""
    stage, owner = await staged((0, b"a"), (1, b"b"), (2, b"b"))
    stage.engine.revoke([owner])
    for offset, key in ((2, "b"), (0, "a"), (9, "a")):
        stage.cancel(offset, key)
    await stage.play()
    assert ([(0, "cancelled")], []) == (stage.answered(), stage.told(Drained))
    stage.answer_all()
    await stage.play()
    assert ([(0, "cancelled"), (1, "ok")], [Drained(owner)]) == (stage.answered(), stage.told(Drained))
    assert [0, 1] == stage.callee.started


async def test_a_call_that_is_cut_off_may_be_lost_meanwhile() -> None:
    """The assignment ends before the call has: its end is told, its slot comes back, and the successor ends the request by the command."""
    stage, owner = await staged((0, b"a"), (1, b"a"))
    stage.callee.lets_go.clear()
    stage.cancel(0, "a")
    await stage.play()
    stage.engine.abandon([owner])
    again = stage.assign(epoch=8)
    stage.deliver(again, (0, b"a"), (1, b"a"))
    await stage.play()
    assert ([(0, "cancelled")], []) == (stage.answered(), stage.told(Cut))
    assert [0] == stage.callee.started
    stage.callee.lets_go.set()
    await stage.play()
    assert ([Cut(owner)], [0, 1]) == (stage.told(Cut), stage.callee.started)
    stage.answer_all()
    await stage.play()
    assert ([(0, "cancelled"), (1, "ok")], {0: "cancelled"}) == (stage.answered(), kinds(stage))
    assert (0, 0) == (stage.engine.partitions[0].calls, len(stage.engine._calls))


async def test_whoever_takes_over_cancels_before_the_first_call() -> None:
    """The command was read, and the reply not published: it stands, and the next owner has it before anything starts."""
    stage, owner = await staged((0, b"a"), (1, b"b"))
    stage.cancel(0, "a")
    await stage.play(publish=False)
    stage.engine.abandon([owner])
    stage.published.clear()
    again = stage.assign(epoch=8)
    stage.deliver(again, (0, b"a"), (1, b"b"))
    await stage.play()
    assert ([0, 1, 1], (0, "cancelled")) == (stage.callee.started, stage.answered()[-1])


async def test_commands_for_partitions_that_are_gone_end_too() -> None:
    """The topic was made anew with fewer of them: the owner of another one sees to it."""
    stage = Stage()
    gone = [request_target(f"dispatcher.requests/{n}/5@Former12") for n in (2, 3, 4)]
    for target in gone:
        stage.want(target, CANCEL, key="a")
    owner = stage.assign()
    stage.deliver(owner, *[(n, b"k%d" % n) for n in range(8)])
    await stage.play()
    assert [gone[0], gone[2]] == commands_ended(stage)
