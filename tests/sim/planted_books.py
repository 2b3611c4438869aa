"""Faults planted into the one book of budgets that the topics of all classes have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dispatcher.core.internal.account import Account
from dispatcher.core.lanes import ledger
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.pool import Answer
from dispatcher.worker.exchange import Exchange
from tests.sim.planted import DEATHS, ONCE, Planted
from tests.sim.planted_classes import CLASSED


def _a_book_for_each_class(patch: pytest.MonkeyPatch) -> None:
    came = Exchange.came

    def alone(self: Exchange, partition: Partition) -> None:
        own = partition.ledger
        came(self, partition)
        partition.ledger = own
        own.join(self._board)

    patch.setattr(Exchange, "came", alone)


def _whoever_is_restored_last_is_right(patch: pytest.MonkeyPatch) -> None:
    restore = Ledger.restore

    def restored(self: Ledger, accounts: Iterable[Account], wall: float) -> None:
        self._is_restored = False
        restore(self, accounts, wall)

    patch.setattr(Ledger, "restore", restored)


def _accounts_of_the_own_class(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.worker.state_log.book_of", lambda topic_id_text, **_: topic_id_text)


def _one_offset_one_request(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_spot", lambda record: ("", record.offset))


def _what_is_in_flight_is_spent(patch: pytest.MonkeyPatch) -> None:
    answer = Ledger._answer

    def hasty(self: Ledger, payer: Any, wall: float) -> tuple[Answer, float]:
        found, until = answer(self, payer, wall)
        return (Answer.SPENT if found is Answer.LACKS and payer.pool is None else found), until

    patch.setattr(Ledger, "_answer", hasty)


BOTH = (*CLASSED, *ONCE, ("budgets", True))
BOOKS = [
    Planted("a book for each class", _a_book_for_each_class, "DayBudget", BOTH),
    Planted("a shared book for each class", _a_book_for_each_class, "SharedBudget", (*BOTH, ("shared", True))),
    Planted("whoever is restored last is right", _whoever_is_restored_last_is_right, "DayBudget", BOTH, DEATHS),
    Planted("accounts of the own class", _accounts_of_the_own_class, "DayBudget", BOTH, DEATHS),
    Planted("one offset is one request", _one_offset_one_request, "DayBudget", BOTH),
    Planted("what is in flight is spent", _what_is_in_flight_is_spent, "NothingLost", BOTH),
]
