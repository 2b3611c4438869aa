"""Making a failing plan smaller: whatever can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.sim.plan import Plan

# Each try runs a world (about 20 ms).
TRIES_MAX = 400


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Give a smallest plan on the way that still fails; `plan` does."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            tries += 1
            if tries > TRIES_MAX:
                return plan
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Give plans with less in them, the boldest cuts first."""
    for name in ("faults", "orders", "outages", "writes", "starts"):
        whole = getattr(plan, name)
        size = len(whole)
        while size > 0:
            for at in range(0, len(whole), size):
                left = whole[:at] + whole[at + size :]
                if left or name in {"faults", "orders", "outages"}:
                    yield replace(plan, **{name: left})
            size //= 2
    for name in ("fails", "slow", "hangs", "long_hints"):
        if getattr(plan.manners, name):
            yield replace(plan, manners=replace(plan.manners, **{name: 0.0}))
    for i in range(len(plan.room)):
        yield replace(plan, room=plan.room[:i] + plan.room[i + 1 :])
