"""How long a call may take: less than its upstream allows where calls like it take less, and never so little that a request is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.finding import find
from dispatcher.core.callees.latency import WHOLE_MIN, WINDOW
from dispatcher.core.lanes.adaptive_timeout import AdaptiveTimeouts
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import Ambiguous, Answered, CallResult, NotSent
from tests.specimens import WALL, answer, decoder, record, request, settings, value

CAP_S, FLOOR_S = 60.0, 10.0
SLOW = Ambiguous("timeout", "no whole answer in time")


def start(by: Any, attempt: int = 1, left_s: float | None = None, **fields: Any) -> Start:
    """The call of a request with these fields; `left_s`: until its deadline."""
    asked = request(record(value(body={"model": "m-1"}, **fields)), decoder(by))
    call = asked.call if left_s is None else replace(asked.call, timeout_s=left_s)
    return Start(call, asked, attempt, 0.0, 0.0)


class Upstream:
    """One with adaptive timeouts, and calls of it that have ended."""

    def __init__(self, **upstream: Any) -> None:
        self.settings = settings({"adaptive_timeout": True, **upstream})
        self.timeouts = AdaptiveTimeouts(self.settings.upstreams)

    def note(self, result: CallResult, took_s: float, times: int = 1, **fields: Any) -> None:
        """Calls ended so."""
        for _ in range(times):
            self.timeouts.note(start(self.settings, **fields), result, find(result, WALL), took_s)

    def timeout_s(self, **fields: Any) -> float:
        """How long a call may take now."""
        given = start(self.settings, **fields)
        fitted = self.timeouts.fitted(given)
        assert fitted.is_fitted == (fitted.call.timeout_s < given.call.timeout_s)
        assert fitted == replace(given, call=replace(given.call, timeout_s=fitted.call.timeout_s), is_fitted=fitted.is_fitted)
        return fitted.call.timeout_s


def test_what_must_not_be_called_twice_has_all_the_time_at_once() -> None:
    """Cut off early it would be dead: nobody could call it once more."""
    upstream = Upstream()
    upstream.note(answer(), 20.0, WHOLE_MIN)
    assert (30, CAP_S) == (upstream.timeout_s(), upstream.timeout_s(repeat="never"))


def test_a_call_may_take_half_as_long_again_as_nearly_all_of_them() -> None:
    """P99 times the multiplier, from the twentieth on; never over what the upstream allows."""
    upstream = Upstream()
    upstream.note(answer(), 20.0, WHOLE_MIN - 1)
    assert CAP_S == upstream.timeout_s()
    upstream.note(answer(), 20.0)
    assert upstream.timeout_s() == 30
    upstream.note(answer(), 50.0)
    assert CAP_S == upstream.timeout_s()
    assert Upstream(timeout_multiplier=4).timeout_s() == CAP_S


def test_the_floor_saves_what_is_slow_for_once() -> None:
    """99 calls of 1 s and one of 60 s: P99 is 1 s, and 1.5 s would cut off what is not over its time."""
    upstream = Upstream()
    upstream.note(answer(), 60.0)
    upstream.note(answer(), 1.0, WINDOW - 1)
    assert FLOOR_S == upstream.timeout_s()
    upstream.note(answer(), 0.05, WINDOW)
    assert FLOOR_S == upstream.timeout_s()


def test_calls_that_people_lose_patience_with_are_slow_ones() -> None:
    """Cancelled after 50 s: at least so long they would have taken. A few of a hundred, and nobody knows how long nearly all take."""
    upstream = Upstream()
    upstream.note(answer(), 20.0, WINDOW - 2)
    assert upstream.timeout_s() == 30
    for _ in range(2):
        upstream.timeouts.cancelled(start(upstream.settings).request, 50.0)
    assert CAP_S == upstream.timeout_s()
    unfitted = settings()
    AdaptiveTimeouts(unfitted.upstreams).cancelled(start(unfitted).request, 50.0)


def test_one_quick_call_says_nothing() -> None:
    """A single sample of 50 ms leaves all the time that there is."""
    upstream = Upstream()
    upstream.note(answer(), 0.05)
    assert CAP_S == upstream.timeout_s()


@pytest.mark.parametrize("kind", ["timeout", "first_byte_timeout", "idle_timeout"])
def test_timeouts_give_the_next_calls_all_the_time(kind: str) -> None:
    """More than one of a hundred cut off: the estimate is unknown, and does not go down step by step with what it cuts off itself."""
    upstream = Upstream()
    upstream.note(answer(), 10.0, WINDOW)
    assert upstream.timeout_s() == 15
    upstream.note(Ambiguous(kind, "…"), 15.0)
    assert upstream.timeout_s() == 15
    upstream.note(Ambiguous(kind, "…"), 15.0)
    assert CAP_S == upstream.timeout_s()
    # They take longer now, and once that is known, that is what counts.
    upstream.note(answer(), 24.0, WINDOW)
    assert upstream.timeout_s() == 36


@pytest.mark.parametrize(
    "result",
    [
        *(answer(status) for status in (400, 404, 429, 500, 503, 529)),
        Answered(200, (), b'{"error":{"code":502}}'),
        *(NotSent(kind, "…") for kind in ("connect", "connect_timeout", "dns")),
        *(Ambiguous(kind, "…") for kind in ("reset", "truncated", "protocol", "internal")),
    ],
)
def test_what_fails_soon_says_nothing_of_how_long_an_answer_takes(result: CallResult) -> None:
    """A flood of quick refusals does not make the time short for those that are answered."""
    upstream = Upstream()
    upstream.note(answer(), 20.0, WHOLE_MIN)
    upstream.note(result, 0.01, 3 * WINDOW)
    assert upstream.timeout_s() == 30


def test_only_the_first_call_of_a_request_is_a_wager() -> None:
    """What was cut off too early is called again with all the time of its upstream, and so is not lost."""
    upstream = Upstream()
    upstream.note(answer(), 1.0, WINDOW)
    assert FLOOR_S == upstream.timeout_s(attempt=1)
    assert CAP_S == upstream.timeout_s(attempt=2)


def test_who_says_how_long_has_it() -> None:
    """A request's own timeout_s is not made shorter, and what is left before its deadline not longer; both are samples all the same."""
    upstream = Upstream()
    upstream.note(answer(), 1.0, WINDOW, timeout_s=50)
    assert upstream.timeout_s(timeout_s=50) == 50
    assert upstream.timeout_s(left_s=3.0) == 3
    assert FLOOR_S == upstream.timeout_s(left_s=30.0)


def test_it_is_off_unless_it_is_wanted() -> None:
    """Nothing is measured, and each call has all the time."""
    upstream = Upstream(adaptive_timeout=False)
    upstream.note(answer(), 1.0, WINDOW)
    assert start(upstream.settings).request.series is None
    assert CAP_S == upstream.timeout_s()


RESULTS = st.one_of(st.just(answer()), st.just(answer(429)), st.just(SLOW), st.just(Ambiguous("reset", "…")), st.just(NotSent("dns", "…")))


@given(
    st.lists(st.tuples(RESULTS, st.floats(0, 100), st.integers(1, 40)), max_size=12),
    st.floats(1, 10),
    st.floats(0.1, 59),
)
def test_whatever_happened_it_is_between_floor_and_cap(
    calls: list[tuple[CallResult, float, int]], multiplier: float, floor_s: float
) -> None:
    """No row of ends makes a call's time shorter than the floor or longer than it was."""
    upstream = Upstream(timeout_multiplier=multiplier, timeout_floor_s=floor_s)
    for result, took_s, times in calls:
        upstream.note(result, took_s, times)
    assert floor_s <= upstream.timeout_s() <= CAP_S
