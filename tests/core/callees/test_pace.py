"""How fast calls begin again after a stop."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.core.callees.pace import CREDIT_S, RAMP_S, RATE_MIN, Pace


def known(rate: float, seconds: float = 20.0) -> Pace:
    """A pace that has seen so many successes a second for so long, and stopped then."""
    pace = Pace()
    for n in range(int(rate * seconds)):
        pace.succeeded(1000.0 + n / rate)
    pace.stop()
    return pace


def begun(pace: Pace, at: float, late_s: float = 0.0) -> list[float]:
    """When calls begin of which there are always enough, each by a timer that comes so late; up to the end of the ramp."""
    pace.go(at)
    times, now = list[float](), at
    while pace.rate(now) is not None and len(times) < 100_000:
        now = max(now, pace.free_at(now)) + late_s
        pace.take(now)
        times.append(now)
    return times


@pytest.mark.parametrize("rate", [2.0, 10.0, 100.0, 700.0])
def test_the_first_second_is_as_it_was_before_and_then_it_doubles(rate: float) -> None:
    """Between the known rate and twice of it in the first second, twice that in the second one."""
    times = begun(known(rate), 2000.0)
    first = [at for at in times if at < 2001.0]
    second = [at for at in times if 2001.0 <= at < 2002.0]
    assert rate <= len(first) <= 2 * rate
    assert 1.9 * len(first) <= len(second) <= 2.1 * len(first) + 2


def test_it_is_not_felt_any_more_in_the_end() -> None:
    """After ten seconds whoever comes may begin."""
    pace = known(1.0)
    pace.go(2000.0)
    assert pace.rate(2000.0 + RAMP_S) is None
    for _ in range(1000):
        assert 2010.0 == pace.free_at(2000.0 + RAMP_S)
        pace.take(2000.0 + RAMP_S)


def test_who_never_succeeded_begins_slowly() -> None:
    """One in the first second or two."""
    assert 2 >= len([at for at in begun(Pace(), 2000.0) if at < 2001.0])
    assert RATE_MIN == 1.0


def test_what_was_not_used_is_not_made_up_for() -> None:
    """Nobody came for two seconds: those who come then do not all begin at once."""
    pace = known(10.0)
    pace.go(2000.0)
    rate, count = pace.rate(2002.0), 0
    assert rate is not None
    while pace.free_at(2002.0) <= 2002.0:
        pace.take(2002.0)
        count += 1
    assert count <= 1 + CREDIT_S * rate + 1


def test_a_stop_during_a_stop_forgets_nothing() -> None:
    """The time of an outage is not one in which the callee was slow: the rate is that of the time until its last success."""
    pace = known(100.0)
    pace.go(5000.0)
    pace.stop()
    pace.go(6000.0)
    assert pace.rate(6000.0) == pytest.approx(100.0, rel=0.05)


def test_who_falls_again_soon_begins_half_as_fast() -> None:
    """Two successes in the ramp, then another stop: what is known is not forgotten, and not trusted as before."""
    pace = known(100.0)
    pace.go(5000.0)
    pace.succeeded(5000.1)
    pace.succeeded(5000.2)
    pace.stop()
    pace.go(6000.0)
    assert pace.rate(6000.0) == pytest.approx(50.0, rel=0.05)


@example(rate=1.0, late_s=0.0, seconds=3)
@given(st.floats(0.5, 200), st.floats(0, 0.02), st.integers(3, 60))
def test_any_second_has_twice_of_the_one_before_at_most(rate: float, late_s: float, seconds: int) -> None:
    """However late timers are, and whatever the rate was."""
    times = begun(known(rate, seconds), 2000.0, late_s)
    base = max(RATE_MIN, rate)
    for n in range(5):
        count = len([at for at in times if 2000.0 + n <= at < 2001.0 + n])
        assert count <= 2 * base * 2**n + 2
