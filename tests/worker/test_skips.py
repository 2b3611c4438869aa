"""Requests that somebody skips: each ends without a call, and the command ends with it, also where nothing is left to be ended."""

from __future__ import annotations

import pytest

from dispatcher.core.internal.control import PAUSED, RUNNING, SKIP, key_target, request_target
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.room import Room
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.progress.gap import Cause, Gap
from tests.specimens import TOPIC_ID, record
from tests.worker.engine_stage import CONTROL, Stage

pytestmark = pytest.mark.filterwarnings("error")


async def staged() -> tuple[Stage, Owner]:
    """A stage with one partition of which nothing is parked."""
    stage = Stage()
    owner = stage.assign()
    await stage.play()
    return stage, owner


async def test_a_skipped_request_is_answered_without_a_call() -> None:
    """Queued, in front of its retry, or not come yet: `cancelled`, and the command ends with the reply. In a call: its answer counts."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"a"), (2, b"b"), (3, b"c"))
    await stage.play()
    stage.callee.answer(2, 503, retry_after_s=100)
    await stage.play()
    for offset in (1, 2, 3, 9):
        stage.skip(offset)
    await stage.play()
    assert [(1, "cancelled"), (2, "cancelled")] == stage.answered()
    stage.answer_all([3])
    await stage.play()
    stage.deliver(owner, (9, b"d"))
    await stage.play()
    assert [(3, "ok"), (9, "cancelled")] == stage.answered()[2:]
    ended = [message.key for one in stage.published for message in one.extra if message.topic == CONTROL]
    assert [request_target(position_id(record(offset=n), TOPIC_ID)).encode() for n in (1, 2, 3, 9)] == ended
    assert 1 == stage.callee.started.count(2)


async def test_what_is_not_wanted_is_not_called_behind_what_else_is_not() -> None:
    """Of a lane several are to end, and it is known before its first call: the end of one lets none of the others begin."""
    stage = Stage()
    owner = stage.assign()
    await stage.play(restore=False)
    stage.deliver(owner, (0, b"a"), (1, b"a"), (2, b"a"))
    for offset in (0, 1):
        stage.skip(offset)
    await stage.play()
    assert ([(0, "cancelled"), (1, "cancelled")], [2]) == (stage.answered(), stage.callee.started)


async def test_what_is_not_wanted_together_ends_together() -> None:
    """Commands that are read at once: the first lets nothing begin that the second one ends."""
    stage, owner = await staged()
    stage.want(key_target(b"a"), PAUSED)
    stage.deliver(owner, (0, b"a"), (1, b"a"), (2, b"a"))
    await stage.play()
    records = [stage.command(request_target(position_id(record(offset=n), TOPIC_ID)), SKIP) for n in (0, 1)]
    stage.engine.commanded([stage.command(key_target(b"a"), RUNNING), *records])
    await stage.play()
    assert ([(0, "cancelled"), (1, "cancelled")], [2]) == (stage.answered(), stage.callee.started)


async def test_a_skip_of_what_is_withheld_ends_when_that_is_published() -> None:
    """The map has place for one range: d has ended, and is published only once a, which waits, is parked. The skip of it ends then."""
    stage = Stage(room=Room(records=1000, size_bytes=1 << 20, unpublished_s=1000, map_bytes=36))
    owner = stage.assign()
    await stage.play()
    stage.want(key_target(b"a"), PAUSED)
    stage.deliver(owner, (0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"))
    await stage.play()
    stage.skip(3)
    stage.answer_all([1])
    await stage.play()
    stage.answer_all([3])
    await stage.until(lambda: len(stage.answered()) == 2)
    ended = [message.key for one in stage.published for message in one.extra if message.topic == CONTROL]
    assert [request_target(position_id(record(offset=3), TOPIC_ID)).encode()] == ended
    assert [0] == [offset for _, offset in stage.ear.aside]


async def test_a_command_for_what_has_ended_is_ended_too() -> None:
    """Nothing is left to be wanted: a tombstone of the command, and no second reply."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"))
    await stage.play()
    stage.answer_all()
    await stage.play()
    stage.skip(0)
    await stage.play()
    assert [(0, "ok")] == stage.answered()
    assert [(request_target(position_id(record(offset=0), TOPIC_ID)).encode(), None)] == [
        (message.key, message.value) for message in stage.published[-1].extra
    ]


async def test_a_command_for_what_retention_has_removed_is_ended_too() -> None:
    """It will never come: who goes on behind the gap takes the command with it."""
    stage, owner = await staged()
    stage.skip(1)
    await stage.play()
    assert not stage.published
    stage.engine.passed(Gap(0, Cause.RETENTION, 0, 3, 5), owner)
    await stage.play()
    assert [request_target(position_id(record(offset=1), TOPIC_ID)).encode()] == [
        message.key for outcome in stage.published for message in outcome.extra
    ]


async def test_a_command_of_a_topic_that_is_gone_is_ended_by_who_comes_to_its_partition() -> None:
    """The topic was deleted and made anew: nobody will ever have the effect. One that comes later may be of a topic that comes later."""
    stage = Stage()
    former, other, later = (request_target(f"dispatcher.requests/{n}@Former12") for n in ("0/5", "1/5", "0/6"))
    stage.want(former, SKIP)
    stage.want(other, SKIP)
    owner = stage.assign()
    await stage.play()
    stage.want(later, SKIP)
    stage.deliver(owner, *[(n, b"k%d" % n) for n in range(8)])
    await stage.play()
    stage.answer_all()
    await stage.play()
    assert [former.encode()] == [message.key for outcome in stage.published for message in outcome.extra]
