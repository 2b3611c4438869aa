"""Requests whose deadline passes while they wait: each ends then, out of turn and without a call, whatever holds its lane."""

from __future__ import annotations

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import PAUSED, RUNNING, key_target
from dispatcher.core.lanes.room import Room
from dispatcher.worker.clock import SystemClock
from tests.specimens import MONO, WALL, settings, value
from tests.worker.engine_stage import ROOM, Stage, keyed

pytestmark = pytest.mark.filterwarnings("error")


class Watch(SystemClock):
    """A clock that a test sets."""

    later_s = 0.0

    def now(self) -> Instant:
        """See Clock."""
        return Instant(MONO + self.later_s, WALL + self.later_s)


def dated(later_s: float, **fields: object) -> bytes:
    """A request's value with a deadline so long after the watch began."""
    return value(deadline=Instant(MONO, WALL).rfc3339(later_s), **fields)


async def until_answered(stage: Stage, count: int) -> None:
    """Wait for so many replies."""
    await stage.until(lambda: len(stage.answered()) == count)


async def test_what_is_queued_expires_out_of_turn() -> None:
    """Behind a call that goes on, in both orderings; what has no deadline, and what has time left, stays."""
    for of in (settings(worker={"on_wrong_partition": "warn"}), keyed()):
        watch = Watch()
        stage = Stage(of, clock=watch)
        owner = stage.assign()
        await stage.play()
        stage.deliver(owner, (0, b"a"))
        stage.deliver(owner, (1, b"a"), (2, b"b"), content=dated(-1))
        stage.deliver(owner, (3, b"a"), content=dated(100))
        await until_answered(stage, 2)
        assert [(1, "expired"), (2, "expired")] == sorted(stage.answered())
        watch.later_s = 101
        stage.engine.delivered({owner: []}, {})
        stage.answer_all([0])
        await until_answered(stage, 4)
        assert [(0, "ok"), (3, "expired")] == sorted(stage.answered()[2:])
        assert [0] == stage.callee.started
        assert all(one.letter is None for one in stage.published)


async def test_it_expires_by_itself_when_its_time_comes() -> None:
    """Nothing else happens in the partition: a timer ends it, in a lane that somebody has paused too."""
    stage = Stage()
    owner = stage.assign()
    await stage.play()
    stage.want(key_target(b"a"), PAUSED)
    soon = stage.engine._clock.now().rfc3339(0.2)
    stage.deliver(owner, (0, b"a"), (1, b"b"), content=value(deadline=soon))
    await stage.until(lambda: (0, "expired") in stage.answered())
    stage.answer_all([1])
    await stage.until(lambda: (1, "ok") in stage.answered())


async def test_what_is_parked_expires_too() -> None:
    """Of a halted or paused key: it is read again, answered, and its tombstone goes out with that; the key stays as it is."""
    watch = Watch()
    stage = Stage(room=Room(records=4, size_bytes=1 << 30, unpublished_s=1000, park_s=0.0), clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.want(key_target(b"a"), PAUSED)
    stage.deliver(owner, (0, b"a"), (1, b"a"), content=dated(50))
    stage.deliver(owner, (2, b"a"), (3, b"a"))
    await stage.until(lambda: stage.parked() == [0, 1, 2, 3])
    watch.later_s = 60
    stage.engine.delivered({owner: []}, {})
    stage.engine._early._expire(stage.engine.partitions[0])
    await until_answered(stage, 2)
    assert [(0, "expired"), (1, "expired")] == stage.answered()
    assert [2, 3] == stage.parked()
    stage.want(key_target(b"a"), RUNNING)
    await stage.until(lambda: 2 in stage.callee.calls)
    assert [2] == stage.callee.started


async def test_a_new_owner_knows_the_deadlines_of_what_is_parked() -> None:
    """It restores them with the index, and ends what has expired meanwhile, before anything of the key is called."""
    watch = Watch()
    stage = Stage(room=Room(records=4, size_bytes=1 << 30, unpublished_s=1000, park_s=0.0), clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.want(key_target(b"a"), PAUSED)
    stage.deliver(owner, (0, b"a"), (1, b"a"), content=dated(50))
    stage.deliver(owner, (2, b"a"))
    await stage.until(lambda: stage.parked() == [0, 1, 2])
    stage.engine.abandon([owner])
    watch.later_s = 60
    stage.assign(epoch=8, position=3)
    await until_answered(stage, 2)
    assert [(0, "expired"), (1, "expired")] == stage.answered()
    assert [2] == stage.parked()
    assert [] == stage.callee.started


async def test_after_a_call_it_is_a_dead_letter() -> None:
    """It waits for its next attempt when its time is over: what the first one did may matter to somebody, and `halt_key` holds its key."""
    watch = Watch()
    stage = Stage(clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"), content=dated(600, after_failure="halt_key"))
    stage.deliver(owner, (1, b"a"))
    await stage.play()
    stage.callee.answer(0, 503, retry_after_s=500)
    await stage.play()
    watch.later_s = 601
    stage.engine._early._expire(stage.engine.partitions[0])
    await stage.play()
    (outcome,) = stage.replied()
    assert outcome.reply is not None
    assert outcome.letter is not None
    assert ("dead", "deadline_exceeded", 1) == (outcome.reply.status, outcome.letter.reason, outcome.letter.attempts)
    assert "halted" == stage.engine.desired.why_held(b"a", 0)
    assert [0] == stage.callee.started


async def test_a_call_in_flight_ends_with_the_deadline() -> None:
    """It is given the time that is left, and no other begins afterwards: dead at once, whatever attempts are left."""
    watch = Watch()
    stage = Stage(clock=watch, room=ROOM)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"), content=dated(5))
    await stage.play()
    assert [5.0] == [call.timeout_s for call in stage.callee.made]
    watch.later_s = 5
    stage.callee.time_out(0)
    await stage.play()
    assert [(0, "dead")] == stage.answered()
