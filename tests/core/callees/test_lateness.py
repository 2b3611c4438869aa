"""What the time that a call took says of when it came to its callee."""

from __future__ import annotations

import pytest

from dispatcher.core.callees.lateness import CALLS, CALLS_MIN, Lateness


def test_one_that_takes_longer_than_all_others_may_have_come_later() -> None:
    """By so much; one that took as long as the others came as they did."""
    of = Lateness(0.01)
    assert [0.0] * CALLS_MIN == [of.late_by(0.1 + n / 10_000) for n in range(CALLS_MIN)]
    assert pytest.approx(0.04, abs=0.001) == of.late_by(0.14)
    assert pytest.approx(0, abs=0.001) == of.late_by(0.1)


def test_where_calls_are_of_any_length_little_is_believed() -> None:
    """As with models: no more than the margin."""
    of = Lateness(0.01)
    assert {0.0, 0.01} == {of.late_by(1 + n % 5) for n in range(CALLS)}


def test_what_is_usual_follows_the_callee() -> None:
    """It has become slower for good: that is no lateness after a while."""
    of = Lateness(0.01)
    for took_s in (0.1, 0.3):
        for _ in range(CALLS):
            of.late_by(took_s)
    assert 0 == of.late_by(0.3)
