"""Faults planted into what is kept of what keys spend."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from dispatcher.core.internal.account import account_name
from dispatcher.core.internal.budget import Budget
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.messages.record import Message, Record
from tests.guarantees.budgets import CALL_CENTS
from tests.sim.planted import DEATHS, ONCE, Planted

CALL = Decimal(CALL_CENTS) / 100


def _accounts_unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "restore", lambda *_: None)


def _unknown_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.core.lanes.passage.cost_of_call", lambda _, used: Decimal(0) if used is None else used.cost)


def _reserve_unwritten(patch: pytest.MonkeyPatch) -> None:
    take = Ledger.take

    def only_what_is_settled(self: Ledger, key: bytes | None) -> tuple[Message, ...]:
        return () if self._for else take(self, key)

    patch.setattr(Ledger, "take", only_what_is_settled)


def _reserve_of_nothing(patch: pytest.MonkeyPatch) -> None:
    ask = Ledger.ask

    def spent(self: Ledger, *asked: Any, **how: Any) -> Any:
        found = ask(self, *asked, **how)
        is_less = self._accounts and all(one.spent < 2 * CALL for one in self._accounts.values())
        return None if is_less else found

    patch.setattr(Ledger, "ask", spent)


def _given_back_by_whoever_ends(patch: pytest.MonkeyPatch) -> None:
    def released(self: Ledger, record: Record) -> tuple[Message, ...]:
        name = account_name(record.key or b"")
        if (account := self._accounts.get(name)) is not None:
            self._put(replace(account, reserved=Decimal(0), settled=max(Decimal(0), account.settled - CALL)))
        return self.take(record.key)

    patch.setattr(Ledger, "ended", released)


def _a_day_too_long(patch: pytest.MonkeyPatch) -> None:
    begin = Budget.begin
    patch.setattr(Budget, "begin", lambda self, period: begin(self, period + 1))


BUDGETS = [
    Planted("accounts unread", _accounts_unread, "DayBudget", ONCE, DEATHS),
    Planted("what nobody can price is free", _unknown_is_free, "DayBudget", ONCE),
    Planted("reserve unwritten", _reserve_unwritten, "DayBudget", ONCE, DEATHS),
    Planted("called while anything is left", _reserve_of_nothing, "DayBudget", ONCE),
    Planted("given back by whoever ends", _given_back_by_whoever_ends, "DayBudget", ONCE),
    Planted("waits for the day after", _a_day_too_long, "NothingLost", ONCE),
]
