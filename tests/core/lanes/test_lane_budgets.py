"""A lane whose key has a budget: its reserve stands in the state topic before each call, and what waits for money is asked for anew."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.internal.budget import DAY_S
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.steps import Intend, Settle, Start, Tell, Wait
from dispatcher.core.messages.request import Decoder
from dispatcher.core.messages.status import Reason
from tests.core.aside import Aside
from tests.core.keyed import KEY, fetch, park
from tests.specimens import MONO, OWNER, TOPIC_ID, WALL, answer, decoder, noted, now, record, request, settings

MIDNIGHT_S = DAY_S - WALL % DAY_S


def budgeted(**budget: Any) -> Decoder:
    """A decoder whose keys have a dollar a day, of which a call takes up to 60 cents."""
    return decoder(settings(budgets={"all": {"keys": ["*"], "usd_per_day": 1, "reserve_usd": 0.6, "when_spent": "wait", **budget}}))


def lane(by: Decoder, ledger: Ledger, *offsets: int) -> Lane:
    """A lane with these requests, whose partition has spent what the ledger says."""
    made = Lane(OWNER, by, KEY, ledger=ledger)
    for offset in offsets:
        made.add(record(offset=offset, key=KEY), MONO)
    return made


def ledger(by: Decoder) -> Ledger:
    """That of a new owner."""
    return Ledger(by.settings, TOPIC_ID, 0)


def spend(of: Lane, later_s: float = 0) -> None:
    """Make a call of which nobody can say what it has cost: its reserve, then."""
    assert isinstance(noted(of, now(later_s)), Start)
    of.answered(answer(), now(later_s), 0.5)
    assert isinstance(of.next(now(later_s)), Settle)


def test_who_takes_over_what_waits_for_money_asks_what_there_is() -> None:
    """It may have been given more meanwhile: its parked requests are not due at midnight, but looked at at once."""
    poor, aside = budgeted(), Aside()
    before = lane(poor, ledger(poor), 5, 6, 7)
    spend(before)
    assert Wait(MONO + MIDNIGHT_S, "budget") == before.next(now())
    assert ([6, 7], []) == park(before, aside)
    assert Wait(MONO + MIDNIGHT_S, "budget") == before.next(now(60))
    for dollars, step in ((2, Start), (1, Wait)):
        rich = budgeted(usd_per_day=dollars)
        made = ledger(rich)
        made.reserve(request(record(offset=5, key=KEY), rich), WALL)
        made.settle(record(offset=5, key=KEY), None)
        heir = lane(rich, made)
        heir.restore(aside.entries(), now(60))
        assert [6, 7] == fetch(heir, aside, 60)
        assert isinstance(noted(heir, now(60)), step)


def test_a_call_that_is_late_for_its_day_is_paid_by_the_next_one() -> None:
    """Its reserve was committed before midnight, and its slot came after: what was set aside is given back, and set aside anew."""
    by = budgeted()
    made = lane(by, ledger(by), 5)
    intended = made.next(now(MIDNIGHT_S - 1))
    assert isinstance(intended, Intend)
    assert made.noted(intended.note)
    withdrawn = made.next(now(MIDNIGHT_S))
    assert isinstance(withdrawn, Tell)
    assert made.noted(withdrawn.note)
    again = made.next(now(MIDNIGHT_S))
    assert isinstance(again, Intend)
    assert made.noted(again.note)
    assert isinstance(made.next(now(MIDNIGHT_S)), Start)


@pytest.mark.parametrize("wall", [WALL - 3600, WALL, WALL + 3600])
def test_a_wall_clock_that_steps_moves_the_end_of_a_wait_when_it_is_asked(wall: float) -> None:
    """The wait itself is of the clock that does not step; at its end the day is looked at again."""
    by = budgeted()
    made = lane(by, ledger(by), 5, 6)
    spend(made)
    assert Wait(MONO + MIDNIGHT_S, "budget") == made.next(now())
    step = made.next(stepped := Instant(MONO + MIDNIGHT_S, wall + MIDNIGHT_S))
    if wall < WALL:
        assert Wait(stepped.mono + 3600, "budget") == step
    else:
        assert isinstance(step, Intend)


def test_a_request_that_a_budget_stops_halts_its_key_where_it_shall() -> None:
    """It ends as a dead letter, with the number of its calls, and says when there is money again."""
    by = budgeted(when_spent="refuse")
    made = lane(by, ledger(by), 5)
    spend(made)
    made.add(record(b'{"upstream":"openai","after_failure":"halt_key"}', 6, key=KEY), MONO)
    step = made.next(now())
    assert isinstance(step, Settle)
    assert step.outcome.halt is not None
    assert (reply := step.outcome.reply) is not None
    assert (Reason.BUDGET_EXHAUSTED, 0) == (reply.reason, reply.attempts)
    assert reply.fault is not None
    assert "2026-11-30T00:00:00.000Z" == reply.fault.retry_at
