"""Faults planted into the limits of calls: too many begin, or those who wait are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees import lending
from dispatcher.core.callees.concurrency import Concurrency
from dispatcher.core.callees.finding import Finding, Known
from dispatcher.core.callees.gate import Gate, Pass
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.meter import Entry, Meter
from dispatcher.core.callees.reservation import Reservation
from dispatcher.core.callees.shares import Shares, _Other
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

    def unless_cut(self: Reservation, finding: Finding | None, *rest: Any, **more: Any) -> None:
        if finding is not None and finding.known is Known.ANSWERED:
            end(self, finding, *rest, **more)

    patch.setattr(Reservation, "end", unless_cut)


def _refusals_that_leave_nothing(patch: pytest.MonkeyPatch) -> None:
    refused: set[Limit] = set()
    free_at = Limit.free_at

    def never_again(self: Limit, _: float, __: float) -> None:
        refused.add(self)

    def unless_refused(self: Limit, tokens: int, now: float) -> float | None:
        return None if self in refused else free_at(self, tokens, now)

    patch.setattr(Limit, "refuse", never_again)
    patch.setattr(Limit, "free_at", unless_refused)


def _each_has_all_of_it(patch: pytest.MonkeyPatch) -> None:
    def part(self: Shares, name: str, now: float) -> int:
        return self.quantities[name].total if now < self.lease_until else 0

    patch.setattr(Shares, "part", part)


def _claimed_and_used_at_once(patch: pytest.MonkeyPatch) -> None:
    def part(self: Shares, name: str, now: float) -> int:
        return self._told[name].claim if name in self._told and now < self.lease_until else 0

    patch.setattr(Shares, "part", part)


def _calls_of_the_dead_forgotten(patch: pytest.MonkeyPatch) -> None:
    def claim(self: _Other, name: str, at: float) -> int:
        stake = self.stakes.of.get(name)
        return 0 if stake is None or not self.is_alive(at) else stake.claim

    patch.setattr(_Other, "claim", claim)


def _who_is_parked_wants_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "put_aside", Gate.leave)
    patch.setattr(lending, "REMEMBERED_S", 0.0)


LIMITS = [
    Planted("refunded whatever came of it", _refunded_whatever_came_of_it, "WithinLimits", BY_KEY),
    Planted("counted when it was let through", _counted_when_it_was_let_through, "WithinLimits", BY_KEY),
    Planted("calls that take no place", _calls_that_take_no_place, "WithinLimits", BY_KEY),
    Planted("place kept by who was cut off", _place_kept_by_who_was_cut_off, "NothingStuck", BY_KEY),
    Planted("refusals that leave nothing", _refusals_that_leave_nothing, "NothingStuck", BY_KEY),
    Planted("each has all of it", _each_has_all_of_it, "WithinLimits", BY_KEY),
    Planted("claimed and used at once", _claimed_and_used_at_once, "WithinLimits", BY_KEY),
    Planted("calls of the dead forgotten", _calls_of_the_dead_forgotten, "WithinLimits", BY_KEY),
    Planted("who is parked wants nothing", _who_is_parked_wants_nothing, "NothingStuck", BY_KEY),
]
