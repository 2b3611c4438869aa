"""The examples in the guarantees' docstrings are true: legal histories pass, illegal ones are named."""

from __future__ import annotations

import doctest

from tests.guarantees import budgets, call_times, copies, duplicates, fairness, judges, lanes, limits


def test_legal_histories_pass_and_illegal_ones_are_named() -> None:
    """Every docstring example, run."""
    results = [doctest.testmod(module) for module in (lanes, judges, copies, duplicates, call_times, fairness, limits, budgets)]
    assert [0] * 8 == [result.failed for result in results]
    assert all(result.attempted >= 4 for result in results)
