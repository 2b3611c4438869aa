"""The examples in the guarantees' docstrings are true: legal histories pass, illegal ones are named."""

from __future__ import annotations

import doctest

from tests.guarantees import judges


def test_legal_histories_pass_and_illegal_ones_are_named() -> None:
    """Every docstring example, run."""
    result = doctest.testmod(judges)
    assert 15 <= result.attempted
    assert 0 == result.failed
