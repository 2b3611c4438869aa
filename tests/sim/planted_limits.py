"""Faults planted into the limits of calls: too many begin, or those who wait are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.concurrency import Concurrency
from dispatcher.core.callees.finding import Finding, Known
from dispatcher.core.callees.gate import Gate, Pass
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.meter import Entry, Meter
from dispatcher.core.callees.reservation import Reservation
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.messages.claim import Claim
from tests.sim.planted import BY_KEY, Planted


def _refunded_whatever_came_of_it(patch: pytest.MonkeyPatch) -> None:
    settle = Meter.settle

    def as_if_not_sent(self: Meter, entry: Entry, _: int, capacity: int, now: float) -> None:
        settle(self, entry, 0, capacity, now)

    patch.setattr(Meter, "settle", as_if_not_sent)


def _counted_when_it_was_let_through(patch: pytest.MonkeyPatch) -> None:
    enter = Gate.enter

    def at_once(self: Gate[Lane], waiter: Lane, claim: Claim, now: float) -> Pass | None:
        taken = enter(self, waiter, claim, now)
        if taken is not None:
            self.begin(taken, now)
        return taken

    patch.setattr(Gate, "enter", at_once)


def _calls_that_take_no_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Concurrency, "enter", lambda _: None)


def _place_kept_by_who_was_cut_off(patch: pytest.MonkeyPatch) -> None:
    end = Reservation.end

    def unless_cut(self: Reservation, finding: Finding | None, *rest: Any) -> None:
        if finding is not None and finding.known is Known.ANSWERED:
            end(self, finding, *rest)

    patch.setattr(Reservation, "end", unless_cut)


def _refusals_that_leave_nothing(patch: pytest.MonkeyPatch) -> None:
    def never_again(self: Limit, _: float, now: float) -> None:
        for dimension, _, _ in self.quantities():
            self.grant(dimension, 0, now)

    patch.setattr(Limit, "refuse", never_again)


LIMITS = [
    Planted("refunded whatever came of it", _refunded_whatever_came_of_it, "WithinLimits", BY_KEY),
    Planted("counted when it was let through", _counted_when_it_was_let_through, "WithinLimits", BY_KEY),
    Planted("calls that take no place", _calls_that_take_no_place, "WithinLimits", BY_KEY),
    Planted("place kept by who was cut off", _place_kept_by_who_was_cut_off, "NothingStuck", BY_KEY),
    Planted("refusals that leave nothing", _refusals_that_leave_nothing, "NothingStuck", BY_KEY),
]
