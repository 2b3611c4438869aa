"""Several who pay for a call, and those of them whose money partitions share: all or none, never overshot, and nobody waits for good."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from dispatcher.core.internal.account import AGENT, CREDENTIAL, Account, account_name, fold
from dispatcher.core.internal.budget import DAY_S
from dispatcher.core.internal.rights import Board
from dispatcher.core.lanes.ledger import LACKING, Ledger, Spent
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Request
from dispatcher.settings import Settings
from tests.specimens import TOPIC_ID, WALL, record, request, settings

TODAY = int(WALL // DAY_S)


def asks(offset: int = 5, agent: str = "", credential: str | None = None, key: bytes = b"doc:42") -> Request:
    """A request of this agent's, with this credential."""
    plain = request()
    claim = plain.claim._replace(credential=credential)
    return replace(plain, record=record(offset=offset, key=key), agent=agent, claim=claim)


def budgeted(**usd: str) -> Settings:
    """Settings with a budget for each of `keys`, `credentials` and `agents` that is told; a call takes up to 30 cents."""
    return settings(budgets={whose: {whose: ["*"], "usd_per_day": of, "reserve_usd": "0.3"} for whose, of in usd.items()})


class World:
    """The ledgers of partitions that share, and what stands in their topics."""

    def __init__(self, of: Settings, partitions: int = 2) -> None:
        self.of = of
        self.count = partitions
        self.accounts: list[dict[str, Account]] = [{} for _ in range(partitions)]
        self.control: list[Record] = []
        self.boards = [Board(TOPIC_ID) for _ in range(partitions)]
        self.read = [0] * partitions
        self.ledgers = [self.ledger(n) for n in range(partitions)]

    def ledger(self, n: int) -> Ledger:
        """A new owner's, who has read all that stands there."""
        self.boards[n], self.read[n] = Board(TOPIC_ID), 0
        self.hear(n)
        made = Ledger(self.of, TOPIC_ID, n, self.count)
        made.join(self.boards[n])
        made.restore(self.accounts[n].values(), WALL)
        return made

    def hear(self, n: int) -> None:
        """Read on."""
        for one in self.control[self.read[n] :]:
            self.boards[n].apply(one)
        self.read[n] = len(self.control)

    def write(self, n: int, messages: tuple[Message, ...]) -> None:
        """Commit these."""
        for message in messages:
            topic, number = message.topic, message.partition
            if topic == self.of.topics.control:
                self.control.append(Record(topic, 0, len(self.control), message.key, message.value, ()))
            else:
                assert fold(self.accounts[n], Record(topic, number, 0, message.key, message.value, ()), TOPIC_ID)

    def trade(self, wall: float = WALL) -> None:
        """Everybody says what is to be said, until nobody has anything to say."""
        for _ in range(40):
            said = False
            for n, ledger in enumerate(self.ledgers):
                self.hear(n)
                messages = ledger.trade(wall)
                said = said or bool(messages)
                self.write(n, messages)
            if not said:
                return
        raise AssertionError("they never come to an end")

    def call(self, n: int, of: Request, cost: str = "0.3", wall: float = WALL) -> object:
        """Make a call that costs so much, if it may begin; what keeps it from that."""
        why = self.ledgers[n].ask(of, wall)
        if why is None:
            self.ledgers[n].reserve(of, wall)
            self.write(n, self.ledgers[n].take(of.record.key))
            self.ledgers[n].settle(of.record, Decimal(cost))
            self.write(n, self.ledgers[n].ended(of.record))
        return why


def test_all_who_pay_set_aside_or_none() -> None:
    """Whose money pays no call is asked for nothing, and takes nothing of the others' either."""
    world = World(budgeted(keys="1", agents="0.5"), 1)
    assert world.call(0, asks(5, "a")) is None
    assert LACKING == world.call(0, asks(6, "a"))
    world.trade()
    spent = Spent("agents", (TODAY + 1) * DAY_S, waits=False, whose=AGENT)
    assert spent == world.call(0, asks(6, "a"))
    assert world.call(0, asks(7, "b")) is None
    assert Decimal("0.6") == world.accounts[0][account_name(b"doc:42")].spent
    assert {Decimal("0.3")} == {world.accounts[0][account_name(name, AGENT)].spent for name in (b"a", b"b")}


def test_a_call_is_paid_for_by_all_and_settled_with_all() -> None:
    """The key's, the credential's and the agent's account each have what it cost; what nobody can price costs each its own reserve."""
    world = World(budgeted(keys="1", credentials="2", agents="3"), 1)
    names = account_name(b"doc:42"), account_name(b"team-a", CREDENTIAL), account_name(b"a", AGENT)
    assert len(set(names)) == 3
    assert world.call(0, asks(5, "a", "team-a"), "0.1") is None
    assert [Decimal("0.1")] * 3 == [world.accounts[0][name].spent for name in names]
    of = asks(6, "a", "team-a")
    world.ledgers[0].reserve(of, WALL)
    world.ledgers[0].settle(of.record, None)
    world.write(0, world.ledgers[0].take(of.record.key))
    assert [Decimal("0.4")] * 3 == [world.accounts[0][name].spent for name in names]


def test_those_who_do_not_say_who_they_are_are_one_agent() -> None:
    """Else leaving the name out would cost nothing."""
    world = World(budgeted(agents="0.5"), 1)
    assert world.call(0, asks(5)) is None
    assert LACKING == world.call(0, asks(6))
    assert not World(budgeted(credentials="0.5"), 1).ledgers[0].is_for(asks(5))


def test_calls_in_flight_of_one_account_are_set_aside_beside_each_other() -> None:
    """Unlike a key, an agent has several at once."""
    world = World(budgeted(agents="0.7"), 1)
    first, second = asks(5, "a"), asks(6, "a", key=b"doc:7")
    for of in (first, second):
        assert world.ledgers[0].ask(of, WALL) is None
        world.ledgers[0].reserve(of, WALL)
    assert LACKING == world.ledgers[0].ask(asks(7, "a"), WALL)
    world.ledgers[0].settle(second.record, Decimal(0))
    assert world.ledgers[0].ask(asks(7, "a"), WALL) is None
    world.write(0, world.ledgers[0].take(b"doc:7"))
    assert Decimal("0.3") == world.accounts[0][account_name(b"a", AGENT)].reserved
    world.ledgers[0] = world.ledger(0)
    assert world.call(0, asks(8, "a")) is None
    assert LACKING == world.call(0, asks(9, "a"))


def test_who_waits_is_told_when_to_ask_again() -> None:
    """By its lane's key: when others have given something, and when nobody has anything."""
    world = World(budgeted(agents="0.6"))
    assert world.call(0, asks(5, "a")) is None
    assert LACKING == world.call(0, asks(6, "a"))
    assert [] == world.ledgers[0].payable(WALL)
    world.trade()
    world.hear(0)
    assert [b"doc:42"] == world.ledgers[0].payable(WALL)
    assert world.call(0, asks(6, "a")) is None
    assert [] == world.ledgers[0].payable(WALL)
    assert LACKING == world.call(0, asks(7, "a"))
    world.trade()
    assert [b"doc:42"] == world.ledgers[0].payable(WALL)
    assert isinstance(world.call(0, asks(7, "a")), Spent)


def test_two_that_each_hold_what_the_other_needs_do_not_stand_there_for_good() -> None:
    """One lacks the agent's money and one the credential's, and each has kept the other's: the one that has waited longer gets both."""
    world = World(budgeted(agents="0.6", credentials="0.6"))
    assert world.call(0, asks(5, "a")) is None
    assert world.call(1, asks(5, "b", "team-a")) is None
    assert [LACKING] * 2 == [world.call(n, asks(6, "a", "team-a"), wall=WALL + n) for n in range(2)]
    world.trade(WALL + 2)
    world.hear(0)
    assert world.call(0, asks(6, "a", "team-a"), wall=WALL + 2) is None
    world.trade(WALL + 3)
    assert isinstance(world.call(1, asks(6, "a", "team-a"), wall=WALL + 3), Spent)


def test_what_was_said_of_former_days_goes() -> None:
    """From the topic, and from memory."""
    world = World(budgeted(agents="0.6"))
    assert world.call(0, asks(5, "a")) is None
    assert LACKING == world.call(0, asks(6, "a"))
    world.trade()
    assert 2 == len(world.boards[0].all(account_name(b"a", AGENT)))
    for later in (3 * DAY_S, 3 * DAY_S + 1):
        world.trade(WALL + later)
        for n in range(2):
            world.hear(n)
    assert {} == world.boards[0].all(account_name(b"a", AGENT))


def test_a_pool_of_which_something_is_said_anew_does_not_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many go, some at a time; meanwhile one of them is wanted again, and what is said of it then stays."""
    monkeypatch.setattr("dispatcher.core.lanes.ledger.CLOSED_MAX", 2)
    world, names = World(budgeted(agents="0.3")), [f"a{n}" for n in range(7)]
    for offset, name in enumerate(names):
        assert LACKING == world.call(0, asks(offset, name))
        world.trade()
    later = WALL + 3 * DAY_S
    world.write(0, world.ledgers[0].trade(later))
    for offset, name in enumerate(names):
        assert LACKING == world.call(0, asks(10 + offset, name), wall=later)
        world.trade(later)
    said = {one.name for one in world.boards[0].told_by(0) if one.period == TODAY + 3}
    assert said == {account_name(name.encode(), AGENT) for name in names}


def test_whoever_wants_a_budget_that_is_not_configured_here_is_not_heard() -> None:
    """Workers with other settings: nobody gives what he does not know of."""
    told = World(budgeted(agents="0.6"))
    assert told.call(0, asks(5, "a")) is None
    assert LACKING == told.call(0, asks(6, "a"))
    told.write(0, told.ledgers[0].trade(WALL))
    other = Ledger(budgeted(credentials="1"), TOPIC_ID, 1, 2)
    other.join(told.boards[1])
    told.hear(1)
    assert () == other.trade(WALL)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_no_day_is_overshot_whoever_dies(seed: int, *, steps: bool) -> None:
    """Calls of two agents with two credentials in three partitions, in any order, and owners who die in them; and whose clocks step back.

    By a year, as that of a machine does that has just been started, and forth again: what is spent meanwhile is of another day.
    """
    walls, wrong = [WALL] * 3, WALL - 365 * DAY_S
    chance, world = Random(seed), World(budgeted(agents="1.5", credentials="2", keys="3"), 3)
    real: Counter[Any] = Counter()
    intended: dict[tuple[int, int], tuple[Request, int]] = {}
    for offset in range(200):
        n = chance.randrange(3)
        ledger = world.ledgers[n]
        match chance.choice(("ask", "ask", "ask", "ask", "end", "end", "trade", "trade", "hear", "die") + steps * ("step",)):
            case "step":
                walls[n] = wrong if walls[n] == WALL else WALL
            case "ask":
                of = asks(offset, chance.choice("ab"), chance.choice(("x", "y", None)), b"doc:%d" % chance.randrange(9))
                if ledger.ask(of, walls[n]) is None:
                    ledger.reserve(of, walls[n])
                    world.write(n, ledger.take(of.record.key))
                    cents = chance.choice((30, 30, chance.randint(0, 30)))
                    intended[n, offset] = of, cents
                    for payer in (("agent", of.agent), ("credential", of.claim.credential)):
                        real[payer] += cents if payer[1] is not None and walls[n] == WALL else 0
            case "end" if mine := [at for at in intended if at[0] == n]:
                of, cents = intended.pop(chance.choice(mine))
                ledger.settle(of.record, chance.choice((None, Decimal(cents) / 100)))
                world.write(n, ledger.ended(of.record) if chance.random() < 0.7 else ())
            case "trade":
                world.write(n, ledger.trade(walls[n]))
            case "hear":
                world.hear(n)
            case _:
                if chance.random() < 0.3:
                    world.ledgers[n] = world.ledger(n)
                    intended = {at: one for at, one in intended.items() if at[0] != n}
    assert all(cents <= (150 if whose == "agent" else 200) for (whose, name), cents in real.items() if name is not None), real
