"""The tests are tested: faults planted into the worker, each of which the guarantees must find within 500 seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.plan import draw
from tests.sim.planted import PLANTED, Planted
from tests.sim.planted_budgets import BUDGETS
from tests.sim.planted_duplicates import DUPLICATES
from tests.sim.planted_limits import LIMITS
from tests.sim.planted_timeouts import TIMEOUTS
from tests.sim.planted_tries import TRIES
from tests.sim.world import run

SEEDS_MAX = 500


@pytest.mark.parametrize("planted", [*PLANTED, *BUDGETS, *DUPLICATES, *TIMEOUTS, *TRIES, *LIMITS], ids=str)
def test_a_planted_fault_is_found_within_500_seeds(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some world of 500 breaks the guarantee that this fault is about."""
    planted.plant(monkeypatch)
    found: set[str] = set()
    for seed in range(SEEDS_MAX):
        plan = draw(seed, **dict(planted.fixed))
        broken = {finding.partition(":")[0] for finding in run(replace(plan, faults=plan.faults + planted.faults)).findings}
        if planted.breaks in broken:
            return
        found |= broken
    raise AssertionError(f"{planted.breaks} was not broken in {SEEDS_MAX} worlds, only {sorted(found)}")
