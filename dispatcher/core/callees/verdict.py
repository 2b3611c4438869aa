"""The verdict on one result: is the request finished, given up, or tried again, and when. One pure function decides.

Each verdict holds the finding that it rests upon: what is known of the call, and whose fault it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.callees.backoff import delay_s
from dispatcher.core.callees.finding import TOO_MANY_REQUESTS, Finding, Party, find
from dispatcher.core.callees.line import LIMIT
from dispatcher.core.callees.provider import error_in
from dispatcher.core.instant import Instant
from dispatcher.core.messages.call import WITHHELD, Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.messages.status import Reason, Status

# A callee that says "come back in 0 s" is not called in a hot loop. Said again and again it doubles, up to the backoff's base.
HINT_MIN_S = 0.1
# Statuses whose hints spend no attempt: the callee has not begun, and says when it will.
UNSPENT = frozenset({TOO_MANY_REQUESTS, 503})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request is tried.

    `until` is its deadline, monotonic seconds: no call begins then or later. Where there is none, the callee's hints hold it for
    `wait_max_s` at most.
    """

    attempts_max: int
    backoff_base_s: float
    backoff_max_s: float
    wait_max_s: float
    until: float | None = None
    repeats: bool = True  # whether what may have been done may be done again


@dataclass(frozen=True, slots=True)
class Tries:
    """What has happened to a request so far. Hints spend no attempt, so calls and failures differ."""

    calls: int = 0
    failures: int = 0
    hinted_since: float | None = None  # when the first hint was given; failures between hints do not start the count anew


@dataclass(frozen=True, slots=True)
class Settled:
    """Finished: the callee's answer is the reply."""

    status: Status
    finding: Finding


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again at `at`, and say meanwhile why the lane waits."""

    at: float
    why: str  # backoff | retry_after | breaker | limit
    tries: Tries
    finding: Finding


@dataclass(frozen=True, slots=True)
class Dead:
    """Given up. `retry_in_s` where the callee said when it would be worth another try."""

    reason: Reason
    message: str
    finding: Finding
    retry_in_s: float | None = None


Verdict = Settled | Retry | Dead


def judge(
    result: CallResult,
    tries: Tries,
    patience: Patience,
    now: Instant,
    chance: float,
    *,
    finding: Finding | None = None,
    is_spared: bool = False,
) -> Verdict:
    """What `result`, the answer to call number `tries.calls`, means for the request.

    `chance` is uniform in [0, 1), for the jitter. What a repetition does not heal is final, and given up where our own side refused to send
    it, or the callee's quota is used up. What one may heal is tried again, after what the callee asks for at the least: 429 and 503
    with such a hint spend no attempt, all else spends one. But for a failure that `is_spared`, since it is of an outage that the callee's
    circuit breaker knows of: that request waits as those do that were not called, bounded by its deadline alone. So does one whose call was
    withheld, since its limit had become another worker's.

    `finding`: of the result, where it is known already.
    """
    finding = finding or find(result, now.wall)
    if is_spared:
        tries = Tries(tries.calls, tries.failures, None)
    if finding.is_quota:
        message = f"the quota at the callee is used up, and waiting brings none: {describe(result)}"
        return Dead(Reason.QUOTA_EXHAUSTED, message, finding, finding.told_s)
    if not finding.again:
        if finding.fault is Party.DISPATCHER:
            return Dead(Reason.FORBIDDEN, describe(result), finding)
        return Settled(Status.OK if finding.fault is Party.NOBODY else Status.ERROR, finding)
    if isinstance(result, NotSent) and result.kind == WITHHELD:
        return Retry(now.mono, LIMIT, tries, finding)
    if not patience.repeats and not _is_undone(result):
        return _unrepeated(result, finding)
    if finding.told_s is not None and finding.status in UNSPENT:
        told_s = min(finding.told_s, patience.wait_max_s) if is_spared and patience.until is None else finding.told_s
        return _obey(finding, told_s, tries, patience, now.mono)
    if is_spared:
        return _again(result, finding, tries, patience, now.mono, chance, "breaker")
    tries = Tries(tries.calls, tries.failures + 1, tries.hinted_since)
    if tries.failures >= patience.attempts_max:
        message = f"given up after {tries.failures} attempts, the last: {describe(result)}"
        return Dead(Reason.ATTEMPTS_EXHAUSTED, message, finding, finding.told_s)
    return _again(result, finding, tries, patience, now.mono, chance, "backoff")


def _is_undone(result: CallResult) -> bool:
    """Whether the callee cannot have done it: it has not seen the request, or says with its status that it did not take it."""
    return isinstance(result, NotSent) or (isinstance(result, Answered) and result.status in UNSPENT)


def _unrepeated(result: CallResult, finding: Finding) -> Verdict:
    """The end of a request that another attempt may heal, and that must not be done twice."""
    if finding.fault is Party.CALLER:
        return Settled(Status.ERROR, finding)
    return Dead(Reason.OUTCOME_UNKNOWN, f"it may have been done, and must not be done twice: {describe(result)}", finding)


def _again(result: CallResult, finding: Finding, tries: Tries, patience: Patience, now: float, chance: float, why: str) -> Verdict:
    """Another attempt: after a backoff, or after what the callee asks for, if that is longer."""
    # Our own wait is fitted into what is left of the time: an attempt that comes early may still help.
    left_s = patience.backoff_max_s if patience.until is None else min(patience.backoff_max_s, patience.until - now)
    wait_s = delay_s(max(1, tries.failures), chance, patience.backoff_base_s, max(0.0, left_s))
    if finding.told_s is not None and finding.told_s > wait_s:
        return _obey(finding, finding.told_s, tries, patience, now)
    if patience.until is not None and now + wait_s >= patience.until:
        message = f"no time is left for another attempt: {describe(result)}"
        return Dead(Reason.DEADLINE_EXCEEDED, message, finding, finding.told_s)
    return Retry(now + wait_s, why, tries, finding)


def _obey(finding: Finding, told_s: float, tries: Tries, patience: Patience, now: float) -> Verdict:
    """Wait as long as the callee asks for, if that may be; shortened it would only be refused once more."""
    since = now if tries.hinted_since is None else tries.hinted_since
    wait_s = max(told_s, _hint_min_s(tries, patience))
    if patience.until is not None and now + wait_s >= patience.until:
        message = f"the callee said to wait {told_s:g} s, beyond the request's deadline"
    elif patience.until is None and now - since + wait_s > patience.wait_max_s:
        message = f"the callee said to wait {told_s:g} s, over the {patience.wait_max_s:g} s that one request may wait"
    else:
        return Retry(now + wait_s, "retry_after", Tries(tries.calls, tries.failures, since), finding)
    return Dead(Reason.DEADLINE_EXCEEDED, message, finding, told_s)


def _hint_min_s(tries: Tries, patience: Patience) -> float:
    """The shortest wait, by how often hints were obeyed in vain."""
    in_vain = max(0, tries.calls - tries.failures - 1)
    return max(HINT_MIN_S, min(patience.backoff_base_s, HINT_MIN_S * 2.0 ** min(in_vain, 60)))


def describe(result: CallResult) -> str:
    """One phrase on how a call ended; holds nothing from the callee's body."""
    match result:
        case Answered(status=status):
            return f"the callee answered {status}{_inside(result)}"
        case NotSent(kind=kind, message=message):
            return f"not sent ({kind}): {message}"
        case Ambiguous(kind=kind, message=message):
            return f"no whole answer ({kind}): {message}"


def _inside(answer: Answered) -> str:
    """What to add where the status does not tell that it is an error."""
    if not 200 <= answer.status < 300 or (said := error_in(answer)) is None:
        return ""
    return " with an error in it" if said.status is None else f" with an error in it, {said.status}"


def kind_of(result: CallResult) -> str:
    """A bounded word for logs, metrics and `error.kind`."""
    return "http" if isinstance(result, Answered) else result.kind
