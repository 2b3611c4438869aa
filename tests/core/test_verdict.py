"""The one decision: finished, given up or tried again. A table of what callees answer, then what holds for every row of answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.call import Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.instant import Instant
from dispatcher.core.status import Reason, Status
from dispatcher.core.verdict import HINT_MIN_S, Dead, Patience, Retry, Settled, Tries, Verdict, describe, judge, kind_of

PATIENCE = Patience(attempts_max=3, backoff_base_s=1, backoff_max_s=30, wait_max_s=600)
NOW, WALL = 1000.0, 1795952211.0  # the latter: Sun, 29 Nov 2026 11:36:51 GMT
FIRST = Tries(calls=1)
SECOND = Tries(calls=2, failures=1)
LAST = Tries(calls=3, failures=2)
OK, ERROR = Settled(Status.OK), Settled(Status.ERROR)


def answered(status: int, *told: str) -> Answered:
    """An answer with `Retry-After` headers."""
    return Answered(status, tuple(("retry-after", text) for text in told), b"{}")


def judged(result: CallResult, tries: Tries = FIRST, chance: float = 0.5) -> Verdict:
    """The verdict with the test's patience, at the test's time."""
    return judge(result, tries, PATIENCE, Instant(NOW, WALL), chance)


def backoff(wait_s: float, tries: Tries = FIRST) -> Retry:
    """A retry that spends an attempt."""
    return Retry(NOW + wait_s, "backoff", replace(tries, failures=tries.failures + 1))


def hinted(wait_s: float, tries: Tries = FIRST) -> Retry:
    """A retry that the callee asked for, which spends nothing."""
    return Retry(NOW + wait_s, "retry_after", replace(tries, hinted_since=NOW))


RESULTS: list[tuple[CallResult, Verdict]] = [
    *((answered(status), OK) for status in (200, 201, 202, 204, 206, 299)),
    *((answered(status), ERROR) for status in (300, 301, 302, 304, 307, 400, 401, 402, 403, 404, 405, 409, 410, 418, 422, 425, 428, 431)),
    *((answered(status), backoff(0.5)) for status in (408, 429, 500, 501, 502, 503, 504, 507, 520, 529, 599)),
    # A hint counts on 429 and 503 alone.
    (answered(429, "20"), hinted(20)),
    (answered(503, "20"), hinted(20)),
    (answered(429, "1.5"), hinted(1.5)),
    (answered(429, "0.4"), hinted(0.4)),
    (answered(429, "0"), hinted(HINT_MIN_S)),
    (answered(429, "0.01"), hinted(HINT_MIN_S)),
    (answered(429, "600"), hinted(600)),
    (answered(429, "5", "7"), hinted(7)),
    (answered(503, "Sun, 29 Nov 2026 11:37:11 GMT"), hinted(20)),
    (answered(429, "Sun, 29 Nov 2026 11:36:51 GMT"), hinted(HINT_MIN_S)),
    (answered(500, "20"), backoff(0.5)),
    (answered(529, "20"), backoff(0.5)),
    (answered(200, "20"), OK),
    (answered(404, "20"), ERROR),
    (answered(301, "20"), ERROR),
    # A hint that is none spends an attempt.
    (answered(429, "soon"), backoff(0.5)),
    (answered(429, "-1"), backoff(0.5)),
    (answered(503, "inf"), backoff(0.5)),
    # Calls that were not answered spend one, whether sent or not.
    (NotSent("connect", "refused"), backoff(0.5)),
    (NotSent("dns", "no such name"), backoff(0.5)),
    (Ambiguous("timeout", "60 s"), backoff(0.5)),
    (Ambiguous("reset", "by peer"), backoff(0.5)),
]


@pytest.mark.parametrize(("result", "verdict"), RESULTS)
def test_the_first_call(result: CallResult, verdict: Verdict) -> None:
    """What each answer to the first of three calls means."""
    assert verdict == judged(result)


@pytest.mark.parametrize("result", [answered(500), answered(429), answered(408), NotSent("connect", "x"), Ambiguous("timeout", "x")])
def test_attempts_run_out(result: CallResult) -> None:
    """The second failure waits up to 2 s, the third is the last: dead, with the last cause and without a time to come back."""
    assert judged(result, SECOND) == backoff(1.0, SECOND)
    dead = judged(result, LAST)
    assert isinstance(dead, Dead)
    assert (dead.reason, dead.retry_in_s) == (Reason.ATTEMPTS_EXHAUSTED, None)
    assert describe(result) in dead.message
    assert "3 attempts" in dead.message


def test_a_hint_may_follow_the_last_failure_but_one() -> None:
    """A hint spends nothing, so it is obeyed when one attempt is left."""
    assert judged(answered(429, "3"), LAST) == hinted(3, LAST)


@pytest.mark.parametrize("told", ["600.1", "601", "86400", "999999999"])
def test_a_hint_over_the_bound_ends_at_once_and_says_when(told: str) -> None:
    """Neither shortened nor waited for: dead now, and the sender learns when it would be worth another try."""
    dead = judged(answered(429, told))
    assert isinstance(dead, Dead)
    assert (dead.reason, dead.retry_in_s) == (Reason.DEADLINE_EXCEEDED, float(told))


def test_a_row_of_hints_is_bounded_together() -> None:
    """A callee that says "later" again and again holds one request for `wait_max_s`, no more."""
    tries = replace(FIRST, hinted_since=NOW - 590)
    assert judged(answered(429, "10"), tries) == Retry(NOW + 10, "retry_after", tries)
    assert isinstance(judged(answered(429, "10.1"), tries), Dead)


def test_a_failure_between_hints_gives_no_new_patience() -> None:
    """Hint, failure, hint: the bound runs from the first hint; else attempts multiply it."""
    first = judged(answered(429, "400"))
    assert isinstance(first, Retry)
    failed = judge(answered(500), first.tries, PATIENCE, Instant(NOW + 401, WALL), 0.5)
    assert isinstance(failed, Retry)
    assert isinstance(judge(answered(429, "400"), failed.tries, PATIENCE, Instant(NOW + 403, WALL), 0.5), Dead)


def test_one_attempt_means_one_call() -> None:
    """With `attempts_max` 1 the first failure is the last; a hint is still obeyed."""
    once = replace(PATIENCE, attempts_max=1)
    assert isinstance(judge(answered(500), FIRST, once, Instant(NOW, WALL), 0.5), Dead)
    assert isinstance(judge(answered(429, "1"), FIRST, once, Instant(NOW, WALL), 0.5), Retry)


@pytest.mark.parametrize("budget", [1, 3, 4, 100])
def test_a_budget_is_the_exact_number_of_calls(budget: int) -> None:
    """A callee that always answers 429 without a hint sees as many calls as the budget says: layers of retries do not multiply."""
    verdict: Verdict = Retry(NOW, "", Tries())
    calls = 0
    while isinstance(verdict, Retry):
        calls += 1
        tries = replace(verdict.tries, calls=verdict.tries.calls + 1)
        verdict = judge(answered(429), tries, replace(PATIENCE, attempts_max=budget), Instant(verdict.at, WALL), 0.5)
    assert budget == calls
    assert isinstance(verdict, Dead)


def test_what_is_said_of_a_result() -> None:
    """A bounded word and a phrase for each; an answer's body is in neither."""
    secret = Answered(500, (("x", "sk-1"),), b"sk-2")
    assert (kind_of(secret), describe(secret)) == ("http", "the callee answered 500")
    assert (kind_of(NotSent("dns", "m")), describe(NotSent("dns", "m"))) == ("dns", "not sent (dns): m")
    assert (kind_of(Ambiguous("reset", "m")), describe(Ambiguous("reset", "m"))) == ("reset", "no whole answer (reset): m")


CALLS = st.tuples(
    st.one_of(
        st.builds(answered, st.integers(100, 999)),
        st.builds(answered, st.sampled_from([429, 503]), st.floats(0, 700).map(lambda told: f"{told:.3f}")),
        st.just(NotSent("connect", "refused")),
        st.just(Ambiguous("timeout", "60 s")),
    ),
    st.floats(0, 60),
    st.floats(0, 1, exclude_max=True),
)
PATIENCES = st.builds(Patience, st.integers(1, 6), st.floats(0.01, 5), st.floats(0.01, 60), st.floats(1, 900))


@given(PATIENCES, st.lists(CALLS, min_size=1, max_size=30))
def test_any_row_of_answers_is_bounded(patience: Patience, calls: list[tuple[CallResult, float, float]]) -> None:
    """Failures never pass the budget, hints spend none and hold one request for `wait_max_s` at most, no wait is negative or endless."""
    now, tries, hinted_from = NOW, Tries(), None
    for result, took_s, chance in calls:
        now += took_s
        tries = replace(tries, calls=tries.calls + 1)
        verdict = judge(result, tries, patience, Instant(now, WALL), chance)
        if not isinstance(verdict, Retry):
            return
        assert verdict.tries.calls == tries.calls
        assert verdict.tries.failures < patience.attempts_max
        if verdict.why == "retry_after":
            hinted_from = now if hinted_from is None else hinted_from
            assert verdict.tries.failures == tries.failures
            assert verdict.at >= now + HINT_MIN_S
            assert verdict.at - hinted_from <= patience.wait_max_s + 1e-6
        else:
            assert verdict.why == "backoff"
            assert verdict.tries.failures == tries.failures + 1
            assert now <= verdict.at <= now + patience.backoff_max_s + 1e-6
        now, tries = verdict.at, verdict.tries


@pytest.mark.parametrize("kind", ["address_refused", "invalid_request"])
def test_what_our_own_side_will_never_send_is_given_up_at_once(kind: str) -> None:
    """A refused address or a request that cannot be written heals by no repetition: no second attempt, no backoff."""
    verdict = judged(NotSent(kind, "not allowed"))
    assert isinstance(verdict, Dead)
    assert verdict.reason is Reason.FORBIDDEN
