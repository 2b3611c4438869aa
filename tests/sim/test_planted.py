"""The tests are tested: faults planted into the worker, each of which the guarantees must find within 500 seeds."""

from __future__ import annotations

import pytest

from tests.sim.planted import PLANTED, Planted
from tests.sim.planted_books import BOOKS
from tests.sim.planted_budgets import BUDGETS
from tests.sim.planted_classes import CLASSES
from tests.sim.planted_duplicates import DUPLICATES
from tests.sim.planted_fairness import FAIRNESS
from tests.sim.planted_limits import LIMITS
from tests.sim.planted_shared import POOLS
from tests.sim.planted_timeouts import TIMEOUTS
from tests.sim.planted_tries import TRIES
from tests.sim.shown import SEEDS_MAX, broken, everything, shown


@pytest.mark.parametrize(
    "planted", [*PLANTED, *BUDGETS, *BOOKS, *POOLS, *CLASSES, *DUPLICATES, *FAIRNESS, *TIMEOUTS, *TRIES, *LIMITS], ids=str
)
def test_a_planted_fault_is_found_within_500_seeds(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some world of 500 breaks the guarantee that this fault is about."""
    planted.plant(monkeypatch)
    found: set[str] = set()
    for seed in dict.fromkeys((shown().get(str(planted), 0), *range(SEEDS_MAX))):
        if planted.breaks in (faults := broken(planted, seed)):
            return
        # Kept in another way than when it was planted, the place raises, and no judge has anything to find.
        assert "raised" not in faults, f"the fault itself raises in world {seed}"
        found |= faults
    raise AssertionError(f"{planted.breaks} was not broken in {SEEDS_MAX} worlds, only {sorted(found)}")


def test_a_world_that_is_looked_at_first_is_one_of_the_500() -> None:
    """The file names faults that there are, and their own worlds."""
    assert [] == [name for name, seed in shown().items() if name not in everything() or not 0 <= seed < SEEDS_MAX]
