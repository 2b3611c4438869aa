"""Backoff: full jitter under a ceiling that doubles and is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.backoff import delay_s

CHANCE = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("failures", "ceiling"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (100, 30)])
def test_the_ceiling_doubles_from_one_to_thirty_seconds(failures: int, ceiling: float) -> None:
    """1, 2, 4, 8, 16, 30, 30 … seconds with the defaults; chance chooses below it."""
    assert ceiling / 2 == delay_s(failures, 0.5, 1, 30)
    assert delay_s(failures, 0.0, 1, 30) == 0


@given(st.integers(1, 10_000), CHANCE, st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_the_wait_is_bounded_for_any_number_of_failures(failures: int, chance: float, base_s: float, max_s: float) -> None:
    """Never negative, never over either bound, never an overflow."""
    wait = delay_s(failures, chance, base_s, max_s)
    assert 0 <= wait <= max_s
    assert wait <= base_s * 2.0 ** min(failures - 1, 60)


@given(st.integers(1, 100), CHANCE)
def test_more_failures_wait_no_less(failures: int, chance: float) -> None:
    """For the same chance the wait grows with the failures."""
    assert delay_s(failures, chance, 1, 30) <= delay_s(failures + 1, chance, 1, 30)
