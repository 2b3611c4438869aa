"""The verdict on one answer: is the request finished, given up, or tried again, and when. One pure function decides."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.backoff import delay_s
from dispatcher.core.call import Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.hints import retry_after_s
from dispatcher.core.instant import Instant
from dispatcher.core.status import Reason, Status

# A callee that says "come back in 0 s" is not called in a hot loop.
HINT_MIN_S = 0.1
# How the HTTP adapter says that it would not send this call, ever.
REFUSED_KINDS = frozenset({"address_refused", "invalid_request"})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request is tried. All seconds are on the monotonic clock of the caller."""

    attempts_max: int
    backoff_base_s: float
    backoff_max_s: float
    wait_max_s: float


@dataclass(frozen=True, slots=True)
class Tries:
    """What has happened to a request so far, in this worker. Hints spend no attempt, so calls and failures differ."""

    calls: int = 0
    failures: int = 0
    hinted_since: float | None = None  # when the first hint was given; failures between hints do not start the count anew


@dataclass(frozen=True, slots=True)
class Settled:
    """Finished: the callee's answer is the reply."""

    status: Status


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again at `at`, and say meanwhile why the lane waits."""

    at: float
    why: str  # backoff | retry_after
    tries: Tries


@dataclass(frozen=True, slots=True)
class Dead:
    """Given up. `retry_in_s` where the callee said when it would be worth another try."""

    reason: Reason
    message: str
    retry_in_s: float | None = None


Verdict = Settled | Retry | Dead


def judge(result: CallResult, tries: Tries, patience: Patience, now: Instant, chance: float) -> Verdict:
    """What `result`, the answer to call number `tries.calls`, means for the request.

    `chance` is uniform in [0, 1), for the jitter. Rules: 429 and 503 with `Retry-After` wait as told and
    spend no attempt; 408, 429, 5xx, and calls that were not answered spend one; every other answer is final. What our own side
    refused to send is given up at once: no repetition heals it.
    """
    if isinstance(result, Answered):
        told = retry_after_s(result.headers, now.wall) if result.status in {429, 503} else None
        if told is not None:
            return _wait(told, tries, patience, now.mono)
        if not _is_retryable(result.status):
            return Settled(Status.OK if 200 <= result.status < 300 else Status.ERROR)
    if isinstance(result, NotSent) and result.kind in REFUSED_KINDS:
        return Dead(Reason.FORBIDDEN, describe(result))
    return _spend(result, tries, patience, now.mono, chance)


def _is_retryable(status: int) -> bool:
    return status in {408, 429} or status >= 500


def _wait(told_s: float, tries: Tries, patience: Patience, now: float) -> Verdict:
    since = now if tries.hinted_since is None else tries.hinted_since
    wait_s = max(told_s, HINT_MIN_S)
    if now - since + wait_s > patience.wait_max_s:
        message = f"the callee said to wait {told_s:g} s, over the {patience.wait_max_s:g} s that one request may wait"
        return Dead(Reason.DEADLINE_EXCEEDED, message, retry_in_s=told_s)
    return Retry(now + wait_s, "retry_after", Tries(tries.calls, tries.failures, since))


def _spend(result: CallResult, tries: Tries, patience: Patience, now: float, chance: float) -> Verdict:
    failures = tries.failures + 1
    if failures >= patience.attempts_max:
        return Dead(Reason.ATTEMPTS_EXHAUSTED, f"given up after {failures} attempts, the last: {describe(result)}")
    wait_s = delay_s(failures, chance, patience.backoff_base_s, patience.backoff_max_s)
    return Retry(now + wait_s, "backoff", Tries(tries.calls, failures, tries.hinted_since))


def describe(result: CallResult) -> str:
    """One phrase on how a call ended; holds nothing from the callee's body."""
    match result:
        case Answered(status=status):
            return f"the callee answered {status}"
        case NotSent(kind=kind, message=message):
            return f"not sent ({kind}): {message}"
        case Ambiguous(kind=kind, message=message):
            return f"no whole answer ({kind}): {message}"


def kind_of(result: CallResult) -> str:
    """A bounded word for logs, metrics and `error.kind`."""
    return "http" if isinstance(result, Answered) else result.kind
