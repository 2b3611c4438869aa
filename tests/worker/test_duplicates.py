"""Duplicates in a worker: answered from the record, in their turn, by this owner of the partition and by the next."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.tried import Tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from tests.specimens import record, value
from tests.worker.engine_stage import Stage, keyed

KEY = b"doc:42"


def sent(offset: int, name: str = "r-1", key: bytes = KEY, **fields: Any) -> Record:
    """A request with that id."""
    return record(value(**fields), offset=offset, key=key, headers=(("ce_id", name.encode()),))


def answers(of: Stage) -> list[tuple[int, str, bool]]:
    """Which requests were answered, how, and whether as duplicates; in order."""
    told = []
    for reply in of.replies:
        content = orjson.loads(reply.value or b"")
        offset = int(dict(reply.headers or ())["dispatcher-request-offset"] or b"")
        told.append((offset, content["status"], content.get("duplicate", False)))
    return told


async def called(stage: Stage, *records: Record, **played: bool) -> Owner:
    """A partition comes with these, what can be called is, and is answered; `played`: what of it goes on then."""
    owner = stage.assign()
    stage.engine.delivered({owner: [*records]}, {})
    await stage.play()
    stage.answer_all()
    await stage.play(**played)
    return owner


async def test_one_call_and_two_answers() -> None:
    """The second has its turn when the first one's reply is published, and no slot is taken for it."""
    stage = Stage(keyed())
    owner = stage.assign()
    await stage.play()
    stage.engine.delivered({owner: [sent(1), sent(2), sent(3, "r-2")]}, {})
    await stage.play(publish=False)
    stage.answer_all()
    await stage.play(publish=False)
    assert ([1], 0) == (stage.callee.started, stage.recalls)
    await stage.play()
    assert [(1, "ok", False), (2, "ok", True)] == answers(stage)
    assert [1, 3] == stage.callee.started
    assert 1 == stage.recalls


async def test_the_next_owner_remembers() -> None:
    """What its predecessor's journal says is read before the first call."""
    stage = Stage(keyed())
    owner = await called(stage, sent(1))
    stage.engine.abandon([owner])
    successor = stage.assign(epoch=8, position=2)
    stage.engine.delivered({successor: [sent(2), sent(3, path="/other")]}, {})
    await stage.play(restore=False)
    assert [1] == stage.callee.started
    await stage.play()
    assert [(1, "ok", False), (2, "ok", True), (3, "dead", False)] == answers(stage)
    assert [1] == stage.callee.started


async def test_what_was_never_published_is_not_remembered() -> None:
    """Its call is made again by the next owner, who is the first to answer."""
    stage = Stage(keyed())
    owner = await called(stage, sent(1), publish=False)
    stage.engine.abandon([owner])
    stage.outcomes.get()
    while not stage.outcomes.empty():
        stage.outcomes.get()
    successor = stage.assign(epoch=8)
    stage.engine.delivered({successor: [sent(1), sent(2)]}, {})
    await stage.play()
    stage.answer_all()
    await stage.play()
    assert [(1, "ok", False), (2, "ok", True)] == answers(stage)
    assert [1, 1] == stage.callee.started


async def test_an_id_is_one_request_within_a_key_only() -> None:
    """Under another key it is another request: that is not looked for."""
    stage = Stage(keyed())
    await called(stage, sent(1), sent(2, key=b"doc:43"))
    assert [(1, "ok", False), (2, "ok", False)] == sorted(answers(stage))


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("known", [{}, {1: Tried(1, Tries(1, 1))}])
async def test_a_request_that_comes_again_itself(publishing: str, known: dict[int, Tried]) -> None:
    """Exactly once somebody moved the position back: it is called again. At least once it was a crash, and its reply is there.

    Also where it had failed before: a crash may leave what is noted of its tries behind its reply.
    """
    stage = Stage(keyed(publishing=publishing))
    owner = await called(stage, sent(1))
    stage.engine.abandon([owner])
    stage.notes[0].known |= known
    successor = stage.assign(epoch=8, position=1)
    stage.engine.delivered({successor: [sent(1)]}, {})
    await stage.play()
    stage.answer_all()
    await stage.play()
    again = publishing == "at_least_once"
    assert [(1, "ok", False), (1, "ok", again)] == answers(stage)
    assert ([1] if again else [1, 1]) == stage.callee.started


async def test_in_a_strict_partition_the_next_request_waits_behind_it() -> None:
    """One lane for all keys: while a recorded reply is read, nothing overtakes."""
    stage = Stage(keyed(ordering="partition"))
    await called(stage, sent(1), sent(2), sent(3, "r-2", b"doc:43"), restore=False)
    assert [1] == stage.callee.started
    await stage.play()
    assert [1, 3] == stage.callee.started
    assert [(1, "ok", False), (2, "ok", True)] == answers(stage)


async def test_a_recorded_reply_comes_too_late() -> None:
    """The assignment is over when it was read: nothing happens."""
    stage = Stage(keyed())
    owner = await called(stage, sent(1), sent(2), restore=False)
    stage.engine.abandon([owner])
    await stage.play()
    assert [(1, "ok", False)] == answers(stage)


async def test_a_cancel_is_of_the_request_that_it_names() -> None:
    """A duplicate that waits, or whose answer is being read, ends as cancelled and its original goes on; an original's end is answered.

    A third one of that id is answered as its original was: a duplicate that was cancelled hides nothing.
    """
    stage = Stage(keyed())
    owner = stage.assign()
    await stage.play()
    stage.engine.delivered({owner: [sent(1), sent(2), sent(3), sent(4, "r-2", b"doc:7"), sent(5, "r-2", b"doc:7")]}, {})
    await stage.play()
    stage.cancel(2, KEY.decode())
    stage.answer_all([1])
    await stage.play(publish=False)
    await stage.play(restore=False)
    stage.cancel(3, KEY.decode())
    stage.cancel(4, "doc:7")
    await stage.play()
    stage.engine.delivered({owner: [sent(6)]}, {})
    await stage.play()
    assert {(1, "ok", False), (2, "cancelled", False), (3, "cancelled", False), (4, "cancelled", False)} <= set(answers(stage))
    assert [(5, "cancelled", True), (6, "ok", True)] == sorted(answers(stage))[4:]
    assert [1, 4] == sorted(stage.callee.started)
