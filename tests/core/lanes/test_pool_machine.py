"""Budgets that partitions share, in any order of events: never overshot by all together, and spent to the last call in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.budget import DAY_S
from dispatcher.core.internal.rights import Board, Rights, share
from dispatcher.core.lanes.pool import AGAIN_S, Pool
from tests.core.pools import NOTHING, RESERVE, TODAY, Log, Owner, Worlds


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
        self.of(n)[1].leave(offset)

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
                owner.leave(offset)
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
    of, write = Board.of, Log.write
    patch.setattr(Board, "of", lambda self, *at: None if (found := of(self, *at)) is None else replace(found, given={}))
    patch.setattr(Log, "write", lambda self, n, account, rights: write(self, n, replace(account, given=NOTHING), rights))


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


def _used_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """Whoever wants is told beside the log; what becomes of the word itself is seen later."""
    hear, taken, owners = Owner.hear, Owner.__post_init__, dict[tuple[int, int], Owner]()

    def take(self: Owner) -> None:
        taken(self)
        owners[id(self.log), self.partition] = self

    def heard(self: Owner, count: int, *, again: int = 0) -> bool:
        known = hear(self, count, again=again)
        for other in [other for (log, n), other in owners.items() if log == id(self.log) and n != self.partition]:
            for _, rights, _ in other.pending:
                if rights is not None:
                    self.board._put(rights)
                    self.board._version += 1
                    self.board._versions[rights.name] = self.board._version
        return known

    patch.setattr(Owner, "__post_init__", take)
    patch.setattr(Owner, "hear", heard)


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
    "plant",
    [_forgets_gifts, _counts_twice, _used_before_it_is_committed, _keeps_what_it_gives, _of_any_day],
    ids=lambda one: one.__name__.strip("_"),
)
def test_faults_are_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that finds nothing where something is wrong shows nothing."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _walks(400)
