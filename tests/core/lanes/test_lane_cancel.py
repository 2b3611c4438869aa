"""Cancelling a request: as skipping one, and the call that it is in is cut off; nobody has failed by that."""

from __future__ import annotations

import pytest

from dispatcher.core.lanes.ending import CUT_OFF, Cancelled, Skipped
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Busy, Closed, CutOff, Fetch, Held
from dispatcher.core.messages.status import Status
from tests.core.aside import Aside
from tests.core.keyed import KEY, Hold, ask, fail, finish, keyed, offsets, park, settle, start
from tests.specimens import MONO, answer, now, record, value

REASON = "cancelled by ann: no need"
CANCELLED = Cancelled(REASON)


def assert_cancelled(outcome: object, offset: int, attempts: int = 0, *, in_call: bool = False) -> None:
    """It is the end of the request at `offset`, after so many calls: a reply that says who wanted that, no dead letter, no halt."""
    assert isinstance(outcome, Outcome)
    assert outcome.reply is not None
    assert (None, None, ()) == (outcome.letter, outcome.halt, outcome.extra)
    assert ([offset], Status.CANCELLED, attempts) == (offsets([outcome]), outcome.reply.status, outcome.reply.attempts)
    fault = outcome.reply.fault
    assert fault is not None
    assert (CUT_OFF if in_call else "cancelled") == fault.kind
    assert fault.message.startswith(REASON)
    assert ("the callee may have done it" in fault.message) == in_call


def test_a_call_is_cut_off_and_its_request_ends_with_it() -> None:
    """The lane is busy until the call has really ended; only then the next request has its turn. The call counts as one."""
    lane = keyed(5, 6)
    start(lane)
    assert isinstance(lane.end(5, CANCELLED, now()), CutOff)
    assert lane.holds(5)
    assert isinstance(lane.next(now()), Busy)
    lane.cut_off(now(2))
    assert not lane.holds(5)
    outcome = settle(lane)
    assert_cancelled(outcome, 5, attempts=1, in_call=True)
    assert outcome.reply is not None
    assert 2000 == outcome.reply.duration_ms
    assert 6 == finish(lane)
    assert lane.is_empty


def test_an_answer_that_comes_at_the_same_moment_wins() -> None:
    """It was done: the reply says so. What would be tried again is not."""
    for status, expected in ((200, Status.OK), (404, Status.ERROR), (500, Status.CANCELLED), (429, Status.CANCELLED)):
        lane = keyed(5, 6)
        start(lane)
        assert isinstance(lane.end(5, CANCELLED, now()), CutOff)
        lane.answered(answer(status), now(), 0.5)
        outcome = settle(lane)
        assert outcome.reply is not None
        assert expected is outcome.reply.status
        if expected is Status.CANCELLED:
            assert_cancelled(outcome, 5, attempts=1)
        assert 6 == finish(lane)


def test_asked_twice_it_is_cut_off_once() -> None:
    """Nor does a skip take that back."""
    lane = keyed(5)
    start(lane)
    assert isinstance(lane.end(5, CANCELLED, now()), CutOff)
    assert lane.end(5, CANCELLED, now()) is None
    assert lane.end(5, Skipped("skipped by bob"), now()) is None
    lane.cut_off(now())
    assert lane.end(5, CANCELLED, now()) is None
    assert_cancelled(settle(lane), 5, attempts=1, in_call=True)
    assert lane.end(5, CANCELLED, now()) is None


def test_what_is_skipped_may_still_be_cancelled() -> None:
    """Whoever waited for the call to end waits no more."""
    lane = keyed(5)
    start(lane)
    assert lane.end(5, Skipped("skipped by bob"), now()) is None
    assert isinstance(lane.end(5, CANCELLED, now()), CutOff)
    lane.cut_off(now())
    assert_cancelled(settle(lane), 5, attempts=1, in_call=True)


def test_a_cancel_wins_over_whatever_a_request_waits_for() -> None:
    """Its turn, a backoff, a hint, a pause, a halt: it ends at once."""
    lane = keyed(5, 6)
    assert_cancelled(lane.end(6, CANCELLED, now()), 6)
    fail(lane)
    assert_cancelled(lane.end(5, CANCELLED, now()), 5, attempts=1)
    lane = keyed(5)
    fail(lane, wait_s=300)
    assert_cancelled(lane.end(5, CANCELLED, now()), 5, attempts=1)
    for why in ("paused", "halted"):
        hold = Hold()
        hold.why = why
        lane = keyed(5, 6, hold=hold)
        assert isinstance(lane.next(now()), Held)
        assert_cancelled(lane.end(5, CANCELLED, now()), 5)
        assert isinstance(lane.next(now()), Held)


def test_a_parked_one_is_read_again_to_be_answered() -> None:
    """Asked for, it is answered; on its way back to be called, it is answered too."""
    lane, aside = keyed(5, 6), Aside()
    fail(lane, wait_s=100)
    park(lane, aside)
    asked = lane.end(5, CANCELLED, now())
    assert isinstance(asked, Fetch)
    (outcome,) = lane.fetched(*aside.read(asked.entries), now())
    assert_cancelled(outcome, 5, attempts=1)
    back = ask(lane)
    assert lane.end(6, CANCELLED, now()) is None
    (outcome,) = lane.fetched(*aside.read(back.entries), now())
    assert_cancelled(outcome, 6)
    assert lane.is_empty


def test_a_cancelled_one_does_not_halt_its_key() -> None:
    """It did not fail: neither queued nor cut off."""
    lane = keyed()
    for offset in (5, 6):
        lane.add(record(value(after_failure="halt_key"), offset, key=KEY), MONO)
    start(lane)
    lane.end(5, CANCELLED, now())
    lane.cut_off(now())
    assert_cancelled(settle(lane), 5, attempts=1, in_call=True)
    assert_cancelled(lane.end(6, CANCELLED, now()), 6)


def test_a_second_call_that_is_cut_off_counts_with_the_first() -> None:
    """Its attempts are the calls that were made."""
    lane = keyed(5)
    fail(lane)
    assert 5 == start(lane, 100)
    lane.end(5, CANCELLED, now(100))
    lane.cut_off(now(100))
    outcome = settle(lane, 100)
    assert_cancelled(outcome, 5, attempts=2, in_call=True)
    assert outcome.reply is not None
    assert outcome.reply.fault is not None
    assert "call number 2 was cut off" in outcome.reply.fault.message


def test_also_when_the_lane_is_closed_meanwhile() -> None:
    """The call in hand is this owner's to end: what nobody wants is not left to the next one."""
    lane = keyed(5, 6)
    start(lane)
    lane.end(5, CANCELLED, now())
    lane.close()
    lane.cut_off(now())
    assert_cancelled(settle(lane), 5, attempts=1, in_call=True)
    assert isinstance(lane.next(now()), Closed)
    assert lane.is_empty


def test_only_a_call_that_was_to_be_cut_off_can_be() -> None:
    """Anything else is a bug of whoever drives the lane."""
    lane = keyed(5)
    with pytest.raises(AssertionError):
        lane.cut_off(now())
    start(lane)
    with pytest.raises(AssertionError):
        lane.cut_off(now())
