"""Duplicates in a lane: they wait their turn, are answered from the record without a call, and what only looks like one is called."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import CONFLICT, Asked, Coming, Conflict, Find, Known
from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Busy, Closed, Held, Idle, Ready, Recall, Settle, Start
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.status import Reason, Status
from tests.core.keyed import Hold, settle
from tests.specimens import MONO, OWNER, REPLIES, WALL, answer, decoder, now, record, settings, value
from tests.specimens import noted as step_of

DECODER = decoder()
KNOWN = Known(5, Status.OK, WALL, REPLIES, 0)
RECORDED = Recorded(Status.OK, 1, 20, http_status="200", rest={"http": '{"status":200}'})
NAMED = (("ce_id", b"r-1"),)


class Memory:
    """What the partition's journal would say; and what was asked."""

    def __init__(self, says: Known | Coming | Conflict | None = None) -> None:
        self.says = says
        self.asked: list[Asked] = []

    def find(self, asked: Asked, now: float) -> Known | Coming | Conflict | None:
        """As `Journal.find`."""
        assert now >= WALL
        self.asked.append(asked)
        return self.says


def lane(find: Find, *records: Record, hold: Hold | None = None) -> Lane:
    """A lane of the specimens' key with these."""
    made = Lane(OWNER, DECODER, b"doc:42", (hold or Hold()).of, find)
    for sent in records:
        made.add(sent, MONO)
    return made


def named(offset: int = 9, **fields: Any) -> Record:
    """A request with an id."""
    return record(value(**fields), offset=offset, headers=NAMED)


def offset_of(outcome: Outcome) -> int:
    """Which request it ends."""
    assert outcome.record is not None
    return outcome.record.offset


def noted(outcome: Outcome) -> Finished:
    """What the journal is to know of it."""
    assert outcome.finished is not None
    return outcome.finished


def test_a_duplicate_is_answered_from_the_record() -> None:
    """No call: the recorded reply is read, and said again; then the next one has its turn."""
    memory = Memory(KNOWN)
    made = lane(memory.find, named(), record(offset=10))
    step = made.next(now())
    assert isinstance(step, Recall)
    assert (9, KNOWN) == (step.request.record.offset, step.known)
    assert isinstance(made.next(now()), Busy)
    made.recalled(9, RECORDED, now(1))
    outcome = settle(made, 1)
    assert outcome.reply is not None
    assert (9, Status.OK, True, RECORDED) == (
        *(offset_of(outcome), outcome.reply.status, outcome.reply.is_duplicate, outcome.reply.recorded),
    )
    assert outcome.finished is None
    step = made.next(now(1))
    assert isinstance(step, Start)
    assert 10 == step.request.record.offset


def test_it_waits_its_turn() -> None:
    """Behind what is called, behind what holds its key, and for a slot as a call does: what is read takes memory."""
    memory, hold = Memory(), Hold()
    made = lane(memory.find, named(8), named(9), hold=hold)
    assert isinstance(made.next(now()), Start)
    memory.says = KNOWN
    assert isinstance(made.next(now()), Busy)
    made.answered(answer(), now(), 0.5)
    made.next(now())
    hold.why = "paused"
    assert isinstance(made.next(now()), Held)
    hold.why = ""
    assert isinstance(made.next(now(), may_call=False), Ready)
    assert isinstance(made.next(now()), Recall)


def test_it_waits_for_its_originals_reply() -> None:
    """Which is not to be read before it is published; whoever hears of that asks the lane again."""
    memory = Memory(Coming(1))
    made = lane(memory.find, named())
    assert isinstance(made.next(now()), Busy)
    assert made.awaits_reply
    memory.says = KNOWN
    assert isinstance(made.next(now()), Recall)
    assert not made.awaits_reply


def test_the_same_id_for_something_else_is_a_dead_letter() -> None:
    """`id_conflict`, without a call, whatever its sender meant; and the journal is not told."""
    made = lane(Memory(CONFLICT).find, named(after_failure="halt_key"))
    outcome = settle(made)
    assert outcome.reply is not None
    assert outcome.letter is not None
    assert (Status.DEAD, Reason.ID_CONFLICT, 0) == (outcome.reply.status, outcome.letter.reason, outcome.reply.attempts)
    assert (None, None) == (outcome.finished, outcome.halt)
    assert isinstance(made.next(now()), Idle)


def test_it_is_asked_once_and_only_of_what_can_be_one() -> None:
    """Before the first call, with all that matters; never for a request that its sender gave no id."""
    memory = Memory()
    made = lane(memory.find, record(offset=8), record(value(), offset=9, headers=(*NAMED, ("dispatcher-redrive-id", b"again-1"))))
    assert isinstance(made.next(now()), Start)
    made.answered(answer(), now(), 0.5)
    made.next(now())
    assert not memory.asked
    step = made.next(now())
    assert isinstance(step, Start)
    assert [Asked("r-1", b"doc:42", 9, step.request.fingerprint, "again-1")] == memory.asked
    made.answered(answer(503), now(), 0.5)
    assert isinstance(step_of(made, now(100)), Start)
    assert 1 == len(memory.asked)


def test_with_the_window_off_nothing_is_asked() -> None:
    """Nor noted."""
    memory = Memory(KNOWN)
    made = Lane(OWNER, decoder(settings(worker={"dedup_window_s": 0})), b"doc:42", find=memory.find)
    made.add(named(), MONO)
    assert isinstance(made.next(now()), Start)
    made.answered(answer(), now(), 0.5)
    outcome = settle(made)
    assert (None, []) == (outcome.finished, memory.asked)


@pytest.mark.parametrize(("known", "is_called"), [(KNOWN, False), (Known(9, Status.OK, WALL, REPLIES, 0), True)])
def test_where_the_reply_is_gone(known: Known, is_called: bool) -> None:  # noqa: FBT001 - a case
    """A duplicate is told so, and not called; a request that only its own end is missing of, of which nobody has heard, is called."""
    made = lane(Memory(known).find, named())
    assert isinstance(made.next(now()), Recall)
    made.recalled(9, None, now())
    step = made.next(now())
    assert is_called == isinstance(step, Start)
    if isinstance(step, Settle):
        assert step.outcome.reply is not None
        assert step.outcome.reply.fault is not None
        assert "reply_gone" == step.outcome.reply.fault.kind


def test_one_that_is_skipped_meanwhile_ends_so() -> None:
    """What is read for it then comes for nobody, and not for the next duplicate of the same."""
    made = lane(Memory(KNOWN).find, named(9), named(10))
    assert isinstance(made.next(now()), Recall)
    outcome = made.end(9, Skipped("skipped by ann"), now())
    assert isinstance(outcome, Outcome)
    assert outcome.reply is not None
    assert Status.CANCELLED == outcome.reply.status
    assert isinstance(made.next(now()), Recall)
    made.recalled(9, RECORDED, now())
    assert isinstance(made.next(now()), Busy)
    made.recalled(10, RECORDED, now())
    assert 10 == offset_of(settle(made))


def test_a_lane_that_is_closed_is_left_to_the_next_owner() -> None:
    """What comes for it afterwards is dropped: the request was not settled."""
    made = lane(Memory(KNOWN).find, named())
    assert isinstance(made.next(now()), Recall)
    made.close()
    made.recalled(9, RECORDED, now())
    assert isinstance(made.next(now()), Closed)
    assert 0 == len(made)


def test_every_end_of_an_execution_is_noted() -> None:
    """With what the journal needs, in the words of the reply; but for what was refused, and what has no id of its own."""
    made = lane(Memory().find, named(8), record(b"{", offset=9, headers=NAMED), record(offset=10))
    assert isinstance(made.next(now()), Start)
    made.answered(answer(), now(2), 0.5)
    outcome = settle(made, 2)
    finished = noted(outcome)
    assert ("r-1", b"doc:42", 8, 1, WALL + 2) == (finished.request_id, finished.key, finished.offset, finished.calls, finished.at)
    assert [REPLIES, "dispatcher.journal"] == [message.topic for message in outcome.messages()]
    assert settle(made, 2).finished is None
    assert isinstance(made.next(now(2)), Start)
    made.answered(answer(), now(2), 0.5)
    assert settle(made, 2).finished is None


def test_the_journal_knows_of_the_reply_as_it_is_published() -> None:
    """A reply topic that cannot be written makes it a dead one on the default topic, and one too large an error: that is noted."""
    made = lane(Memory().find, record(value(), offset=8, headers=(*NAMED, ("reply_to", b"team.replies"))))
    made.next(now())
    made.answered(answer(body=b'"%s"' % (b"x" * 2000)), now(), 0.5)
    outcome = settle(made)
    assert "team.replies" == noted(outcome).reply_topic
    moved = outcome.readdressed(REPLIES, "dispatcher.dlq", "dispatcher")
    assert (REPLIES, Status.DEAD) == (noted(moved).reply_topic, noted(moved).status)
    cut = outcome.fitted({"team.replies": 1000})
    assert ("team.replies", Status.ERROR) == (noted(cut).reply_topic, noted(cut).status)
