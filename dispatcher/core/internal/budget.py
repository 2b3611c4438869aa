"""What lane keys may spend, and in which days: the budget that is for a key, and the account of it that counts now."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from dispatcher.core.internal.account import Account
from dispatcher.settings import BudgetSettings

DAY_S = 86_400
_HOUR_S = 3600
# Keys whose budget is remembered.
_KEYS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Budget:
    """What each of its keys may spend in a day, in US dollars. A period is the number of a day; times are seconds since 1970."""

    name: str
    of: BudgetSettings

    def period(self, wall: float) -> int:
        """The day that it is."""
        return math.floor((wall - self.of.day_starts_at_h * _HOUR_S) / DAY_S)

    def begin(self, period: int) -> float:
        """When a day begins."""
        return period * DAY_S + self.of.day_starts_at_h * _HOUR_S

    def current(self, known: Account | None, name: str, wall: float) -> Account:
        """The account of the key of that `name` that counts now, by the one that is known: a new day begins with a new one.

        Clocks of two owners differ, and a clock may step: an account of tomorrow counts today. One of a later day is of a clock that was
        wrong. What it says is counted no longer than until tomorrow has ended, else nothing of its key would be called for years.
        """
        today = self.period(wall)
        if known is None or known.period < today:
            return Account(name, today)
        return known if known.period <= today + 1 else replace(known, period=today + 1)

    def left(self, account: Account) -> Decimal:
        """What the day of an account has left: less than 0 where a call has cost more than its reserve."""
        return self.of.usd_per_day - account.spent


class Budgets:
    """All that are configured."""

    def __init__(self, of: Mapping[str, BudgetSettings]) -> None:
        self._budgets = {name: Budget(name, budget) for name, budget in of.items()}
        self._of_key = lru_cache(_KEYS_MAX)(self._find)

    def of(self, key: bytes | None) -> Budget | None:
        """The one that names most of a key: all of it, or its longest beginning. None where none does."""
        return self._of_key(key) if self._budgets and key is not None else None

    def _find(self, key: bytes) -> Budget | None:
        text = key.decode("utf-8", "surrogateescape")
        fits = [(_told(pattern, text), budget) for budget in self._budgets.values() for pattern in budget.of.keys]
        best, budget = max(fits, key=lambda fit: fit[0])
        return budget if best >= 0 else None


def _told(pattern: str, text: str) -> int:
    """How much of a key a pattern names; -1 where it is not of that key."""
    if pattern.endswith("*"):
        return len(pattern) - 1 if text.startswith(pattern[:-1]) else -1
    return len(text) + 1 if pattern == text else -1
