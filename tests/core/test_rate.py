from __future__ import annotations

import pytest

from dispatcher.core.rate import Pace, parse_rate


@pytest.mark.parametrize(("text", "per_s"), [("5/s", 5), ("300/m", 5), ("3600/h", 1), ("0.5/s", 0.5), (" 1/s ", 1)])
def test_a_rate_is_so_many_a_second(text: str, per_s: float) -> None:
    """A rate is a number and a unit of time."""
    assert per_s == parse_rate(text)


@pytest.mark.parametrize("text", ["", "5", "5/", "/s", "0/s", "-1/s", "1e3/s", "5/d", "٣/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """A rate of nothing would never end; what is not understood is not guessed."""
    with pytest.raises(ValueError, match="not a rate"):
        parse_rate(text)


def test_without_a_rate_nothing_waits() -> None:
    """As fast as it goes: whole groups, no wait."""
    pace = Pace(None)
    pace.went(500, 10.0)
    assert (500, 0.0) == (pace.group_max(500), pace.wait_s(10.0))


def test_a_pace_waits_and_does_not_catch_up() -> None:
    """At 5 a second the next one goes 0.2 s later; after a minute of trouble no burst follows."""
    pace = Pace(5)
    assert (1, 0.0) == (pace.group_max(500), pace.wait_s(100.0))
    pace.went(1, 100.0)
    assert pytest.approx(0.2) == pace.wait_s(100.0)
    assert 0.0 == pace.wait_s(160.0)
    pace.went(1, 160.0)
    assert pytest.approx(0.2) == pace.wait_s(160.0)


def test_fast_rates_go_in_groups() -> None:
    """At 1,000 a second a tenth of a second's worth goes together."""
    assert (100, 500) == (Pace(1000).group_max(500), Pace(1_000_000).group_max(500))
