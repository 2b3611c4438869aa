"""Faults planted into what partitions say to each other of a budget that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.rights import NOTHING, Board, Rights
from dispatcher.core.lanes import ledger
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.pool import Pool
from dispatcher.core.messages.request import Request
from tests.sim.planted import DEATHS, Planted

SHARED = (("publishing", "exactly_once"), ("shared", True))


def _counted_twice(patch: pytest.MonkeyPatch) -> None:
    put = Board._put

    def more(self: Board, told: Rights) -> None:
        before = self.of(told.name, told.partition)
        put(self, told)
        if before is not None and before.given:
            doubled = {n: amount + before.given.get(n, NOTHING) for n, amount in told.given.items()}
            self._rights[told.name][told.partition] = replace(self._rights[told.name][told.partition], given=doubled)

    patch.setattr(Board, "_put", more)


def _one_account_only(patch: pytest.MonkeyPatch) -> None:
    """Of several who pay the first alone has its reserve set aside."""
    reserve, payers = Ledger.reserve, Ledger._payers

    def first(self: Ledger, request: Request) -> Iterator[Any]:
        yield from [*payers(self, request)][:1]

    def reserved(self: Ledger, request: Request, wall: float) -> None:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(Ledger, "_payers", first)
            reserve(self, request, wall)

    patch.setattr(Ledger, "reserve", reserved)


def _heirs_know_no_gifts(patch: pytest.MonkeyPatch) -> None:
    of, restore = Board.of, Ledger.restore

    def ungiven(self: Board, name: str, partition: int) -> Rights | None:
        found = of(self, name, partition)
        return None if found is None else replace(found, given={})

    def restored(self: Ledger, accounts: Iterable[Account], wall: float) -> None:
        restore(self, [replace(account, given=NOTHING) for account in accounts], wall)

    patch.setattr(Board, "of", ungiven)
    patch.setattr(Ledger, "restore", restored)


def _given_and_kept(patch: pytest.MonkeyPatch) -> None:
    left = Pool.left

    def whole(self: Pool, account: Account) -> Decimal:
        return left(self, account) + max(account.given, sum(self.mine.given.values(), NOTHING))

    patch.setattr(Pool, "left", whole)


def _each_has_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.core.lanes.pool.share", lambda usd, *_: usd)


def _nobody_answers(patch: pytest.MonkeyPatch) -> None:
    said = Pool._said

    def silent(self: Pool) -> Rights | None:
        self.mine = replace(self.mine, answers={})
        return said(self)

    patch.setattr(Pool, "_said", silent)


def _shared_accounts_unwritten(patch: pytest.MonkeyPatch) -> None:
    take = ledger.Ledger.take

    def of_keys(self: Ledger, key: bytes | None) -> Any:
        self._changed_pools.clear()
        return take(self, key)

    patch.setattr(Ledger, "take", of_keys)


POOLS = [
    Planted("rights counted twice", _counted_twice, "SharedBudget", SHARED),
    Planted("one account only", _one_account_only, "SharedBudget", SHARED),
    Planted("heirs know of no gifts", _heirs_know_no_gifts, "SharedBudget", SHARED, DEATHS),
    Planted("given and kept", _given_and_kept, "SharedBudget", SHARED),
    Planted("each partition has all of it", _each_has_all, "SharedBudget", SHARED),
    Planted("nobody answers", _nobody_answers, "NothingLost", SHARED),
    Planted("shared accounts unwritten", _shared_accounts_unwritten, "SharedBudget", SHARED, DEATHS),
]
