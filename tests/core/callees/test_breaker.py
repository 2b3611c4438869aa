"""The circuit breaker: when it opens, that one call at most goes through while it is open, and what changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.callees.breaker import SLICES, Bearing, Breaker, Policy, State

SUCCESS, FAILURE, NOTHING = Bearing.SUCCESS, Bearing.FAILURE, Bearing.NOTHING


def calls(breaker: Breaker, *bearings: Bearing, at: float = 0.0) -> list[bool]:
    """Calls one after another that end so; which of them were spared."""
    return [breaker.end(breaker.begin(at), bearing, at) for bearing in bearings]


def state(breaker: Breaker) -> State:
    """Its state now: mypy believes that it stays as it was asserted once."""
    return breaker.state


def opened(**policy: float) -> Breaker:
    """A breaker that has opened at 0 s."""
    breaker = Breaker(Policy(**policy))  # type: ignore[arg-type]
    calls(breaker, *5 * [FAILURE])
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    """Four failures, and a success between: closed. The fifth in a row opens it, and that one alone is the outage's."""
    breaker = Breaker(Policy())
    assert [False] * 9 == calls(breaker, *4 * [FAILURE], SUCCESS, *4 * [FAILURE])
    assert State.CLOSED is state(breaker)
    assert [True] == calls(breaker, FAILURE)
    assert (State.OPEN, 1, 30.0) == (state(breaker), breaker.opens, breaker.free_at(0.0))


def test_what_says_nothing_of_the_callee_changes_nothing() -> None:
    """Answers that are the caller's doing, and calls that were cut off, neither count as failures nor end a row of them."""
    breaker = Breaker(Policy())
    calls(breaker, *4 * [FAILURE], *100 * [NOTHING])
    assert State.CLOSED is state(breaker)
    calls(breaker, FAILURE)
    assert State.OPEN is state(breaker)


def test_one_probe_and_no_more() -> None:
    """After 30 s one call may begin, and until it has ended no other: when it goes well all may, when it fails 30 s more pass."""
    breaker = opened()
    assert (30.0, 30.0) == (breaker.free_at(29.9), breaker.free_at(30.0))
    probe = breaker.begin(30.0)
    assert (State.HALF_OPEN, None) == (state(breaker), breaker.free_at(1000.0))
    assert breaker.end(probe, FAILURE, 40.0)
    assert (State.OPEN, 70.0, 2) == (state(breaker), breaker.free_at(41.0), breaker.opens)
    assert not breaker.end(breaker.begin(70.0), SUCCESS, 71.0)
    assert (State.CLOSED, 71.0) == (state(breaker), breaker.free_at(71.0))


def test_a_call_that_may_not_begin_is_a_bug() -> None:
    """Who does not ask first is stopped."""
    breaker = opened()
    with pytest.raises(AssertionError):
        breaker.begin(29.0)
    breaker.begin(30.0)
    with pytest.raises(AssertionError):
        breaker.begin(31.0)


@pytest.mark.parametrize("end", [SUCCESS, FAILURE])
def test_a_probe_that_says_nothing_is_followed_by_another(end: Bearing) -> None:
    """A 400, a 429 and a call that was cut off neither close it nor open it anew: the next call is the probe, at once."""
    breaker = opened()
    assert not breaker.end(breaker.begin(30.0), NOTHING, 31.0)
    assert (State.HALF_OPEN, 31.0) == (state(breaker), breaker.free_at(31.0))
    breaker.end(breaker.begin(31.0), end, 32.0)
    assert (State.CLOSED if end is SUCCESS else State.OPEN) is state(breaker)


@pytest.mark.parametrize("late", list(Bearing))
def test_a_late_result_changes_nothing(late: Bearing) -> None:
    """A call that began before it opened ends while it is open, while the probe is out, and when it is closed again."""
    breaker = Breaker(Policy())
    before = breaker.begin(0.0)
    calls(breaker, *5 * [FAILURE])
    assert (late is FAILURE) is breaker.end(before, late, 1.0)
    assert (State.OPEN, 30.0) == (state(breaker), breaker.reopens_at)
    probe = breaker.begin(30.0)
    breaker.end(before, late, 31.0)
    assert State.HALF_OPEN is state(breaker)
    breaker.end(probe, SUCCESS, 32.0)
    for _ in range(5):
        assert (late is FAILURE) is breaker.end(before, late, 33.0)
    assert (State.CLOSED, 1) == (state(breaker), breaker.opens)


def test_it_opens_by_the_share_of_failures_in_a_window() -> None:
    """Half of 20 calls: open, though never two in a row failed. With 18 it is too early to tell."""
    breaker = Breaker(Policy(failures=0, rate=0.5, window_s=60, min_calls=20))
    calls(breaker, *9 * [FAILURE, SUCCESS])
    assert State.CLOSED is state(breaker)
    calls(breaker, SUCCESS, FAILURE)
    assert State.OPEN is state(breaker)


def test_what_is_older_than_the_window_does_not_count() -> None:
    """19 failures of a minute ago are forgotten."""
    breaker = Breaker(Policy(failures=0, rate=0.5, window_s=60, min_calls=20))
    calls(breaker, *19 * [FAILURE])
    calls(breaker, *19 * [FAILURE], at=60.0)
    assert State.CLOSED is state(breaker)
    calls(breaker, FAILURE, at=60.0)
    assert State.OPEN is state(breaker)


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from(Bearing)), max_size=60))
def test_the_window_counts_as_one_that_remembers_each_call(steps: list[tuple[float, Bearing]]) -> None:
    """Against a plain list of calls, whose oldest slice goes as a whole: it opens at the same call."""
    breaker = Breaker(Policy(failures=0, rate=0.5, window_s=30, min_calls=5))
    now, seen = 0.0, list[tuple[float, bool]]()
    for later_s, bearing in steps:
        now += later_s
        calls(breaker, bearing, at=now)
        if bearing is not NOTHING:
            seen.append((now * SLICES // 30, bearing is FAILURE))
        counted = [failed for slice_, failed in seen if slice_ > now * SLICES // 30 - SLICES]
        is_over = bearing is FAILURE and len(counted) >= 5 and sum(counted) * 2 >= len(counted)
        assert is_over is (breaker.state is State.OPEN)
        if is_over:
            return


@dataclass
class Period:
    """From one opening to the end of what it led to."""

    probes: int = 0
    ended: list[Bearing] = field(default_factory=list)


class Interleaving(RuleBasedStateMachine):
    """Calls begin whenever they may, and end in any order and at any time, each in any way."""

    @initialize(failures=st.integers(1, 4), rate=st.sampled_from([None, 0.5]))
    def new(self, failures: int, rate: float | None) -> None:
        """Any policy."""
        self.breaker = Breaker(Policy(failures, 30.0, rate, 60.0, 4))
        self.now = 0.0
        self.flying: list[int] = []
        self.probe: int | None = None  # its generation, while it is out
        self.period: Period | None = None  # since it has opened

    @rule(later_s=st.floats(0, 40))
    def wait(self, later_s: float) -> None:
        """Time passes."""
        self.now += later_s

    @rule(count=st.integers(1, 5))
    def begin(self, count: int) -> None:
        """So many want to begin at once."""
        for _ in range(count):
            free_at = self.breaker.free_at(self.now)
            if free_at is None or free_at > self.now:
                continue
            generation = self.breaker.begin(self.now)
            self.flying.append(generation)
            if self.period is not None:
                self.period.probes += 1
                self.probe = generation

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), bearing=st.sampled_from(Bearing))
    def end(self, data: st.DataObject, bearing: Bearing) -> None:
        """One of those in flight ends."""
        generation = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        is_late = generation != self.breaker.generation
        before = (self.breaker.state, self.breaker.generation, self.breaker.opens, self.breaker.free_at(self.now))
        is_spared = self.breaker.end(generation, bearing, self.now)
        after = (self.breaker.state, self.breaker.generation, self.breaker.opens, self.breaker.free_at(self.now))
        if is_late:
            assert before == after
            assert is_spared is (bearing is FAILURE)
        elif self.period is not None:
            assert self.probe == generation
            self.period.ended.append(bearing)
            assert is_spared is (bearing is FAILURE)
        if not is_late and bearing is NOTHING and self.period is None:
            assert before == after
        if self.period is not None and not is_late:
            self.probe = None
        if self.breaker.opens != before[2]:
            self.period = Period()
        elif self.breaker.state is State.CLOSED:
            self.period = None

    @invariant()
    def one_call_at_most_goes_through_while_it_is_open(self) -> None:
        """Beside those that said nothing, after each of which another one may."""
        if self.period is not None:
            assert self.period.probes <= 1 + self.period.ended.count(NOTHING)
            assert all(bearing is NOTHING for bearing in self.period.ended)
            assert (self.probe is not None) is (self.breaker.state is State.HALF_OPEN and self.breaker.free_at(self.now) is None)


TestInterleaving = Interleaving.TestCase
