"""What the lane keys of a partition have spent, and whether a call of one may begin.

A key belongs to one partition, so that its owner knows all that it spends. Before a call its reserve is set aside, and that stands in the
state topic before the call begins; its end puts the real cost there, in the transaction of the reply or of the attempt's note. A worker
that dies in between leaves the reserve, which counts as spent: too much may be counted so, never too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from dispatcher.core.internal.account import Account, account_name, closed
from dispatcher.core.internal.budget import DAY_S, Budget, Budgets
from dispatcher.core.messages.record import Message, Record
from dispatcher.settings import Settings

# Why a lane stands whose key has spent its budget.
BUDGET = "budget"
# How often accounts of former periods are looked for.
SWEEP_S = 3600
# Accounts of a former period that one record takes along into their end: they are few for each call, and all go within some of them.
CLOSED_MAX = 20
_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Spent:
    """No call may begin: the budget does not pay for it before `until`, seconds since 1970. `waits`: the lane is to wait for that."""

    budget: str
    until: float
    waits: bool


class Ledger:
    """Owned by one Partition. Times are wall clock, seconds since 1970; money is in US dollars."""

    __slots__ = ("_accounts", "_budgets", "_changed", "_for", "_partition", "_stale", "_swept_at", "_topic", "_topic_id")

    def __init__(self, settings: Settings, topic_id_text: str, partition: int) -> None:
        self._budgets = Budgets(settings.budgets)
        self._topic = settings.topics.state
        self._topic_id = topic_id_text
        self._partition = partition
        self._accounts: dict[str, Account] = {}
        self._changed: dict[str, None] = {}  # accounts that are not handed out as they are
        self._for: dict[str, int] = {}  # the offset of the request that a reserve is set aside for
        self._stale: dict[str, None] = {}  # accounts of former periods, which stand in the topic still
        self._swept_at = -math.inf

    def __len__(self) -> int:
        return len(self._accounts)

    def restore(self, accounts: Iterable[Account], wall: float) -> None:
        """What former owners have noted. What was set aside for a call of theirs is spent: nobody knows what it has cost."""
        for account in accounts:
            self._accounts[account.name] = replace(account, settled=account.spent, reserved=_NOTHING)
        self._sweep(wall)

    def is_for(self, key: bytes | None) -> bool:
        """Whether this key has a budget."""
        return self._budgets.of(key) is not None

    def ask(self, record: Record, wall: float) -> Spent | None:
        """Whether a call of this request may not begin now, and until when; one for which something is set aside may."""
        budget = self._budgets.of(record.key)
        if budget is None or record.key is None or self._has_reserve(record):
            return None
        account = self._account(record.key, budget, wall)
        if budget.left(account) >= budget.of.reserve_usd:
            return None
        return Spent(budget.name, budget.begin(account.period + 1), budget.of.when_spent == "wait")

    def reserve(self, record: Record, wall: float) -> None:
        """A call of this request is about to begin, and may: the reserve of its key is set aside."""
        budget = self._budgets.of(record.key)
        if budget is None or record.key is None:
            return
        if wall - self._swept_at >= SWEEP_S:
            self._sweep(wall)
        account = self._account(record.key, budget, wall)
        self._for[account.name] = record.offset
        self._put(replace(account, settled=account.spent, reserved=budget.of.reserve_usd))

    def is_over(self, record: Record, wall: float) -> bool:
        """Whether what is set aside for a call of this request is of a day that is over: it is not to begin at the new day's expense."""
        budget = self._budgets.of(record.key) if self._has_reserve(record) else None
        return budget is not None and self._accounts[account_name(record.key or b"")].period < budget.period(wall)

    def settle(self, record: Record, cost: Decimal | None) -> None:
        """The call of this request has ended, and cost so much; None where nobody knows: then it cost its reserve.

        Nothing happens where nothing is set aside for this request.
        """
        if not self._has_reserve(record):
            return
        name = account_name(record.key or b"")
        del self._for[name]
        account = self._accounts[name]
        settled = account.settled + (account.reserved if cost is None else cost)
        self._put(replace(account, settled=settled, reserved=_NOTHING))

    def release(self, record: Record) -> None:
        """What is set aside for this request still is so for a call that is not made: it has cost nothing."""
        self.settle(record, _NOTHING)

    def take(self, key: bytes | None) -> tuple[Message, ...]:
        """What has to be written of this key's account, in the next transaction that says anything of it; and of accounts that are over."""
        if key is None or not (self._changed or self._stale):
            return ()
        messages = []
        if (name := account_name(key)) in self._changed:
            del self._changed[name]
            messages.append(self._accounts[name].message(self._topic, self._topic_id, self._partition))
        while self._stale and len(messages) < CLOSED_MAX:
            messages.append(closed(self._topic, self._topic_id, self._partition, self._stale.popitem()[0]))
        return tuple(messages)

    def ended(self, record: Record) -> tuple[Message, ...]:
        """This request has ended: what has to be written with that."""
        self.release(record)
        return self.take(record.key)

    def _has_reserve(self, record: Record) -> bool:
        return bool(self._for) and record.key is not None and self._for.get(account_name(record.key)) == record.offset

    def _account(self, key: bytes, budget: Budget, wall: float) -> Account:
        """The key's account that counts now."""
        name = account_name(key)
        known = self._accounts.get(name)
        account = budget.current(known, name, wall)
        if known is not None and account.period < known.period:
            self._put(account)
        return account

    def _put(self, account: Account) -> None:
        self._accounts[account.name] = account
        self._changed[account.name] = None
        self._stale.pop(account.name, None)  # it is written anew

    def _sweep(self, wall: float) -> None:
        """Close accounts whose period is over by two days, whatever their budget's day: their keys may never come again."""
        over = [name for name, account in self._accounts.items() if (account.period + 2) * DAY_S < wall and not account.reserved]
        for name in over:
            del self._accounts[name]
            self._changed.pop(name, None)
        self._stale |= dict.fromkeys(over)
        self._swept_at = wall
