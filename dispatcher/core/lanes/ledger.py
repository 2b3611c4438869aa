"""What the lane keys of a partition have spent, and its part of what credentials and agents may; and whether a call may begin.

A key belongs to one partition, so that its owner knows all that it spends; of what partitions share, each has a part (`Pool`). Where there
are classes, the partitions of one number of all their topics have one owner, and one ledger. Before a
call its reserve is set aside with all who pay for it, or with none, and that stands in the state topic before the call begins; its end puts
the real cost there, in the transaction of the reply or of the attempt's note. A worker that dies in between leaves the reserve, which
counts as spent: too much may be counted so, never too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from dispatcher.core.internal import rights as shared
from dispatcher.core.internal.account import AGENT, CREDENTIAL, KEY, Account, Scope, account_name, closed
from dispatcher.core.internal.budget import DAY_S, Budget, Budgets
from dispatcher.core.internal.rights import NOTHING, Board
from dispatcher.core.lanes.pool import Answer, Pool, Spot
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Request
from dispatcher.settings import Settings

# Why a lane stands whose key, credential or agent has spent its budget, or has to be given of others' part first.
BUDGET = "budget"
# How often accounts of former periods are looked for.
SWEEP_S = 3600
# Accounts of a former period that one record takes along into their end: they are few for each call, and all go within some of them.
CLOSED_MAX = 20


@dataclass(frozen=True, slots=True)
class Spent:
    """No call may begin: the budget does not pay for it before `until`, seconds since 1970. `waits`: the lane is to wait for that."""

    budget: str
    until: float
    waits: bool
    whose: Scope = KEY


@dataclass(frozen=True, slots=True)
class Lacking:
    """No call may begin yet: what this partition has left does not pay for it, and others are asked for what they have."""


LACKING = Lacking()


@dataclass(frozen=True, slots=True)
class _Payer:
    """Who pays for a call: the account of that name; `pool` where partitions share the budget."""

    name: str
    whose: Scope
    budget: Budget
    pool: Pool | None = None


@dataclass(frozen=True, slots=True)
class _Aside:
    """What is set aside for a call, in the account of that name."""

    payer: _Payer
    period: int
    usd: Decimal


class Ledger:
    """Owned by one Partition, or by those of one number together. Times are wall clock, seconds since 1970; money is in US dollars.

    `board`: what owners say of shared budgets, this one's own word among it. There are so many `partitions`.
    """

    __slots__ = (
        *("_accounts", "_board", "_budgets", "_changed", "_changed_pools", "_control", "_for", "_is_restored", "_lacking", "_over"),
        *("_partition", "_partitions", "_pools", "_stale", "_swept_at", "_topic", "_topic_id", "_waited"),
    )

    def __init__(self, settings: Settings, topic_id_text: str, partition: int, partitions: int = 1) -> None:
        self._budgets = Budgets(settings.budgets)
        self._topic = settings.topics.state
        self._control = settings.topics.control
        self._topic_id = topic_id_text
        self._partition = partition
        self._partitions = partitions
        self._board = Board(topic_id_text)
        self._accounts: dict[str, Account] = {}
        self._pools: dict[str, Pool] = {}  # by the names of their accounts
        self._changed: dict[str, None] = {}  # accounts that are not handed out as they are
        self._changed_pools: dict[str, None] = {}  # the same of accounts of pools
        self._for: dict[Spot, tuple[_Aside, ...]] = {}  # what is set aside, by the request that it is for
        self._lacking: dict[Spot, tuple[float, tuple[Pool, ...]]] = {}  # since when a request waits for which pools
        self._waited: dict[str, Pool] = {}  # all of these
        self._stale: dict[str, None] = {}  # accounts of former periods, which stand in the topic still
        self._over: dict[str, None] = {}  # pools of which what was said last is of a former period
        self._swept_at = -math.inf
        self._is_restored = False

    def __len__(self) -> int:
        return len(self._accounts)

    def join(self, board: Board) -> None:
        """Hear what owners of all partitions say, from here on: before anything is restored or asked."""
        self._board = board

    def restore(self, accounts: Iterable[Account], wall: float) -> None:
        """What former owners have noted. What was set aside for a call of theirs is spent: nobody knows what it has cost.

        The first word counts: whoever is restored later has read what has been spent here since.
        """
        if self._is_restored:
            return
        self._is_restored = True
        for account in accounts:
            self._accounts[account.name] = replace(account, settled=account.spent, reserved=NOTHING)
        self._sweep(wall)

    def is_for(self, request: Request) -> bool:
        """Whether a call of this request is paid for by a budget."""
        return bool(self._budgets) and any(True for _ in self._payers(request))

    def ask(self, request: Request, wall: float, *, may_call: bool = True) -> Spent | Lacking | None:
        """Whether a call of this request may not begin now, and until when; one for which something is set aside may.

        What waits for its turn (not `may_call`) while a call of its key is in flight in another class asks again once that has ended: what
        is set aside for it may come back.
        """
        spot = _spot(request.record)
        if not self._budgets or spot in self._for:
            return None
        lacks, payers = False, [*self._payers(request)]
        for payer in payers:
            answer, until = self._answer(payer, wall)
            if answer is Answer.SPENT:
                self._leave(spot)
                return Spent(payer.budget.name, until, payer.budget.of.when_spent == "wait", payer.whose)
            lacks = lacks or (answer is Answer.LACKS and (may_call or payer.pool is not None))
        if not lacks:
            return None
        pools = tuple(payer.pool for payer in payers if payer.pool is not None)
        since, _ = self._lacking.setdefault(spot, (wall, pools))
        for pool in pools:
            pool.wait(spot, request.record.key, since, wall)
            self._waited[pool.name] = pool
        return LACKING

    def reserve(self, request: Request, wall: float) -> None:
        """A call of this request is about to begin, and may: the reserves of all who pay for it are set aside."""
        if not self._budgets:
            return
        if wall - self._swept_at >= SWEEP_S:
            self._sweep(wall)
        self._leave(_spot(request.record))
        aside = []
        for payer in self._payers(request):
            account = self._account(payer, wall)
            aside.append(_Aside(payer, account.period, payer.budget.of.reserve_usd))
            self._put(replace(account, reserved=account.reserved + payer.budget.of.reserve_usd))
        if aside:
            self._for[_spot(request.record)] = tuple(aside)

    def is_over(self, record: Record, wall: float) -> bool:
        """Whether what is set aside for a call of this request is of a day that is over: it is not to begin at the new day's expense."""
        return any(aside.period < aside.payer.budget.period(wall) for aside in self._for.get(_spot(record), ()))

    def settle(self, record: Record, cost: Decimal | None) -> None:
        """The call of this request has ended, and cost so much; None where nobody knows: then it cost its reserve.

        Nothing happens where nothing is set aside for this request, and to accounts of another day.
        """
        for aside in self._for.pop(_spot(record), ()):
            account = self._accounts.get(aside.payer.name)
            if account is not None and account.period == aside.period:
                settled = account.settled + (aside.usd if cost is None else cost)
                self._put(replace(account, settled=settled, reserved=account.reserved - aside.usd))

    def release(self, record: Record) -> None:
        """What is set aside for this request still is so for a call that is not made: it has cost nothing."""
        self.settle(record, NOTHING)

    def take(self, key: bytes | None) -> tuple[Message, ...]:
        """What has to be written of this key's account, in the next transaction that says anything of it; and of accounts that are over.

        And of those that partitions share: whose request they have changed by does not matter.
        """
        if key is None or not (self._changed or self._changed_pools or self._stale):
            return ()
        names = [*self._changed_pools]
        self._changed_pools.clear()
        if self._changed and (name := account_name(key)) in self._changed:
            del self._changed[name]
            names.append(name)
        messages = [self._accounts[name].message(self._topic, self._topic_id, self._partition) for name in names]
        over = [self._stale.popitem()[0] for _ in range(min(CLOSED_MAX, len(self._stale)))]
        messages += [closed(self._topic, self._topic_id, self._partition, name) for name in over]
        return tuple(messages)

    def ended(self, record: Record) -> tuple[Message, ...]:
        """This request has ended: what has to be written with that."""
        self.release(record)
        self._leave(_spot(record))
        return self.take(record.key)

    # --- what partitions share ------------------------------------------------------------------------------------------------------

    def trade(self, wall: float) -> tuple[Message, ...]:
        """What has to be said to owners of other partitions now, in a transaction of its own."""
        if not self._budgets.has_shared:
            return ()
        if wall - self._swept_at >= SWEEP_S:
            self._sweep(wall)
        said: list[Message] = []
        for name in dict.fromkeys((*self._board.wanted, *self._waited)):
            if (pool := self._pool_named(name)) is not None:
                account = self._account_of(pool, wall)
                rights, left = pool.trade(account, wall)
                if left != account:
                    self._put(left)
                if rights is not None:
                    said.append(rights.message(self._control, self._topic_id))
                    self._over.pop(name, None)
        over = [self._over.popitem()[0] for _ in range(min(CLOSED_MAX, len(self._over)))]
        said += [shared.closed(self._control, self._topic_id, self._partition, name) for name in over]
        return (*said, *self.take(b"")) if said else ()

    def payable(self, wall: float) -> list[bytes | None]:
        """The lane keys of requests that waited for others' part, and are to ask again now."""
        found: list[bytes | None] = []
        for pool in tuple(self._waited.values()):
            found += pool.payable(self._account_of(pool, wall))
            if not pool.is_waited_for:
                del self._waited[pool.name]
        return found

    def _leave(self, spot: Spot) -> None:
        """This request waits for nobody's part any more."""
        for pool in self._lacking.pop(spot, (0.0, ()))[1] if self._lacking else ():
            pool.leave(spot)

    def _pool_named(self, name: str) -> Pool | None:
        """A pool that somebody wants rights of; its budget is said with that. None where nothing of that name is shared here."""
        told = next(iter(self._board.all(name).values()), None)
        budget = None if told is None else self._budgets.named(told.budget)
        known = self._pools.get(name)
        return self._pool(name, budget) if known is None and budget is not None and budget.of.is_shared else known

    def _pool(self, name: str, budget: Budget) -> Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(name, budget, self._partition, self._partitions, self._board)
        return pool

    # --- accounts -------------------------------------------------------------------------------------------------------------------

    def _payers(self, request: Request) -> Iterator[_Payer]:
        """Who pays for a call of this request."""
        key, alias, agent = request.record.key, request.claim.credential, request.agent
        if key is not None and (budget := self._budgets.of(key)) is not None:
            yield _Payer(account_name(key), KEY, budget)
        if (budget := self._budgets.of_credential(alias)) is not None:
            name = account_name((alias or "").encode(), CREDENTIAL)
            yield _Payer(name, CREDENTIAL, budget, self._pool(name, budget))
        if (budget := self._budgets.of_agent(agent)) is not None:
            name = account_name(agent.encode(), AGENT)
            yield _Payer(name, AGENT, budget, self._pool(name, budget))

    def _answer(self, payer: _Payer, wall: float) -> tuple[Answer, float]:
        """What its budget says to a call of this request; and until when, where it is spent."""
        account = self._account(payer, wall)
        if payer.pool is not None:
            return payer.pool.ask(account, wall), payer.pool.until(wall)
        left, reserve = payer.budget.left(account), payer.budget.of.reserve_usd
        answer = Answer.PAYS if left >= reserve else Answer.LACKS if left + account.reserved >= reserve else Answer.SPENT
        return answer, payer.budget.begin(account.period + 1)

    def _account(self, payer: _Payer, wall: float) -> Account:
        """The account that counts now."""
        if payer.pool is not None:
            return self._account_of(payer.pool, wall)
        known = self._accounts.get(payer.name)
        account = payer.budget.current(known, payer.name, wall)
        if known is not None and account.period < known.period:
            self._put(account)
        return account

    def _account_of(self, pool: Pool, wall: float) -> Account:
        """The account of a pool that counts now: of the day of which its rights are."""
        known = self._accounts.get(pool.name)
        of_day = known if known is not None and known.last >= pool.period else Account(pool.name, pool.period)
        account = pool.budget.current(of_day, pool.name, wall)
        pool.begin(account.period)
        if known is not None and account.period < known.period:
            self._put(account)
        return account

    def _put(self, account: Account) -> None:
        self._accounts[account.name] = account
        (self._changed_pools if account.name in self._pools else self._changed)[account.name] = None
        self._stale.pop(account.name, None)  # it is written anew

    def _sweep(self, wall: float) -> None:
        """Close accounts whose period is over by two days, whatever their budget's day: their keys may never come again."""
        over = [name for name, account in self._accounts.items() if _is_over(account.last, wall) and not account.reserved]
        for name in over:
            del self._accounts[name]
            self._changed.pop(name, None)
            self._changed_pools.pop(name, None)
        self._stale |= dict.fromkeys(over)
        for name in [name for name, pool in self._pools.items() if _is_over(pool.period, wall) and not pool.is_waited_for]:
            del self._pools[name]
        for told in self._board.told_by(self._partition) if self._budgets.has_shared else ():
            if _is_over(told.period, wall):
                self._over[told.name] = None
        self._swept_at = wall


def _spot(record: Record) -> Spot:
    return record.topic, record.offset


def _is_over(period: int, wall: float) -> bool:
    return (period + 2) * DAY_S < wall
