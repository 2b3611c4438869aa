"""The one decision: finished, given up or tried again. A table of what callees answer, then what holds for every row of answers.

What the words of single providers mean is in `answers.toml` (test_answers.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.core.callees.finding import Finding, Known, Party
from dispatcher.core.callees.verdict import HINT_MIN_S, Dead, Patience, Retry, Settled, Tries, Verdict, describe, judge, kind_of
from dispatcher.core.instant import Instant
from dispatcher.core.messages.call import WITHHELD, Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.messages.status import Reason

PATIENCE = Patience(attempts_max=3, backoff_base_s=1, backoff_max_s=30, wait_max_s=600)
NOW, WALL = 1000.0, 1795952211.0  # the latter: Sun, 29 Nov 2026 11:36:51 GMT
FIRST = Tries(calls=1)
SECOND = Tries(calls=2, failures=1)
LAST = Tries(calls=3, failures=2)
# What the tables say of a verdict: its kind, and what goes with it.
OK, ERROR = ("ok",), ("error",)


def answered(status: int, *told: str) -> Answered:
    """An answer with `Retry-After` headers."""
    return Answered(status, tuple(("retry-after", text) for text in told), b"{}")


def judged(result: CallResult, tries: Tries = FIRST, chance: float = 0.5, patience: Patience = PATIENCE, now: float = NOW) -> Verdict:
    """The verdict with the test's patience, at the test's time."""
    return judge(result, tries, patience, Instant(now, WALL), chance)


def backoff(wait_s: float, tries: Tries = FIRST) -> tuple[object, ...]:
    """A retry that spends an attempt."""
    return ("backoff", NOW + wait_s, replace(tries, failures=tries.failures + 1))


def hinted(wait_s: float, tries: Tries = FIRST, spent: int = 0) -> tuple[object, ...]:
    """A retry that the callee asked for; it spends nothing, or `spent`."""
    since = NOW if tries.hinted_since is None else tries.hinted_since
    return ("retry_after", NOW + wait_s, replace(tries, failures=tries.failures + spent, hinted_since=since))


def short(verdict: Verdict) -> tuple[object, ...]:
    """A verdict as the tables write it."""
    match verdict:
        case Settled(status=status):
            return (status.value,)
        case Retry(at=at, why=why, tries=tries):
            return (why, at, tries)
        case Dead(reason=reason, retry_in_s=retry_in_s):
            return (reason.value, retry_in_s)


RESULTS: list[tuple[CallResult, tuple[object, ...]]] = [
    *((answered(status), OK) for status in (200, 201, 202, 204, 206, 299)),
    *((answered(status), ERROR) for status in (300, 301, 302, 304, 307, 400, 401, 402, 403, 404, 405, 409, 410, 418, 422, 425, 428, 431)),
    *((answered(status), backoff(0.5)) for status in (408, 429, 500, 501, 502, 503, 504, 507, 520, 529, 599)),
    # A hint of 429 and 503 spends nothing.
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
    # Of what else may be tried again it spends one, and is obeyed where it is longer than our own wait.
    (answered(500, "20"), hinted(20, spent=1)),
    (answered(529, "20"), hinted(20, spent=1)),
    (answered(408, "0.4"), backoff(0.5)),
    # Of what is finished it says nothing.
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
def test_the_first_call(result: CallResult, verdict: tuple[object, ...]) -> None:
    """What each answer to the first of three calls means."""
    assert verdict == short(judged(result))


FINDINGS: list[tuple[CallResult, Finding]] = [
    (answered(200), Finding(Known.ANSWERED, Party.NOBODY)),
    (answered(302), Finding(Known.ANSWERED, Party.CALLER, status=302)),
    (answered(404, "3"), Finding(Known.ANSWERED, Party.CALLER, status=404, told_s=3)),
    (answered(408), Finding(Known.ANSWERED, Party.CALLER, again=True, status=408)),
    (answered(429), Finding(Known.ANSWERED, Party.CALLER, again=True, status=429)),
    (answered(429, "3"), Finding(Known.ANSWERED, Party.CALLER, again=True, status=429, told_s=3)),
    (answered(500), Finding(Known.ANSWERED, Party.CALLEE, again=True, status=500)),
    (answered(529), Finding(Known.ANSWERED, Party.CALLEE, again=True, status=529)),
    (Answered(200, (), b'{"error":{"code":502}}'), Finding(Known.ANSWERED, Party.CALLEE, again=True, status=502)),
    (Answered(200, (), b'{"error":{"code":400}}'), Finding(Known.ANSWERED, Party.CALLER, status=400)),
    (Answered(200, (), b'{"error":"no such model"}'), Finding(Known.ANSWERED, Party.CALLER)),
    (NotSent("connect", "refused"), Finding(Known.NOT_SENT, Party.CALLEE, again=True)),
    (NotSent("address_refused", "private"), Finding(Known.NOT_SENT, Party.DISPATCHER)),
    (NotSent("invalid_request", "a line end"), Finding(Known.NOT_SENT, Party.DISPATCHER)),
    (Ambiguous("timeout", "60 s"), Finding(Known.AMBIGUOUS, Party.CALLEE, again=True)),
]


@pytest.mark.parametrize(("result", "finding"), FINDINGS)
def test_a_verdict_tells_what_is_known_and_whose_fault_it_is(result: CallResult, finding: Finding) -> None:
    """Not sent, answered or ambiguous; of 5xx and of calls without an answer the callee is to blame, of 4xx and 429 the caller."""
    assert finding == judged(result).finding


@pytest.mark.parametrize("result", [answered(500), answered(429), answered(408), NotSent("connect", "x"), Ambiguous("timeout", "x")])
def test_attempts_run_out(result: CallResult) -> None:
    """The second failure waits up to 2 s, the third is the last: dead, with the last cause and without a time to come back."""
    assert backoff(1.0, SECOND) == short(judged(result, SECOND))
    dead = judged(result, LAST)
    assert isinstance(dead, Dead)
    assert ("attempts_exhausted", None) == short(dead)
    assert describe(result) in dead.message
    assert "3 attempts" in dead.message


@pytest.mark.parametrize("repeats", [True, False])
def test_a_call_that_was_withheld_has_cost_nothing(*, repeats: bool) -> None:
    """Its limit was another worker's by the time that it should have gone out: it stands in line anew, however often that is so."""
    tries = Tries(9, PATIENCE.attempts_max - 1)
    verdict = judged(NotSent(WITHHELD, "no"), tries, patience=replace(PATIENCE, repeats=repeats))
    assert verdict == Retry(NOW, "limit", tries, Finding(Known.NOT_SENT, Party.CALLER, again=True))


def test_a_hint_may_follow_the_last_failure_but_one() -> None:
    """A hint spends nothing, so it is obeyed when one attempt is left."""
    assert hinted(3, LAST) == short(judged(answered(429, "3"), LAST))


@pytest.mark.parametrize("told", ["600.1", "601", "86400", "999999999"])
def test_a_hint_over_the_bound_ends_at_once_and_says_when(told: str) -> None:
    """Neither shortened nor waited for: dead now, and the sender learns when it would be worth another try."""
    assert ("deadline_exceeded", float(told)) == short(judged(answered(429, told)))


def test_a_row_of_hints_is_bounded_together() -> None:
    """A callee that says "later" again and again holds one request for `wait_max_s`, no more."""
    tries = replace(FIRST, hinted_since=NOW - 590)
    assert hinted(10, tries) == short(judged(answered(429, "10"), tries))
    assert isinstance(judged(answered(429, "10.1"), tries), Dead)


def test_a_failure_between_hints_gives_no_new_patience() -> None:
    """Hint, failure, hint: the bound runs from the first hint; else attempts multiply it."""
    first = judged(answered(429, "400"))
    assert isinstance(first, Retry)
    failed = judge(answered(500), first.tries, PATIENCE, Instant(NOW + 401, WALL), 0.5)
    assert isinstance(failed, Retry)
    assert isinstance(judge(answered(429, "400"), failed.tries, PATIENCE, Instant(NOW + 403, WALL), 0.5), Dead)


def test_a_last_failure_says_when_it_would_be_worth_another_try() -> None:
    """The attempts are spent; the sender learns what the callee said."""
    assert ("attempts_exhausted", 20) == short(judged(answered(500, "20"), LAST))


def test_hints_that_prove_wrong_are_believed_less() -> None:
    """A callee that says 0 s each time is asked once a second at last, not ten times."""
    told, now, waits = answered(429, "0"), NOW, []
    tries = FIRST
    for _ in range(6):
        verdict = judged(told, tries, now=now)
        assert isinstance(verdict, Retry)
        waits.append(round(verdict.at - now, 3))
        now, tries = verdict.at, replace(verdict.tries, calls=verdict.tries.calls + 1)
    assert [0.1, 0.2, 0.4, 0.8, 1.0, 1.0] == waits


def test_the_latest_answer_counts() -> None:
    """What was asked for before is forgotten, shorter or longer."""
    first = judged(answered(429, "300"))
    assert isinstance(first, Retry)
    for told in (1, 250):
        then = judged(answered(429, str(told)), replace(first.tries, calls=2), now=first.at)
        assert isinstance(then, Retry)
        assert then.at - first.at == told


def test_a_deadline_is_the_bound_where_there_is_one() -> None:
    """No call begins at the deadline or later: a hint that goes beyond it ends the request at once; one within it is obeyed."""
    until = replace(PATIENCE, until=NOW + 900)
    assert hinted(600) == short(judged(answered(429, "600"), patience=until))
    assert hinted(899.9) == short(judged(answered(429, "899.9"), patience=until))
    assert ("deadline_exceeded", 900) == short(judged(answered(429, "900"), patience=until))
    assert ("deadline_exceeded", 900) == short(judged(answered(500, "900"), patience=until))
    near = replace(PATIENCE, until=NOW + 60)
    assert ("deadline_exceeded", 600) == short(judged(answered(429, "600"), patience=near))


def test_our_own_backoff_is_fitted_into_what_is_left_of_the_time() -> None:
    """An attempt that comes early may still help; where no time is left there is none."""
    near = replace(PATIENCE, until=NOW + 0.4)
    assert backoff(0.2) == short(judged(answered(500), patience=near))
    for left_s in (0, -3):
        over = replace(PATIENCE, until=NOW + left_s)
        for result in (answered(500), answered(429), Ambiguous("timeout", "60 s"), answered(429, "1")):
            assert "deadline_exceeded" == short(judged(result, patience=over))[0]


def test_one_attempt_means_one_call() -> None:
    """With `attempts_max` 1 the first failure is the last; a hint is still obeyed."""
    once = replace(PATIENCE, attempts_max=1)
    assert isinstance(judge(answered(500), FIRST, once, Instant(NOW, WALL), 0.5), Dead)
    assert isinstance(judge(answered(429, "1"), FIRST, once, Instant(NOW, WALL), 0.5), Retry)


@pytest.mark.parametrize("budget", [1, 3, 4, 100])
def test_a_budget_is_the_exact_number_of_calls(budget: int) -> None:
    """A callee that always answers 429 without a hint sees as many calls as the budget says: layers of retries do not multiply."""
    verdict: Verdict = Retry(NOW, "", Tries(), Finding(Known.ANSWERED, Party.CALLER))
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


BODIES = st.sampled_from(
    [
        b"{}",
        b'{"error":{"code":429}}',
        b'{"error":{"code":503,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"45.5s"}]}}',
        b'{"error":{"type":"server_error","message":"Please retry after 6 seconds."}}',
    ]
)
HEADS = st.one_of(
    st.just(()),
    st.tuples(st.tuples(st.sampled_from(["retry-after", "x-ratelimit-reset"]), st.floats(0, 2000).map(lambda told: f"{told:.3f}"))),
    st.tuples(st.tuples(st.just("retry-after-ms"), st.integers(0, 900_000).map(str))),
    st.tuples(st.tuples(st.just("x-should-retry"), st.sampled_from(["true", "false"]))),
)
STATUSES = st.one_of(st.integers(100, 999), st.sampled_from([200, 429, 503, 529]))
CALLS = st.tuples(
    st.one_of(st.builds(Answered, STATUSES, HEADS, BODIES), st.just(NotSent("connect", "refused")), st.just(Ambiguous("timeout", "60 s"))),
    st.floats(0, 60),
    st.floats(0, 1, exclude_max=True),
)
DEADLINES = st.none() | st.floats(0, 3000).map(lambda left_s: NOW + left_s)
PATIENCES = st.builds(Patience, st.integers(1, 6), st.floats(0.01, 5), st.floats(0.01, 60), st.floats(1, 900), DEADLINES)


@given(PATIENCES, st.lists(CALLS, min_size=1, max_size=30))
@example(replace(PATIENCE, until=NOW + 900), [(answered(429, "600"), 0, 0.5), (answered(500), 0, 0.999), (answered(503, "200"), 0, 0.5)])
def test_any_row_of_answers_is_bounded(patience: Patience, calls: list[tuple[CallResult, float, float]]) -> None:
    """Each wait is at least what the callee asked for, and all of them end before the deadline, or with `wait_max_s` of hints.

    Failures never pass the budget, and no wait is negative. What is given up although the callee named a time says so.
    """
    now, tries, hinted_from = NOW, Tries(), None
    for result, took_s, chance in calls:
        now += took_s
        tries = replace(tries, calls=tries.calls + 1)
        verdict = judge(result, tries, patience, Instant(now, WALL), chance)
        told_s = verdict.finding.told_s
        if not isinstance(verdict, Retry):
            assert not isinstance(verdict, Dead) or verdict.retry_in_s == told_s
            return
        assert verdict.tries.calls == tries.calls
        assert tries.failures <= verdict.tries.failures < patience.attempts_max
        assert verdict.at >= now + (told_s or 0)
        assert patience.until is None or verdict.at < patience.until
        if verdict.why == "retry_after":
            hinted_from = now if hinted_from is None else hinted_from
            assert told_s is not None
            assert verdict.at >= now + HINT_MIN_S
            assert patience.until is not None or verdict.at - hinted_from <= patience.wait_max_s + 1e-6
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


def spared(result: CallResult, tries: Tries = LAST, patience: Patience = PATIENCE) -> tuple[object, ...]:
    """The verdict on a failure of an outage."""
    return short(judge(result, tries, patience, Instant(NOW, WALL), 0.5, is_spared=True))


@pytest.mark.parametrize("result", [answered(500), answered(529), NotSent("connect", "refused"), Ambiguous("timeout", "too long")])
def test_a_failure_of_an_outage_spends_no_attempt(result: CallResult) -> None:
    """It would have been the last one. The request waits as long as after any failure, and has as many attempts left as before."""
    assert ("breaker", NOW + 1, LAST) == spared(result)


def test_a_hint_of_an_outage_is_obeyed_and_counts_for_nothing() -> None:
    """However long such hints have held it already; without a deadline not beyond what one request may wait."""
    held = replace(LAST, hinted_since=NOW - 599)
    assert ("retry_after", NOW + 7, replace(LAST, hinted_since=NOW)) == spared(answered(503, "7"), held)
    assert ("retry_after", NOW + 600, replace(LAST, hinted_since=NOW)) == spared(answered(503, "7000"), held)


def test_a_deadline_is_the_bound_of_an_outage() -> None:
    """The backoff is fitted into it; a hint beyond it ends the request at once."""
    patience = replace(PATIENCE, until=NOW + 0.5)
    assert ("breaker", NOW + 0.25, LAST) == spared(answered(500), patience=patience)
    assert ("deadline_exceeded", 7) == spared(answered(503, "7"), patience=patience)
    assert ("deadline_exceeded", None) == spared(answered(500), patience=replace(PATIENCE, until=NOW))


def test_what_is_final_is_final_in_an_outage() -> None:
    """The callee says that no repetition helps."""
    refused = Answered(503, (("x-should-retry", "false"),), b"{}")
    assert ERROR == spared(refused)


def test_a_bug_of_ours_is_not_the_callees() -> None:
    """It costs an attempt, as any failure, and no circuit breaker hears of it."""
    verdict = judged(Ambiguous("internal", "ValueError"))
    assert backoff(0.5) == short(verdict)
    assert Party.DISPATCHER is verdict.finding.fault
