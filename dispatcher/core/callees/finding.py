"""What one result of a call is by itself, however often the request was tried: what is known, whose fault it is, whether to call again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatcher.core.callees.hints import hint_s
from dispatcher.core.callees.provider import Said, error_in
from dispatcher.core.messages.call import WITHHELD, Ambiguous, Answered, CallResult, HeaderPairs, NotSent

# How the HTTP adapter says that it would not send this call, ever.
REFUSED_KINDS = frozenset({"address_refused", "invalid_request"})
# How the engine says that an adapter of ours raised.
OURS = "internal"
TOO_MANY_REQUESTS = 429
CONFLICT = 409
_REQUEST_TIMEOUT = 408
_NOTHING = Said()


class Known(StrEnum):
    """What is known of whether the callee has done it."""

    NOT_SENT = "not_sent"  # it cannot have
    ANSWERED = "answered"  # it says itself
    AMBIGUOUS = "ambiguous"  # it may have, and may still be doing it


class Party(StrEnum):
    """Whose fault it is. Of the callee's alone a circuit breaker takes notice."""

    NOBODY = "nobody"  # it went well
    CALLER = "caller"  # the request, or how many of them there are: 3xx and 4xx, 429 among them
    CALLEE = "callee"  # 5xx, 529 among them; no connection, no whole answer
    DISPATCHER = "dispatcher"  # our own configuration does not allow it; or a bug of ours


@dataclass(frozen=True, slots=True)
class Finding:
    """See above. `status` is what an answer counts as: that of HTTP, or of the error inside a 200, None where that has none.

    `again`: a repetition may help. `told_s`: seconds that the callee asks us to wait before one, None where it asks for nothing.
    `is_quota`: what is used up comes back by no waiting.
    """

    known: Known
    fault: Party
    again: bool = False
    status: int | None = None
    told_s: float | None = None
    is_quota: bool = False


_WENT_WELL = Finding(Known.ANSWERED, Party.NOBODY)


def find(result: CallResult, wall: float) -> Finding:
    """What this result is; `wall` is now, in seconds since 1970."""
    match result:
        case Answered():
            return _answered(result, wall)
        case NotSent(kind=kind) if kind in REFUSED_KINDS:
            return Finding(Known.NOT_SENT, Party.DISPATCHER)
        case NotSent(kind=kind) if kind == WITHHELD:
            return Finding(Known.NOT_SENT, Party.CALLER, again=True)
        case NotSent():
            return Finding(Known.NOT_SENT, Party.CALLEE, again=True)
        case Ambiguous(kind=kind) if kind == OURS:
            return Finding(Known.AMBIGUOUS, Party.DISPATCHER, again=True)
        case Ambiguous():
            return Finding(Known.AMBIGUOUS, Party.CALLEE, again=True)


def _answered(answer: Answered, wall: float) -> Finding:
    said = error_in(answer)
    is_ok = 200 <= answer.status < 300
    if is_ok and said is None:
        return _WENT_WELL
    said = said or _NOTHING
    status = said.status if is_ok else answer.status
    fault = Party.CALLEE if status is not None and status >= 500 else Party.CALLER
    from_head = hint_s(answer.headers, wall, is_limit=status == TOO_MANY_REQUESTS)
    if said.is_quota:
        # No header outranks that: gateways write theirs by the status. And what the body says of a time is of another limit.
        return Finding(Known.ANSWERED, fault, status=status, told_s=from_head, is_quota=True)
    asked = _asked(answer.headers)
    again = _is_retryable(status, said) if asked is None else asked
    return Finding(Known.ANSWERED, fault, again, status, said.told_s if from_head is None else from_head)


def _asked(headers: HeaderPairs) -> bool | None:
    """What the callee itself says of another attempt. OpenAI's and Anthropic's clients obey it, whatever the status."""
    asked = [text for name, text in headers if name == "x-should-retry" and text in {"true", "false"}]
    return asked[-1] == "true" if asked else None


def _is_retryable(status: int | None, said: Said) -> bool:
    """Whether an answer that says nothing of another attempt is worth one.

    A 409 of a model provider is a lock that was not got in time: their clients try again. Any other is a conflict that stays.
    """
    if status is None:
        return False
    return status >= 500 or status in {_REQUEST_TIMEOUT, TOO_MANY_REQUESTS} or (status == CONFLICT and said.is_provider)
