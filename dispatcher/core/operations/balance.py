"""What lane keys, credentials and agents have left of their budgets, by what workers have committed. Facts in, balances out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dispatcher.core.instant import Instant
from dispatcher.core.internal.account import AGENT, CREDENTIAL, Account, account_name
from dispatcher.core.internal.budget import Budget, Budgets
from dispatcher.core.messages.usage import usd_text


@dataclass(frozen=True, slots=True)
class Balance:
    """Of the day of one key, credential or agent, in US dollars. `until`: when the next day begins, seconds since 1970.

    `reserved` is set aside for calls in flight, or was for those of a worker that died; `left` is less than 0 where a call has cost more
    than its reserve.
    """

    budget: str
    usd_per_day: Decimal
    settled: Decimal
    reserved: Decimal
    left: Decimal
    until: float

    def fields(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return {
            "name": self.budget,
            "usd_per_day": usd_text(self.usd_per_day),
            "settled_usd": usd_text(self.settled),
            "reserved_usd": usd_text(self.reserved),
            "left_usd": usd_text(self.left),
            "until": Instant(0, self.until).rfc3339(),
        }


class Balances:
    """Those of a moment, `wall`. `accounts` by their names, those of all partitions together."""

    def __init__(self, budgets: Budgets, accounts: Mapping[str, Account], wall: float) -> None:
        self._budgets = budgets
        self._accounts = accounts
        self._wall = wall

    def of(self, key: bytes | None) -> Balance | None:
        """That of a key; None where it has no budget."""
        return None if key is None else self._of(self._budgets.of(key), account_name(key))

    def of_credential(self, alias: str) -> Balance | None:
        """That of a credential; None where it has no budget."""
        return self._of(self._budgets.of_credential(alias), account_name(alias.encode(), CREDENTIAL))

    def of_agent(self, agent: str) -> Balance | None:
        """That of an agent, an empty name for those that do not say who they are; None where it has no budget."""
        return self._of(self._budgets.of_agent(agent), account_name(agent.encode(), AGENT))

    def _of(self, budget: Budget | None, name: str) -> Balance | None:
        if budget is None:
            return None
        account = budget.current(self._accounts.get(name), name, self._wall)
        until = budget.begin(account.period + 1)
        return Balance(budget.name, budget.of.usd_per_day, account.settled, account.reserved, budget.left(account), until)
