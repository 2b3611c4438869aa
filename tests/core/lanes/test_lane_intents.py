"""A request that must not be called twice: its intent stands in the state topic before each call, and an intent alone may mean a call."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.control import HALTED
from dispatcher.core.internal.tried import Note, Tried, read_tried
from dispatcher.core.lanes.ending import Early, Expired, Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Busy, Closed, Held, Idle, Intend, Ready, Settle, Start, Tell, Wait
from dispatcher.core.messages.call import Ambiguous, CallResult, NotSent
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder
from tests.core.aside import Aside
from tests.core.keyed import BOUNDS, DECODER, KEY, Hold, offsets, place, run, settle
from tests.specimens import MONO, OWNER, TOPIC_ID, WALL, answer, decoder, now, record, settings, value

REFUSED = NotSent("connect", "refused")
RESET = Ambiguous("reset", "the connection broke")


def once(offset: int = 5, **fields: Any) -> Record:
    """A request that must not be called twice."""
    return record(value(repeat="never", **fields), offset, key=KEY)


def lane(*records: Record, hold: Hold | None = None, tried: Tried | None = None, by: Decoder = DECODER) -> Lane:
    """A lane with these records, and what is known of one of them."""
    made = Lane(OWNER, by, KEY, (hold or Hold()).of, tried={} if tried is None else {tried.offset: tried})
    for one in records:
        made.add(one, MONO)
    return made


def intend(of: Lane, later_s: float = 0) -> Note:
    """The intent that the lane has written now."""
    step = of.next(now(later_s))
    assert isinstance(step, Intend), step
    return step.note


def tell(of: Lane, later_s: float = 0, *, may_call: bool = True) -> Note:
    """What the lane has written now, and does not wait for."""
    step = of.next(now(later_s), may_call=may_call)
    assert isinstance(step, Tell), step
    return step.note


def said(note: Note) -> Tried | None:
    """What a reader gets of it."""
    message = note.message
    return read_tried(Record(message.topic, message.partition, 0, message.key, message.value, message.headers), TOPIC_ID)


def start(of: Lane, later_s: float = 0) -> Start:
    """Have the intent written and acknowledged; the call that begins then."""
    assert of.noted(intend(of, later_s))
    step = of.next(now(later_s))
    assert isinstance(step, Start), step
    return step


def reason(outcome: Outcome) -> str | None:
    """Why it is dead; what a reply and a letter say is the same."""
    assert outcome.reply is not None
    assert (outcome.letter is None) == (outcome.reply.reason is None)
    assert outcome.letter is None or (outcome.letter.reason, outcome.letter.attempts) == (outcome.reply.reason, outcome.reply.attempts)
    return outcome.reply.reason


def test_the_call_begins_when_its_intent_stands() -> None:
    """Busy before; the intent names call number one, and nothing else begins the call."""
    made = lane(once())
    note = intend(made)
    assert Tried(5, Tries(1), WALL, begun=True) == said(note)
    assert made.is_intending
    assert not made.is_calling
    assert isinstance(made.next(now(15)), Busy)
    assert ("unpublished", None) == made.why(now(15))
    assert not made.is_waiting_long(now(15), 0.0)
    other = intend(lane(once()))
    assert not made.noted(other)
    assert isinstance(made.next(now(15)), Busy)
    assert made.noted(note)
    step = made.next(now(16))
    assert isinstance(step, Start)
    assert (1, True, 16.0) == (step.attempt, step.first, step.waited_s)
    assert not made.is_intending


def test_others_have_no_intent() -> None:
    """A request that may be repeated is called at once."""
    assert isinstance(lane(record(key=KEY)).next(now()), Start)
    assert isinstance(lane(record(value(repeat="allowed"), key=KEY)).next(now()), Start)


def test_who_may_not_call_has_none() -> None:
    """No slot, paused: nothing is written before the call may begin."""
    hold = Hold()
    made = lane(once(), hold=hold)
    assert isinstance(made.next(now(), may_call=False), Ready)
    hold.why = "paused"
    assert Held("paused") == made.next(now())


@pytest.mark.parametrize("result", [REFUSED, answer(503), answer(429), answer(503, headers=(("retry-after", "1"),))])
def test_what_is_known_to_be_undone_is_tried_again(result: CallResult) -> None:
    """After an intent of its own: the first one is over with the answer, which a crash in the wait leaves to be known."""
    made = lane(once())
    start(made)
    made.answered(result, now(), 0.5)
    known = said(tell(made))
    assert known is not None
    assert (1, False) == (known.tries.calls, known.begun)
    assert isinstance(made.next(now()), Wait)
    assert isinstance(made.next(now(5)), Busy), "the note is on its way still"
    assert ("unpublished", None) == made.why(now(5))
    assert not made.is_waiting_long(now(5), 0.0)


@pytest.mark.parametrize("result", [RESET, Ambiguous("timeout", ""), Ambiguous("internal", ""), answer(500), answer(502), answer(504)])
def test_what_may_have_been_done_is_unknown_at_once(result: CallResult) -> None:
    """One call, dead, with a letter, whatever attempts are left."""
    made = lane(once())
    start(made)
    made.answered(result, now(), 0.5)
    outcome = settle(made)
    assert outcome.reply is not None
    assert ("outcome_unknown", 1) == (reason(outcome), outcome.reply.attempts)
    assert isinstance(made.next(now(100)), Idle)


@pytest.mark.parametrize(("status", "ends"), [(200, "ok"), (404, "error"), (400, "error"), (408, "error")])
def test_what_the_callee_says_itself_is_the_reply(status: int, ends: str) -> None:
    """Also where others would be tried again: it is no failure of the callee's."""
    made = lane(once())
    start(made)
    made.answered(answer(status), now(), 0.5)
    outcome = settle(made)
    assert outcome.reply is not None
    assert (ends, None) == (outcome.reply.status, reason(outcome))


def test_attempts_are_bounded_all_the_same() -> None:
    """What is not sent is tried as often as others are."""
    made = lane(once(attempts_max=2))
    start(made)
    made.answered(REFUSED, now(), 0.5)
    assert made.noted(tell(made))
    assert 2 == start(made, 100).attempt
    made.answered(REFUSED, now(100), 0.5)
    assert "attempts_exhausted" == reason(settle(made, 100))


# --- nothing comes of it --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_hold_withdraws_it(acknowledged: bool) -> None:  # noqa: FBT001 - both ways
    """Paused between intent and call: it is said that nothing was called, and once it is let go there is another intent."""
    hold = Hold()
    made = lane(once(), hold=hold)
    note = intend(made)
    assert not acknowledged or made.noted(note)
    hold.why = "paused"
    withdrawn = tell(made)
    assert (note.message.key, None) == (withdrawn.message.key, said(withdrawn))
    assert not made.is_intending
    assert Held("paused") == made.next(now())
    assert not made.noted(note)
    hold.why = ""
    assert isinstance(made.next(now()), Busy)
    assert made.noted(withdrawn)
    assert 1 == start(made).attempt


def test_who_lost_the_right_to_call_withdraws_it() -> None:
    """A full map, too much unpublished: the driver says no when the intent stands."""
    made = lane(once())
    assert made.noted(intend(made))
    assert made.noted(tell(made, may_call=False))
    assert isinstance(made.next(now(), may_call=False), Ready)
    start(made)


def test_who_hears_late_that_it_stands_withdraws_it() -> None:
    """Frozen or cut off meanwhile, a worker may have lost the partition, and another one has told that the outcome is unknown.

    What is withdrawn and intended anew is committed only by who owns it still. Two transactions may take 20 s.
    """
    made = lane(once())
    assert made.noted(intend(made))
    withdrawn = tell(made, 20)
    assert said(withdrawn) is None
    assert isinstance(made.next(now(20)), Busy)
    assert made.noted(withdrawn)
    assert 1 == start(made, 21).attempt


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_closed_lane_withdraws_it(acknowledged: bool) -> None:  # noqa: FBT001 - both ways
    """The partition is given up: its next owner knows that nothing was called. What is known of former calls stays."""
    made = lane(once(), tried=Tried(5, Tries(2, 1)))
    note = intend(made)
    assert not acknowledged or made.noted(note)
    made.close()
    assert 1 == len(made), "not drained yet"
    known = said(tell(made))
    assert known is not None
    assert (Tries(2, 1), False) == (known.tries, known.begun)
    assert 0 == len(made)
    made.noted(note)
    assert isinstance(made.next(now()), Closed)


@pytest.mark.parametrize(("early", "status"), [(Skipped("not wanted"), "cancelled"), (Expired(), "expired")])
def test_what_ends_meanwhile_was_not_called(early: Early, status: str) -> None:
    """Skipped or expired between intent and call: the reply says that there was no call, and a late acknowledgement changes nothing."""
    made = lane(once())
    note = intend(made)
    outcome = made.end(5, early, now())
    assert isinstance(outcome, Outcome)
    assert outcome.reply is not None
    assert (status, 0) == (outcome.reply.status, outcome.reply.attempts)
    assert not made.is_intending
    assert not made.noted(note)
    assert isinstance(made.next(now()), Idle)


def test_a_deadline_that_passes_meanwhile_ends_it() -> None:
    """The intent stands too late: no call begins after the deadline."""
    made = lane(once(deadline="2026-11-29T10:00:10Z"))
    assert made.noted(intend(made))
    outcome = settle(made, 11)
    assert outcome.reply is not None
    assert ("expired", 0) == (outcome.reply.status, outcome.reply.attempts)


def test_a_head_with_an_intent_is_not_parked() -> None:
    """What waits behind it may be; it itself is about to be called."""
    hold = Hold()
    made = lane(once(), record(offset=6, key=KEY), hold=hold)
    note = intend(made)
    hold.why = "paused"
    assert not made.is_waiting_long(now(), 0.0)
    outcomes, _ = made.park(0, BOUNDS, now())
    assert [6] == [outcome.record.offset for outcome in outcomes if outcome.record is not None]
    hold.why = ""
    assert made.noted(note)
    assert isinstance(made.next(now()), Start)


# --- after a crash --------------------------------------------------------------------------------------------------------------------

BEGUN = Tried(5, Tries(3, 1), begun=True)


def test_an_intent_without_a_reply_is_unknown() -> None:
    """No second call: dead, with a letter that tells of the calls that may have been made; the next one has its turn."""
    made = lane(once(), record(offset=6, key=KEY), tried=BEGUN)
    outcome = settle(made)
    assert outcome.reply is not None
    assert ("outcome_unknown", 3, "crashed") == (reason(outcome), outcome.reply.attempts, outcome.reply.fault and outcome.reply.fault.kind)
    step = made.next(now())
    assert isinstance(step, Start)
    assert (6, 1) == (step.request.record.offset, step.attempt)


@pytest.mark.parametrize("early", [Skipped("not wanted"), Expired()])
def test_neither_a_skip_nor_a_deadline_hides_that(early: Early) -> None:
    """Queued still, or read back to be answered: that it may have been called counts more."""
    outcome = lane(once(4), once(5), tried=BEGUN).end(5, early, now())
    assert isinstance(outcome, Outcome)
    assert "outcome_unknown" == reason(outcome)


def test_a_hold_does_not_keep_it() -> None:
    """It starts nothing: its sender is told though its key is paused; those behind it wait."""
    hold = Hold()
    hold.why = "paused"
    made = lane(once(), record(offset=6, key=KEY), hold=hold, tried=BEGUN)
    assert "outcome_unknown" == reason(settle(made))
    assert Held("paused") == made.next(now())


def test_its_end_halts_the_key_that_asked_for_it() -> None:
    """As any dead letter does."""
    outcome = settle(lane(once(after_failure="halt_key"), tried=BEGUN))
    assert outcome.halt is not None
    assert HALTED == outcome.halt.state


def test_what_may_have_been_called_is_not_parked() -> None:
    """The parked request would not tell of it. It stays in its place, and ends there; the others go."""
    made, aside = lane(once(4), once(5), record(offset=6, key=KEY), tried=BEGUN), Aside()
    outcomes, _ = made.park(0, BOUNDS, now())
    assert [4, 6] == offsets(outcomes)
    place(made, aside, outcomes)
    assert [4, 6] == run(made, aside)


def test_what_cannot_be_read_any_more_may_have_been_called() -> None:
    """Another configuration refuses it: its sender gets to know of the call, and why there is no other."""
    by = decoder(settings(worker={"ordering": "key", "publishing": "at_least_once"}))
    outcome = settle(lane(once(), tried=BEGUN, by=by))
    assert "outcome_unknown" == reason(outcome)
    assert outcome.letter is not None
    assert "exactly_once" in outcome.letter.message
    refused = lane(tried=BEGUN, by=by)
    refused.refuse(once())
    assert "outcome_unknown" == reason(settle(refused))


def test_what_may_be_repeated_goes_on() -> None:
    """Its record was corrupt, or another version's: the call is made, and counted on."""
    step = lane(record(key=KEY), tried=Tried(5, Tries(1), begun=True)).next(now())
    assert isinstance(step, Start)
    assert 2 == step.attempt


def test_only_exactly_once_keeps_it() -> None:
    """A worker that publishes at least once refuses the field by name."""
    outcome = settle(lane(once(), by=decoder(settings(worker={"ordering": "key", "publishing": "at_least_once"}))))
    assert "unsupported_field" == reason(outcome)


# --- tries of any request -------------------------------------------------------------------------------------------------------------


def test_tries_go_on_where_they_were() -> None:
    """Two of three attempts were spent by another owner, and its wait is not over: one more call, when it is due."""
    made = lane(record(key=KEY), tried=Tried(5, Tries(2, 2), WALL - 10, WALL + 20, "backoff", started_wall=WALL - 40))
    assert Wait(MONO + 20, "backoff") == made.next(now())
    step = made.next(now(20))
    assert isinstance(step, Start)
    assert (3, False) == (step.attempt, step.first)
    made.answered(answer(500), now(21), 0.5)
    outcome = settle(made, 21)
    assert outcome.reply is not None
    assert ("attempts_exhausted", 3, 61_000) == (reason(outcome), outcome.reply.attempts, outcome.reply.duration_ms)


def test_who_was_called_by_another_owner_is_dead_at_its_deadline() -> None:
    """Not expired: a call was made, and what it did may matter."""
    late = record(value(deadline="2026-11-29T10:00:10Z"), key=KEY)
    for outcome in (
        settle(lane(late, tried=Tried(5, Tries(1, 1))), 11),
        lane(late, tried=Tried(5, Tries(1, 1))).end(5, Expired(), now(11)),
    ):
        assert isinstance(outcome, Outcome)
        assert "deadline_exceeded" == reason(outcome)
    assert isinstance(never := lane(late).next(now(11)), Settle)
    assert never.outcome.reply is not None
    assert "expired" == never.outcome.reply.status


def test_a_closed_lane_notes_the_try_that_ended_last() -> None:
    """The partition is given up while it is called: its next owner knows of that call."""
    made = lane(record(key=KEY))
    assert isinstance(made.next(now()), Start)
    made.close()
    made.answered(answer(500), now(), 0.5)
    known = said(tell(made))
    assert known is not None
    assert Tries(1, 1) == known.tries
    assert isinstance(made.next(now(100)), Closed)
    assert 0 == len(made)


def test_a_parked_request_takes_its_tries_along() -> None:
    """One that another owner tried, and that had no turn here."""
    made = lane(record(offset=4, key=KEY), record(key=KEY), tried=Tried(5, Tries(2, 2), WALL, WALL + 60, "backoff"))
    assert isinstance(made.next(now()), Start)
    ((outcome,), _) = made.park(0, BOUNDS, now())
    facts = dict(outcome.extra[0].headers)["dispatcher-parked"] or b""
    assert b'"calls":2,"failures":2' in facts
