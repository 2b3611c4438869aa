"""What lane keys have left of their budgets, by what workers have committed. Facts in, balances out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dispatcher.core.instant import Instant
from dispatcher.core.internal.account import Account, account_name
from dispatcher.core.internal.budget import Budgets
from dispatcher.core.messages.usage import usd_text


@dataclass(frozen=True, slots=True)
class Balance:
    """Of one key's day, in US dollars. `until`: when the next day begins, seconds since 1970.

    `reserved` is set aside for a call in flight, or was for one of a worker that died; `left` is less than 0 where a call has cost more
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
    """Those of a moment, `wall`. `accounts` by their names."""

    def __init__(self, budgets: Budgets, accounts: Mapping[str, Account], wall: float) -> None:
        self._budgets = budgets
        self._accounts = accounts
        self._wall = wall

    def of(self, key: bytes | None) -> Balance | None:
        """That of a key; None where it has no budget."""
        budget = self._budgets.of(key)
        if budget is None or key is None:
            return None
        name = account_name(key)
        account = budget.current(self._accounts.get(name), name, self._wall)
        until = budget.begin(account.period + 1)
        return Balance(budget.name, budget.of.usd_per_day, account.settled, account.reserved, budget.left(account), until)
