"""Budgets that partitions share: whoever lacks what others have gets it, and nobody is told that all is spent while it is not."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.budget import DAY_S
from dispatcher.core.lanes.pool import AGAIN_S, ANSWER_MAX_S, WANT_S, Answer
from tests.core import pools
from tests.core.pools import NAME, NOTHING, RESERVE, TODAY, Worlds
from tests.specimens import WALL


def test_one_partition_may_spend_all_of_it() -> None:
    """A share is no wall: who has more to do than others gets what they do not use, to the last call."""
    world = Worlds("3")
    assert world.calls(1, "0.3") == 10
    assert [world.call(n, "0.3") for n in (0, 2)] == [None, None]
    world.settle(WALL)
    assert [world.call(n, "0.3") for n in (0, 2)] == [False, False]


def test_what_calls_did_not_cost_is_spent_by_others() -> None:
    """Until less than a call's reserve is left of all together."""
    world = Worlds("2", 4)
    for round_ in range(100):
        world.calls(round_ % 4, "0.1") if round_ < 4 else None
    assert Decimal("0.1") <= world.left < RESERVE


def test_shares_that_pay_no_call_are_put_together() -> None:
    """A dollar over twelve partitions is eight cents for each, and no call costs less than thirty: three of them are made all the same."""
    world = Worlds("1", 12)
    assert world.calls(7, "0.3") == 3
    assert world.calls(2, "0.3") == 0


def test_what_cannot_be_halved_is_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a ten-millionth of a dollar, where a millionth is the least that parts are made of."""
    monkeypatch.setattr(pools, "RESERVE", Decimal("0.0000001"))
    assert Worlds("0.000002").calls(1, "0.0000001") == 20


def test_who_has_calls_in_flight_says_nothing_of_the_end() -> None:
    """They may cost less than is set aside for them: then there is something for those who wait."""
    world = Worlds("0.9")
    for owner in world.owners:
        assert owner.ask(WALL) is Answer.PAYS
    assert world.owners[0].ask(WALL) is Answer.LACKS
    world.settle(WALL)
    assert world.owners[0].ask(WALL) is Answer.LACKS
    for owner in world.owners:
        owner.end(Decimal("0.1"))
    world.settle(WALL)
    assert world.owners[0].ask(WALL) is Answer.PAYS


def test_the_one_who_asked_first_is_given_first() -> None:
    """Two that both have too little would stand there for good; the later one gives way, and is told that nothing is left after that."""
    world = Worlds("0.9")
    assert [world.call(n, "0.14") for n in range(3)] == [True] * 3
    for late, n in enumerate((2, 0)):
        assert world.owners[n].ask(WALL + late) is Answer.LACKS
        world.owners[n].trade(WALL + late)
    world.settle(WALL + 2)
    assert world.owners[2].ask(WALL + 2) is Answer.PAYS
    assert world.owners[0].ask(WALL + 2) is Answer.LACKS
    world.owners[2].end(Decimal("0.3"))
    world.settle(WALL + 3)
    assert world.owners[0].ask(WALL + 3) is Answer.SPENT


def test_what_is_not_committed_is_nobodys() -> None:
    """A gift counts for its giver at once, for others when they read it, and not at all if its giver dies before it is committed."""
    world = Worlds("0.9")
    assert world.calls(0, "0.3") >= 1
    world = Worlds("0.9")
    giver, taker = world.owners[1], world.owners[0]
    assert world.call(0, "0.3")
    assert taker.ask(WALL) is Answer.LACKS
    taker.trade(WALL)
    taker.commit()
    giver.hear(1)
    giver.trade(WALL)
    assert NOTHING == giver.pool.left(giver.account)
    taker.hear(9)
    assert taker.ask(WALL) is Answer.LACKS
    world.owners[1] = world.owner(1)
    assert RESERVE == world.owners[1].pool.left(world.owners[1].account)


def test_what_was_given_is_gone_whatever_became_of_the_words() -> None:
    """Who deletes the topic in which they stand gives nothing back: takers lose what they got, and givers have given it."""
    world = Worlds("0.9")
    assert world.calls(0, "0.3") == 3
    world.log.records.clear()
    world.owners = [world.owner(n) for n in range(3)]
    assert [world.calls(n, "0.3") for n in range(3)] == [0, 0, 0]


def test_a_partition_that_nobody_has_holds_nobody_for_good() -> None:
    """Who does not answer in two minutes counts as having nothing; a minute later all are asked once more."""
    world, until = Worlds("0.9"), WALL
    assert world.call(0, "0.3")
    assert world.call(0, "0.3") is None
    world.settle(WALL, but=2)
    assert world.call(0, "0.3")
    while until < WALL + ANSWER_MAX_S:
        assert world.call(0, "0.3", until) is None
        world.settle(until, but=2)
        until += WANT_S / 2
    assert world.call(0, "0.3", until) is None
    world.settle(until, but=2)
    assert world.call(0, "0.3", until) is False
    assert until + AGAIN_S == world.owners[0].pool.until(until)
    assert world.call(0, "0.3", until + AGAIN_S) is None
    world.settle(until + AGAIN_S)
    assert world.call(0, "0.3", until + AGAIN_S)


def test_who_has_stopped_asking_wants_nothing_any_more() -> None:
    """Its request has ended otherwise: what others need is given to them first."""
    world = Worlds("0.6", 2)
    for n in range(2):
        assert world.call(n, "0.2")
    assert world.call(0, "0.2", WALL) is None
    world.owners[0].trade(WALL)
    world.owners[0].commit()
    assert list(world.owners[0].board.wanted) == []
    world.owners[0].hear(9)
    assert list(world.owners[0].board.wanted) == [NAME]
    world.settle(WALL + WANT_S)
    assert list(world.owners[1].board.wanted) == []


def test_a_new_day_is_whole_and_shared_anew() -> None:
    """What was given yesterday is forgotten by all, and a want of yesterday with it."""
    world, midnight = Worlds("0.9"), (TODAY + 1) * float(DAY_S)
    assert world.calls(0, "0.3") == 3
    assert world.call(1, "0.3", midnight - 1) is None
    world.owners[1].trade(midnight - 1)
    assert [world.call(n, "0.3", midnight) for n in range(3)] == [True] * 3
    world.settle(midnight)
    assert list(world.owners[0].board.wanted) == []
    assert world.calls(2, "0.3", midnight) == 0


def test_a_day_that_a_wrong_clock_had_begun_takes_back_nothing() -> None:
    """What was given in it stays given, as what was spent in it stays spent."""
    world, ahead = Worlds("0.9"), WALL + 1000 * DAY_S
    assert world.calls(0, "0.3", ahead) == 3
    world.owners = [world.owner(n) for n in range(3)]
    assert world.calls(1, "0.3", WALL) == 0
    assert {TODAY + 1} == {one.pool.period for one in world.owners}


@given(st.lists(st.integers(0, 90), min_size=2, max_size=6), st.integers(30, 400), st.data())
@hypothesis_settings(max_examples=150, deadline=None)
def test_whoever_lacks_what_all_have_gets_it(spent: list[int], cents: int, data: st.DataObject) -> None:
    """However it is spread: while all together have a call's reserve, a call is made; and only then it is told that all is spent."""
    world = Worlds(str(Decimal(cents) / 100), len(spent))
    for n, most in enumerate(spent):
        world.owners[n].account = Account(NAME, TODAY, min(Decimal(most) / 100, world.owners[n].pool.left(Account(NAME, TODAY))))
    who = data.draw(st.integers(0, len(spent) - 1))
    left = world.left
    made = world.calls(who, "0.3")
    assert made == left // RESERVE


def test_what_others_have_to_know_is_said_once() -> None:
    """Who has nothing new to say says nothing: each word is a transaction."""
    world = Worlds("0.9")
    assert world.calls(0, "0.3") == 3
    said = len(world.log.records)
    for later in (0, 1, WANT_S, 2 * WANT_S):
        world.settle(WALL + later)
    assert said == len(world.log.records)
