"""Budgets that partitions share: never overshot by all together, and whoever lacks what others have gets it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.budget import DAY_S, Budget
from dispatcher.core.internal.rights import Board, Rights, share
from dispatcher.core.lanes.pool import AGAIN_S, ANSWER_MAX_S, WANT_S, Answer, Pool
from dispatcher.core.messages.record import Record
from dispatcher.settings import BudgetSettings
from tests.specimens import TOPIC_ID, WALL

NAME = "0123456789abcdef01234567"
RESERVE, NOTHING = Decimal("0.3"), Decimal(0)
TODAY = int(WALL // DAY_S)


def budget(usd: str = "2") -> Budget:
    """So much a day, of which a call takes up to 30 cents."""
    return Budget("shared", BudgetSettings(keys=("*",), usd_per_day=Decimal(usd), reserve_usd=RESERVE))


class Log:
    """What is committed: rights as records of the control topic, and accounts, the last one of each partition."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.accounts: dict[int, Account] = {}

    def write(self, partition: int, account: Account, rights: Rights | None) -> None:
        """Commit a transaction."""
        self.accounts[partition] = account
        if rights is not None:
            message = rights.message("dispatcher.control", TOPIC_ID)
            self.records.append(Record(message.topic, 0, len(self.records), message.key, message.value, message.headers))


@dataclass(slots=True)
class Owner:
    """Whoever has a partition: what has to be committed of it stands in `pending`, in order, with the calls that begin then."""

    log: Log
    budget: Budget
    partition: int
    partitions: int
    board: Board = field(default_factory=lambda: Board(TOPIC_ID))
    read: int = 0
    pending: deque[tuple[Account, Rights | None, int]] = field(default_factory=deque)
    calling: int = 0
    account: Account = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        """Take the partition over: what stands in the topics is read to their ends, and what was set aside is spent."""
        self.hear(len(self.log.records))
        self.pool = Pool(NAME, self.budget, self.partition, self.partitions, self.board)
        known = self.log.accounts.get(self.partition, Account(NAME, self.pool.period))
        known = known if known.period >= self.pool.period else Account(NAME, self.pool.period)
        self.account = replace(known, settled=known.spent, reserved=NOTHING)

    def hear(self, count: int, *, again: int = 0) -> bool:
        """Read on, and before that what was read before once more; whether there was anything."""
        first, self.read = max(0, self.read - again), min(len(self.log.records), self.read + count)
        for record in self.log.records[first : self.read]:
            self.board.apply(record)
        return first < self.read

    def at(self, wall: float) -> Account:
        """What is spent on the day that it is here."""
        account = self.budget.current(self.account, NAME, wall)
        if account.period != self.account.period:
            self.account = account
        self.pool.begin(self.account.period)
        return self.account

    def ask(self, wall: float, offset: int = 5) -> Answer:
        """Set a call's reserve aside, if it may begin; it does once that is committed."""
        answer = self.pool.ask(self.at(wall), wall, offset, b"doc:%d" % offset)
        if answer is Answer.PAYS:
            self.pool.leave(offset)
            self.account = replace(self.account, reserved=self.account.reserved + RESERVE)
            self.pending.append((self.account, None, 1))
        return answer

    def trade(self, wall: float) -> bool:
        """Say what others have to know; whether there was anything."""
        rights = self.pool.trade(self.at(wall), wall)
        if rights is not None:
            self.pending.append((self.account, rights, 0))
        return rights is not None

    def end(self, cost: Decimal) -> None:
        """A call has cost so much."""
        self.account = replace(self.account, settled=self.account.settled + cost, reserved=self.account.reserved - RESERVE)
        self.pending.append((self.account, None, 0))

    def commit(self) -> int:
        """Commit what is to be committed next; how many calls begin."""
        if not self.pending:
            return 0
        account, rights, calls = self.pending.popleft()
        self.log.write(self.partition, account, rights)
        self.calling += calls
        return calls


@dataclass(slots=True)
class Worlds:
    """All owners of a request topic's partitions."""

    usd: str = "2"
    partitions: int = 3
    log: Log = field(default_factory=Log)
    owners: list[Owner] = field(init=False)

    def __post_init__(self) -> None:
        """Nobody has spent anything."""
        self.owners = [self.owner(n) for n in range(self.partitions)]

    def owner(self, partition: int) -> Owner:
        """Give a new owner of a partition."""
        return Owner(self.log, budget(self.usd), partition, self.partitions)

    def settle(self, wall: float, *, but: int = -1) -> None:
        """Everybody but one reads all and says all, until nobody has anything to say."""
        others = [one for one in self.owners if one.partition != but]
        for _ in range(50 * self.partitions):
            known = len(self.log.records)
            for one in others:
                one.trade(wall)
                while one.pending:
                    one.commit()
            news = [one.hear(len(self.log.records)) for one in others]
            if not any(news) and known == len(self.log.records):
                return
        raise AssertionError("they never come to an end")

    def call(self, partition: int, cost: str, wall: float = WALL) -> bool | None:
        """Make a call that costs so much; None where it is not known yet whether it may be made."""
        owner = self.owners[partition]
        answer = owner.ask(wall)
        if answer is Answer.PAYS:
            owner.commit()
            owner.end(Decimal(cost))
            owner.commit()
        return {Answer.PAYS: True, Answer.SPENT: False}.get(answer)

    def calls(self, partition: int, cost: str, wall: float = WALL) -> int:
        """Make calls until nothing is left; how many."""
        made = 0
        for _ in range(200):
            may = self.call(partition, cost, wall)
            if may is None:
                self.settle(wall)
            elif not may:
                return made
            made += may is True
        raise AssertionError("it is never spent")

    @property
    def left(self) -> Decimal:
        """What nobody has spent."""
        return Decimal(self.usd) - sum((one.account.spent for one in self.owners), NOTHING)


def test_one_partition_may_spend_all_of_it() -> None:
    """B61: a share is no wall: who has more to do than others gets what they do not use, to the last call."""
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


class Partitions(RuleBasedStateMachine):
    """Calls, gifts and deaths in any order, news that come late or twice, and clocks that differ around midnight."""

    @initialize(usd=st.sampled_from(["0.5", "0.9", "1", "2"]), partitions=st.integers(1, 4))
    def begin(self, usd: str, partitions: int) -> None:
        """Nobody has spent anything. True costs are counted by day."""
        self.world = Worlds(usd, partitions)
        self.wall = (TODAY + 1) * DAY_S - 100.0
        self.skew = [0.0] * partitions
        self.cost: Counter[int] = Counter()
        self.calls: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]  # in flight: day and cents

    def of(self, n: int) -> tuple[int, Owner, float]:
        """A partition, its owner, and how late it is there."""
        n %= self.world.partitions
        return n, self.world.owners[n], self.wall + self.skew[n]

    @rule(n=st.integers(0, 3), offset=st.integers(5, 7))
    def ask(self, n: int, offset: int) -> None:
        """Somebody wants to make a call."""
        _, owner, wall = self.of(n)
        owner.ask(wall, offset)

    @rule(n=st.integers(0, 3), offset=st.integers(5, 7))
    def leave(self, n: int, offset: int) -> None:
        """Somebody wants it no more."""
        self.of(n)[1].pool.leave(offset)

    @rule(n=st.integers(0, 3), cents=st.integers(0, 30))
    def commit(self, n: int, cents: int) -> None:
        """A transaction is committed; a call that begins with it costs what it does, whoever hears of its end."""
        n, owner, _ = self.of(n)
        period = owner.pending[0][0].period if owner.pending else 0
        if owner.commit():
            self.cost[period] += cents
            self.calls[n].append((period, cents))

    @rule(n=st.integers(0, 3), is_known=st.booleans())
    def end(self, n: int, is_known: bool) -> None:  # noqa: FBT001 - drawn
        """A call ends, and it is known what it has cost, or not."""
        n, owner, wall = self.of(n)
        if self.calls[n]:
            owner.at(wall)
            period, cents = self.calls[n].pop(0)
            if period == owner.account.period:
                owner.end(Decimal(cents) / 100 if is_known else RESERVE)

    @rule(n=st.integers(0, 3))
    def trade(self, n: int) -> None:
        """Somebody says what others have to know."""
        _, owner, wall = self.of(n)
        owner.trade(wall)

    @rule(n=st.integers(0, 3), count=st.integers(0, 4), again=st.integers(0, 3))
    def hear(self, n: int, count: int, again: int) -> None:
        """News are read, some of them once more."""
        self.of(n)[1].hear(count, again=again)

    @rule(n=st.integers(0, 3))
    def die(self, n: int) -> None:
        """Somebody loses the partition, and all that is not committed."""
        n, _, _ = self.of(n)
        self.world.owners[n] = self.world.owner(n)
        self.calls[n].clear()

    @rule(seconds=st.sampled_from([1.0, 20.0, 99.0, 130.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, for some over midnight."""
        self.wall += seconds

    @rule(n=st.integers(0, 3), skew=st.sampled_from([0.0, 0.0, 30.0, -30.0]))
    def adjust(self, n: int, skew: float) -> None:
        """A clock is set."""
        self.skew[n % self.world.partitions] = skew

    def comes_to_its_end(self, who: int) -> None:
        """Once nobody dies any more, a partition that has enough to do spends what is left of all."""
        world = self.world
        for n, owner in enumerate(world.owners):
            self.skew[n] = 0.0
            while owner.pending:
                self.commit(n, 30)
            while self.calls[n]:
                self.end(n, is_known=True)
            owner.at(self.wall)
            for offset in (5, 6):
                owner.pool.leave(offset)
        world.settle(self.wall)
        self.wall += 2 * AGAIN_S
        for owner in world.owners:
            owner.at(self.wall)
        left = world.left
        assert world.calls(who, "0.3", self.wall) == max(0, left // RESERVE)

    @invariant()
    def it_is_never_overshot(self) -> None:
        """What calls of a day have really cost is never more than its budget, nor is what all have committed."""
        if not hasattr(self, "world"):
            return
        most = Decimal(self.world.usd)
        assert all(Decimal(cents) / 100 <= most for cents in self.cost.values()), self.cost
        for period in (TODAY, TODAY + 1):
            told = [account.spent for account in self.world.log.accounts.values() if account.period == period]
            assert sum(told, NOTHING) <= most


TestPartitions = Partitions.TestCase
TestPartitions.settings = hypothesis_settings(max_examples=100, stateful_step_count=50, deadline=None)
# What happens in a walk, and how often: much is asked, said and read, and somebody dies now and then.
STEPS = {"ask": 6, "commit": 9, "trade": 5, "hear": 5, "end": 3, "die": 1, "wait": 0.2, "adjust": 0.1}


def walk(seed: int) -> None:
    """Go through many steps of the same machine, as they come in life: drawn evenly they hardly ever come to a gift that is spent."""
    chance, machine = Random(seed), Partitions()
    machine.begin(chance.choice(["0.5", "0.9", "1", "2"]), chance.randint(2, 4))
    for step in chance.choices(list(STEPS), list(STEPS.values()), k=300):
        n = chance.randrange(4)
        drawn = {
            "ask": (n, chance.randint(5, 6)),
            "commit": (n, 30 if chance.random() < 0.7 else chance.randint(0, 30)),
            "hear": (n, 4, chance.choice((0, 0, 3))),
            "end": (n, chance.random() < 0.5),
            "wait": (chance.choice((1.0, 20.0, 99.0)),),
            "adjust": (n, chance.choice((0.0, 30.0, -30.0))),
        }
        getattr(machine, step)(*drawn.get(step, (n,)))
        machine.it_is_never_overshot()
    machine.comes_to_its_end(chance.randrange(machine.world.partitions))


def _walks(count: int) -> None:
    for seed in range(count):
        walk(seed)


def test_walks_of_many_steps_overshoot_nothing() -> None:
    """See there."""
    _walks(60)


def _forgets_gifts(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a partition over knows nothing of what was given."""
    of = Board.of
    patch.setattr(Board, "of", lambda self, *at: None if (found := of(self, *at)) is None else replace(found, given={}))


def _counts_twice(patch: pytest.MonkeyPatch) -> None:
    """What is read once more counts once more."""

    def put(self: Board, told: Rights) -> None:
        before = self._rights.setdefault(told.name, {}).get(told.partition)
        more = {} if before is None else before.given
        self._rights[told.name][told.partition] = replace(
            told, given={n: more.get(n, NOTHING) + amount for n, amount in told.given.items()}
        )
        self._open(told.name, told.partition, is_open=told.since is not None)

    patch.setattr(Board, "_put", put)


def _keeps_what_it_gives(patch: pytest.MonkeyPatch) -> None:
    """A gift costs its giver nothing before it is committed."""

    def left(self: Pool, account: Account) -> Decimal:
        self._read()
        given = NOTHING if self.written is None else sum(self.written.given.values(), NOTHING)
        return (
            share(self.budget.of.usd_per_day, self._partition, self._partitions)
            + sum(self.mine.got.values(), NOTHING)
            - given
            - account.spent
        )

    said = Pool._said

    def late(self: Pool) -> Rights | None:
        before, found = self.written, said(self)
        self.written = before
        return found

    patch.setattr(Pool, "left", left)
    patch.setattr(Pool, "_said", late)


def _of_any_day(patch: pytest.MonkeyPatch) -> None:
    """What was given yesterday counts today."""

    def read(self: Pool) -> None:
        of = self._board.all(self.name).values()
        got = {other.partition: other.given[self._partition] for other in of if self._partition in other.given}
        self.mine = replace(self.mine, got=got)

    patch.setattr(Pool, "_read", read)


@pytest.mark.parametrize(
    "plant", [_forgets_gifts, _counts_twice, _keeps_what_it_gives, _of_any_day], ids=lambda one: one.__name__.strip("_")
)
def test_faults_are_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that finds nothing where something is wrong shows nothing."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _walks(400)


def test_what_others_have_to_know_is_said_once() -> None:
    """Who has nothing new to say says nothing: each word is a transaction."""
    world = Worlds("0.9")
    assert world.calls(0, "0.3") == 3
    said = len(world.log.records)
    for later in (0, 1, WANT_S, 2 * WANT_S):
        world.settle(WALL + later)
    assert said == len(world.log.records)
