"""What the body of an answer says of an error, in the shapes of model providers: which one it is, and when to come back.

A body is anything that a callee sends: only JSON of some KiB is looked at, nothing in it is trusted to have a type, and what is not
understood says nothing. Nothing of its text leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from dispatcher.core.callees.hints import LONGEST_S, NUMBER, SECONDS, duration_s
from dispatcher.core.messages.call import Answered

# Errors are short. One inside a 200 comes without an answer, or ends one that was begun.
BODY_MAX_BYTES = 64 * 1024
# Entries of a list, and characters of a message, that are looked at: far more than any provider writes.
LIST_MAX = 50
TEXT_MAX = 4000

# An `"error"` that may be one: not the name of a member that says there is none (OpenAI's responses have `"error": null` in each success),
# or that is a number (the error of a measurement). Inside a JSON string the quotes are escaped, so that text about errors is not met here.
_MAYBE = re.compile(rb'"error"(?!\s*:\s*(?:null|false|""|\{\s*\}|\[|[-0-9]))')

# Words for errors that a repetition may heal, as the status that means the same; other words mean a final error. From the error pages of
# OpenAI, Anthropic (`type`), Google (`status`: google.rpc.Code), and what the gateways OpenRouter and LiteLLM pass on.
STATUS_OF = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limited": 429,
    "too_many_requests": 429,
    "throttling_error": 429,
    "resource_exhausted": 429,
    "internal": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "server_error": 500,
    "api_error": 500,
    "unavailable": 503,
    "service_unavailable": 503,
    "server_is_overloaded": 503,
    "deadline_exceeded": 504,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# What is used up is money, or an allowance that nobody's waiting brings back: OpenAI's three (`insufficient_quota` comes as a 429, like a
# rate limit), the two that newer pages of theirs and Anthropic's name, Anthropic's `billing_error` (402), LiteLLM's budgets.
QUOTA = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "enforced_spend_limit_reached",
        "billing_error",
        "budget_exceeded",
    }
)
_QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
# Azure's "Please retry after 6 seconds", and "Try again in 17 seconds" of its gateway; OpenAI's "Please try again in 6m0s".
_IN_WORDS = re.compile(rf"\b(?:retry after|try again in) ({NUMBER}) (millisecond|second|minute|hour)s?\b", re.IGNORECASE)
_IN_UNITS = re.compile(rf"\b(?:retry after|try again in) ((?:{NUMBER}(?:h|ms|m|s)){{1,4}})(?!\w)", re.IGNORECASE)
_WORDS_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(frozen=True, slots=True)
class Said:
    """What a body says. `status` is what an error inside a 200 counts as, None where that is not known: then it is a final one."""

    status: int | None = None
    is_quota: bool = False
    told_s: float | None = None
    is_provider: bool = False  # written as the APIs of model providers write errors: an `error` with a message and a type


def error_in(answer: Answered) -> Said | None:
    """What the answer's body says of an error; None where it says nothing of one. Costs well below a microsecond on most successes."""
    body = answer.body
    if len(body) > BODY_MAX_BYTES or answer.truncated:
        return None
    is_ok = 200 <= answer.status < 300
    if is_ok and (b'"error"' not in body or _MAYBE.search(body) is None):
        return None
    top = _json(body)
    if isinstance(top, list) and top:
        top = _unwrapped(top, is_ok=is_ok)
    if not isinstance(top, dict):
        return None
    error = _error(top, is_ok=is_ok)
    return None if error is None else _said(error, top)


def _unwrapped(top: list[Any], *, is_ok: bool) -> Any:  # noqa: ANN401 - as below
    """Take the error out of the list in which Google answers a call that streams: of one that was begun it is the last part.

    In other lists each part may be the answer to another question (JSON-RPC): only what is written as Google does counts there.
    """
    if not is_ok:
        return top[0]
    last = top[-1]
    error = last.get("error") if isinstance(last, dict) else None
    is_of_google = isinstance(error, dict) and isinstance(error.get("status"), str) and _status(error.get("code")) is not None
    return last if is_of_google else None


def _json(body: bytes) -> Any:  # noqa: ANN401 - whatever somebody sent
    if body.lstrip()[:1] not in {b"{", b"["}:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _error(top: Mapping[str, Any], *, is_ok: bool) -> Mapping[str, Any] | None:
    """The object that describes the error; an empty one where there is an error, and no more is known of it."""
    error = top.get("error")
    if isinstance(error, dict) and error:
        return error
    if error is True or (isinstance(error, str) and error):
        return {"message": error}
    for choice in _list(top.get("choices")):
        if isinstance(choice, dict) and choice.get("finish_reason") == "error":
            inner = choice.get("error")
            return inner if isinstance(inner, dict) else {}
    return None if is_ok else top


def _said(error: Mapping[str, Any], top: Mapping[str, Any]) -> Said:
    words = [error.get("code"), error.get("status"), error.get("type"), top.get("code"), top.get("status"), top.get("statusCode")]
    names = {word.lower() for word in words if isinstance(word, str)}
    details = [detail for detail in _list(error.get("details")) if isinstance(detail, dict)]
    is_written_so = error is not top and isinstance(error.get("message"), str) and isinstance(error.get("type"), str)
    return Said(
        status=next((status for word in words if (status := _status(word)) is not None), None),
        is_quota=not names.isdisjoint(QUOTA) or any(map(_is_daily, details)),
        told_s=_told_s(error, details),
        is_provider=is_written_so,
    )


def _status(word: object) -> int | None:
    """The status that a code, a status or a type means; None where it means none of an error."""
    if isinstance(word, str):
        if word.lower() in STATUS_OF:
            return STATUS_OF[word.lower()]
        word = int(word) if len(word) == 3 and word.isascii() and word.isdigit() else None
    return word if type(word) is int and 400 <= word <= 599 else None


def _is_daily(detail: Mapping[str, Any]) -> bool:
    """Whether a limit of a whole day is used up. The RetryInfo beside it speaks of the limits of a minute."""
    if detail.get("@type") != _QUOTA_FAILURE:
        return False
    ids = [violation.get("quotaId") for violation in _list(detail.get("violations")) if isinstance(violation, dict)]
    return any(isinstance(name, str) and "PerDay" in name for name in ids)


def _told_s(error: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds to wait: of Google's RetryInfo, else as the message says."""
    delays = [detail.get("retryDelay") for detail in details if detail.get("@type") == _RETRY_INFO]
    # A protobuf Duration in JSON: seconds with a fraction, and an s.
    told = [float(text[:-1]) for text in delays if isinstance(text, str) and text.endswith("s") and SECONDS.fullmatch(text[:-1])]
    if told:
        return max(told)
    message = error.get("message")
    if not isinstance(message, str):
        return None
    message = message[:TEXT_MAX]
    if (found := _IN_WORDS.search(message)) is not None:
        return min(float(found[1]) * _WORDS_S[found[2].lower()], LONGEST_S)
    return duration_s(found[1].lower()) if (found := _IN_UNITS.search(message)) is not None else None


def _list(value: object) -> list[Any]:
    return value[:LIST_MAX] if isinstance(value, list) else []
