"""What lane keys, credentials and agents may spend, and in which days: the budget that is for one, and the account that counts now."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from dispatcher.core.internal.account import AGENT, CREDENTIAL, KEY, Account, Scope
from dispatcher.settings import BudgetSettings

DAY_S = 86_400
_HOUR_S = 3600
# Keys whose budget is remembered.
_KEYS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Budget:
    """What each that it is for may spend in a day, in US dollars. A period is the number of a day; times are seconds since 1970."""

    name: str
    of: BudgetSettings

    def period(self, wall: float) -> int:
        """The day that it is."""
        return math.floor((wall - self.of.day_starts_at_h * _HOUR_S) / DAY_S)

    def begin(self, period: int) -> float:
        """When a day begins."""
        return period * DAY_S + self.of.day_starts_at_h * _HOUR_S

    def current(self, known: Account | None, name: str, wall: float) -> Account:
        """The account of that `name` that counts now, by the one that is known: a new day begins with a new one.

        Clocks of two owners differ, and a clock may step: an account of tomorrow counts today. One of a later day is of a clock that was
        wrong. What it says is counted no longer than until tomorrow has ended, else nothing of it would be called for years; and again on
        the day that it was of, where it is today's clock that was wrong.
        """
        today = self.period(wall)
        if known is None:
            return Account(name, today)
        if known.period < today:
            return replace(known, period=known.was) if today <= known.was <= today + 1 else Account(name, today)
        return known if known.period <= today + 1 else replace(known, period=today + 1, was=known.last)

    def left(self, account: Account) -> Decimal:
        """What the day of an account has left: less than 0 where a call has cost more than its reserve."""
        return self.of.usd_per_day - account.spent


class Budgets:
    """All that are configured."""

    def __init__(self, of: Mapping[str, BudgetSettings]) -> None:
        self._budgets = {name: Budget(name, budget) for name, budget in of.items()}
        self._of = lru_cache(_KEYS_MAX)(self._find)
        self.has_shared = any(budget.is_shared for budget in of.values())

    def __len__(self) -> int:
        return len(self._budgets)

    def named(self, name: str) -> Budget | None:
        """The one that the configuration calls so."""
        return self._budgets.get(name)

    def of(self, key: bytes | None) -> Budget | None:
        """The one that names most of a key: all of it, or its longest beginning. None where none does."""
        return self._of(KEY, key.decode("utf-8", "surrogateescape")) if self._budgets and key is not None else None

    def of_credential(self, alias: str | None) -> Budget | None:
        """The one that names most of a credential's alias; None where none does, or nobody's credential is sent."""
        return self._of(CREDENTIAL, alias) if self.has_shared and alias is not None else None

    def of_agent(self, name: str) -> Budget | None:
        """The one that names most of an agent's name; those that do not say who they are (an empty name) are one agent."""
        return self._of(AGENT, name) if self.has_shared else None

    def _find(self, scope: Scope, text: str) -> Budget | None:
        fits = [(_told(pattern, text), budget) for budget in self._budgets.values() for pattern in _patterns(budget.of, scope)]
        best = max(fits, key=lambda fit: fit[0], default=None)
        return best[1] if best is not None and best[0] >= 0 else None


def _patterns(of: BudgetSettings, scope: Scope) -> tuple[str, ...]:
    return {KEY: of.keys, CREDENTIAL: of.credentials, AGENT: of.agents}[scope]


def _told(pattern: str, text: str) -> int:
    """How much of a name a pattern tells; -1 where it is another's."""
    if pattern.endswith("*"):
        return len(pattern) - 1 if text.startswith(pattern[:-1]) else -1
    return len(text) + 1 if pattern == text else -1
