"""Budgets of lane keys: never overshot by what is spent and set aside, whoever owns the partition and whenever he dies."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dispatcher.core.callees.charge import cost_of_call
from dispatcher.core.internal.account import Account, account_name, fold, read_account
from dispatcher.core.internal.budget import DAY_S
from dispatcher.core.lanes.ledger import LACKING, Ledger, Spent
from dispatcher.core.messages.call import Ambiguous, NotSent
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Request
from dispatcher.core.messages.usage import Tokens, Usage
from dispatcher.settings import Settings
from tests.specimens import TOPIC_ID, WALL, answer, record, request, settings

KEY = b"doc:42"
TODAY = int(WALL // DAY_S)


def budgeted(**budget: Any) -> Settings:
    """Settings with one budget: a dollar a day for each `doc:` key, of which a call takes up to 30 cents."""
    return settings(budgets={"docs": {"keys": ["doc:*"], "usd_per_day": 1, "reserve_usd": 0.3, **budget}})


def asked(**fields: Any) -> Request:
    """A request of that record, which may be one that would be refused."""
    return replace(request(), record=record(**fields))


def ledger(of: Settings | None = None) -> Ledger:
    """A new owner's."""
    return Ledger(of or budgeted(), TOPIC_ID, 0)


def call(of: Ledger, cost: str | None, wall: float = WALL, offset: int = 5, key: bytes = KEY) -> bool:
    """Make a call that costs so much, if it may begin."""
    if of.ask(asked(key=key, offset=offset), wall) is not None:
        return False
    of.reserve(asked(key=key, offset=offset), wall)
    of.settle(record(key=key, offset=offset), None if cost is None else Decimal(cost))
    return True


class Topic:
    """The state topic: the last account of each name counts."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def write(self, messages: tuple[Message, ...]) -> None:
        """Write these, and read them back."""
        for message in messages:
            written = Record(message.topic, message.partition, 0, message.key, message.value, ())
            assert fold(self.accounts, written, TOPIC_ID)


def test_calls_stop_where_the_next_one_might_overshoot() -> None:
    """B43: of a dollar with 30 cents for a call, calls of 30 cents run three times; then nobody's until midnight (UTC)."""
    made = ledger()
    assert [True, True, True, False] == [call(made, "0.3") for _ in range(4)]
    assert Spent("docs", (TODAY + 1) * DAY_S, waits=False) == made.ask(asked(), WALL)
    assert made.ask(asked(key=b"doc:43"), WALL) is None
    assert call(made, "0.3", (TODAY + 1) * DAY_S)


def test_what_a_call_did_not_cost_is_there_for_the_next_one() -> None:
    """Reserved is the most that one may cost, settled what it did."""
    made = ledger()
    assert [True] * 8 + [False] == [call(made, "0.1") for _ in range(9)]


def test_what_nobody_can_price_costs_its_reserve() -> None:
    """A success without usage, a price that is not known, a lost answer, all count; what cannot have cost anything counts nothing."""
    unknown = [cost_of_call(answer(), None), cost_of_call(answer(), Usage(Tokens(1))), cost_of_call(Ambiguous("reset", ""), None)]
    assert [None] * 3 == unknown
    assert [None] * 4 == [cost_of_call(answer(status), None) for status in (408, 502, 504, 524)]  # of somebody in between
    free = [cost_of_call(NotSent("connect", ""), None), *(cost_of_call(answer(status), None) for status in (400, 429, 500, 503))]
    assert [Decimal(0)] * 5 == free
    assert Decimal("0.1") == cost_of_call(answer(500), Usage(Tokens(1), cost=Decimal("0.1")))
    made = ledger()
    assert [True, True, True, False] == [call(made, None) for _ in range(4)]


def test_who_dies_in_a_call_leaves_its_reserve() -> None:
    """Too much may be counted as spent, never too little: the next owner knows what stood there before the call began."""
    topic, dead = Topic(), ledger()
    assert call(dead, "0.25")
    topic.write(dead.take(KEY))
    dead.reserve(asked(offset=6), WALL)
    topic.write(dead.take(KEY))
    assert Account(account_name(KEY), TODAY, Decimal("0.25"), Decimal("0.3")) == topic.accounts[account_name(KEY)]
    heir = ledger()
    heir.restore(topic.accounts.values(), WALL)
    assert [True, False] == [call(heir, "0.3"), call(heir, "0.3")]


def test_an_early_end_of_another_request_gives_nothing_back() -> None:
    """What is set aside is so for one request, by its place."""
    made = ledger()
    made.reserve(asked(offset=5), WALL)
    made.settle(record(offset=6), Decimal(0))
    topic = Topic()
    topic.write(made.take(KEY))
    assert Decimal("0.3") == topic.accounts[account_name(KEY)].reserved
    made.settle(record(offset=5), Decimal(0))
    topic.write(made.take(KEY))
    assert Decimal(0) == topic.accounts[account_name(KEY)].spent


def test_a_call_over_midnight_is_of_the_day_on_which_it_began() -> None:
    """It ends there, and the new day is whole."""
    made, midnight = ledger(), (TODAY + 1) * DAY_S
    made.reserve(asked(), midnight - 1)
    made.settle(record(), Decimal("0.3"))
    assert [True, True, True, False] == [call(made, "0.3", midnight + 1) for _ in range(4)]


def test_a_clock_that_steps_back_begins_no_day_anew() -> None:
    """An account of tomorrow, which a former owner's clock has begun, is the one that counts today."""
    made, midnight = ledger(), (TODAY + 1) * DAY_S
    for _ in range(3):
        assert call(made, "0.3", midnight + 1)
    assert Spent("docs", (TODAY + 2) * DAY_S, waits=False) == made.ask(asked(), midnight - 1)


@pytest.mark.parametrize("days", [2, 400, TODAY])
def test_a_clock_that_steps_back_and_forth_begins_no_day_anew(days: int) -> None:
    """By days: a machine that has just been started has no clock for a while. What was spent today stays so, whoever owns it then."""
    topic, made, wrong = Topic(), ledger(), WALL - days * DAY_S
    for _ in range(3):
        assert call(made, "0.3")
    assert made.ask(asked(), wrong) is not None
    topic.write(made.take(KEY))
    assert made.ask(asked(), WALL) is not None
    after = made
    for wall in (wrong, wrong + 60, WALL):
        after = ledger()
        after.restore(topic.accounts.values(), wall)
        assert after.ask(asked(), wall) is not None
        topic.write(after.take(KEY))
    assert call(after, "0.3", WALL + DAY_S)


def test_a_clock_that_was_years_ahead_stops_a_key_until_tomorrow_has_ended() -> None:
    """What is spent under it is not forgotten, and not remembered for years."""
    topic, wrong, right = Topic(), ledger(), ledger()
    for _ in range(3):
        assert call(wrong, "0.3", WALL + 1000 * DAY_S)
    topic.write(wrong.take(KEY))
    right.restore(topic.accounts.values(), WALL)
    assert Spent("docs", (TODAY + 2) * DAY_S, waits=False) == right.ask(asked(), WALL)
    topic.write(right.take(KEY))
    assert TODAY + 1 == topic.accounts[account_name(KEY)].period
    assert right.ask(asked(), (TODAY + 2) * DAY_S - 1) is not None
    assert call(right, "0.3", (TODAY + 2) * DAY_S)


def test_what_was_set_aside_yesterday_pays_no_call_of_today() -> None:
    """Else a day could cost one call more than its budget: who is late at his call sets aside anew."""
    made, midnight = ledger(), (TODAY + 1) * DAY_S
    made.reserve(asked(), midnight - 1)
    assert [False, True, False] == [
        made.is_over(record(), midnight - 1),
        made.is_over(record(), midnight),
        made.is_over(record(offset=6), midnight),
    ]
    made.release(record())
    made.reserve(asked(), midnight)
    assert not made.is_over(record(), midnight)


@pytest.mark.parametrize(("starts_at_h", "hours"), [(0, 14), (-1, 13), (8, 22), (-14, 0)])
def test_a_day_begins_when_the_budget_says(starts_at_h: float, hours: int) -> None:
    """At midnight UTC, or some hours from there; the tests' clock stands at ten in the morning."""
    made = ledger(budgeted(day_starts_at_h=starts_at_h))
    for _ in range(3):
        assert call(made, "0.3")
    spent = made.ask(asked(), WALL)
    assert isinstance(spent, Spent)
    assert hours * 3600 == (spent.until - WALL) % DAY_S
    assert made.ask(asked(), spent.until - 1) == spent
    assert made.ask(asked(), spent.until) is None


@pytest.mark.parametrize(
    ("key", "budget"),
    [(b"doc:42", "one"), (b"doc:4", "docs"), (b"doc:421", "docs"), (b"apikey:a", "all"), (b"\xff", "all"), (b"team:x", "all")],
)
def test_the_budget_that_names_most_of_a_key_counts(key: bytes, budget: str) -> None:
    """All of it, or its longest beginning."""
    each = {"usd_per_day": 1, "reserve_usd": 1}
    made = ledger(
        settings(budgets={"all": {"keys": ["*"], **each}, "docs": {"keys": ["doc:*"], **each}, "one": {"keys": ["doc:42"], **each}})
    )
    assert call(made, "1", key=key)
    found = made.ask(asked(key=key), WALL)
    assert isinstance(found, Spent)
    assert budget == found.budget


def test_a_key_without_a_budget_is_never_asked() -> None:
    """And costs no record."""
    made = ledger()
    assert made.ask(asked(key=b"apikey:a"), WALL) is None
    made.reserve(asked(key=b"apikey:a"), WALL)
    assert () == made.take(b"apikey:a")
    assert (True, False) == (made.is_for(asked()), made.is_for(asked(key=b"apikey:a")))
    assert not Ledger(settings(), TOPIC_ID, 0).is_for(asked())


def test_accounts_that_are_over_go() -> None:
    """From memory and from the topic, some with each record that is written anyway."""
    topic, made = Topic(), ledger()
    for number in range(30):
        key = b"doc:%d" % number
        assert call(made, "0.1", key=key)
        topic.write(made.take(key))
    assert call(made, "0.1", WALL + DAY_S, key=b"doc:7")
    assert 30 == len(made)
    for _ in range(2):
        assert call(made, "0.1", WALL + 3 * DAY_S, key=b"doc:7")
        topic.write(made.take(b"doc:7"))
    assert [account_name(b"doc:7")] == list(topic.accounts)
    assert 1 == len(made)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"1",
        b"{}",
        b'{"v":1,"period":"1","settled":"0","reserved":"0"}',
        b'{"v":1,"period":1,"settled":"0","reserved":"0","was":"2"}',
        b'{"v":1,"period":1,"settled":"-1","reserved":"0"}',
        b'{"v":1,"period":1,"settled":"1E+99999999","reserved":"0"}',
    ],
)
def test_what_we_did_not_write_is_no_account(raw: bytes) -> None:
    """Foreign and corrupt records of that key say nothing, and take nothing back of what is known; a tombstone does."""
    good = Account("0" * 24, 1).message("s", TOPIC_ID, 0)
    known = {"0" * 24: Account("0" * 24, 1)}
    assert fold(known, Record("s", 0, 0, good.key, raw, ()), TOPIC_ID)
    assert {"0" * 24} == set(known)
    assert fold(known, Record("s", 0, 0, good.key, None, ()), TOPIC_ID)
    assert not known
    assert read_account(Record("s", 0, 0, good.key, raw, ()), TOPIC_ID) is None
    assert read_account(Record("s", 1, 0, good.key, good.value, ()), TOPIC_ID) is None
    assert read_account(Record("s", 0, 0, good.key, good.value, ()), "another") is None


class Owners(RuleBasedStateMachine):
    """A partition's owners, who intend, call, end, write and die as they like. `real`: what calls have really cost, by key and day."""

    def __init__(self) -> None:
        super().__init__()
        self.topic, self.ledger, self.wall, self.offset = Topic(), ledger(), WALL, 0
        self.intended: dict[bytes, int] = {}
        self.open: dict[bytes, tuple[int, int]] = {}
        self.real: dict[tuple[bytes, int], Decimal] = {}

    keys = st.sampled_from([b"doc:1", b"doc:2"])
    costs = st.decimals(0, Decimal("0.3"), places=2)

    def pay(self, key: bytes, day: int, cost: Decimal) -> None:
        """A call has really cost so much."""
        self.real[key, day] = self.real.get((key, day), Decimal(0)) + cost

    @rule(key=keys)
    def intend(self, key: bytes) -> None:
        """A call is to begin, if it may, and none of its key does or is open; the reserve stands in the topic before."""
        self.offset += 1
        if key not in self.open | self.intended and self.ledger.ask(asked(key=key, offset=self.offset), self.wall) is None:
            self.ledger.reserve(asked(key=key, offset=self.offset), self.wall)
            self.topic.write(self.ledger.take(key))
            self.intended[key] = self.offset

    @rule(key=keys)
    def begin(self, key: bytes) -> None:
        """It begins, or is not made: then nothing is set aside any more."""
        if key in self.intended:
            offset = self.intended.pop(key)
            if self.ledger.is_over(record(key=key, offset=offset), self.wall):
                self.ledger.release(record(key=key, offset=offset))
            else:
                self.open[key] = offset, int(self.wall // DAY_S)

    @rule(key=keys, cost=costs, written=st.booleans())
    def end(self, key: bytes, cost: Decimal, *, written: bool) -> None:
        """It ends; the transaction that says so may not have been committed yet."""
        if key in self.open:
            offset, day = self.open.pop(key)
            self.pay(key, day, cost)
            self.ledger.settle(record(key=key, offset=offset), cost)
            if written:
                self.topic.write(self.ledger.take(key))

    @rule(cost=costs)
    def die(self, cost: Decimal) -> None:
        """The owner dies; what was in its hands has cost something, too."""
        for key, (_, day) in self.open.items():
            self.pay(key, day, cost)
        self.open.clear()
        self.intended.clear()
        self.ledger = ledger()
        self.ledger.restore(self.topic.accounts.values(), self.wall)

    @rule(hours=st.integers(1, 80))
    def later(self, hours: int) -> None:
        """Time passes."""
        self.wall += hours * 3600

    @invariant()
    def never_overshot(self) -> None:
        """Whatever happens, no day has cost more than its budget."""
        assert all(cost <= 1 for cost in self.real.values()), self.real


Owners.TestCase.settings = hypothesis_settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOwners = Owners.TestCase


# --- classes --------------------------------------------------------------------------------------------------------------------------


def test_requests_of_one_offset_in_two_topics_are_two() -> None:
    """Topics of classes have one ledger: what is set aside for one request is not there for another, nor given back with it."""
    made, topics = ledger(), ("d.requests.fast", "d.requests.slow")
    for topic in topics:
        assert made.ask(asked(topic=topic), WALL) is None
        made.reserve(asked(topic=topic), WALL)
    made.settle(record(topic=topics[0]), Decimal("0.5"))
    assert made.ask(asked(topic="d.requests.late"), WALL) is LACKING, "half a dollar is spent, and 30 cents are set aside"
    made.settle(record(topic=topics[1]), Decimal(0))
    assert made.ask(asked(topic="d.requests.late"), WALL) is None


def test_the_first_word_of_what_was_spent_counts() -> None:
    """Whoever is restored later has read the same topic, and what has been spent here since is newer."""
    made, noted = ledger(), Account(account_name(KEY), TODAY, Decimal("0.5"))
    made.restore([noted], WALL)
    assert call(made, "0.3")
    made.restore([noted], WALL)
    assert not call(made, "0.3")


def test_what_another_class_has_in_flight_is_not_spent() -> None:
    """It may cost less than is set aside for it: who waits for his turn is not told that nothing is left, and who has it waits."""
    made, other = ledger(), asked(topic="d.requests.slow")
    assert call(made, "0.5")
    made.reserve(asked(), WALL)
    assert made.ask(other, WALL, may_call=False) is None
    assert made.ask(other, WALL) is LACKING
    made.settle(record(), Decimal("0.1"))
    assert made.ask(other, WALL) is None
    made.reserve(other, WALL)
    made.settle(other.record, Decimal("0.2"))
    for may_call in (True, False):
        assert isinstance(made.ask(other, WALL, may_call=may_call), Spent)
