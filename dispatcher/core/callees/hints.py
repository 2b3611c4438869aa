"""When to come back, as the head of an answer says it. A strict grammar: what is not written as somebody documents it says nothing.

    retry-after-ms, x-ms-retry-after-ms   milliseconds (OpenAI, Azure)
    retry-after                           seconds, with decimals; or an HTTP date (RFC 9110)
    x-ratelimit-reset-<dimension>         a duration as Go prints it, seconds, or seconds since 1970 (OpenAI, Groq, Azure; also without
                                          `x-`, and without a dimension)
    anthropic-ratelimit-<dimension>-reset a time of RFC 3339

The first of these rows that is understood counts, and in it the last header: proxies add theirs behind the callee's. Of the dimensions of a
limit the longest counts, of those that are exhausted: where `…-remaining…` is told, those with nothing left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from dispatcher.core.instant import rfc3339_s
from dispatcher.core.messages.call import HeaderPairs

# RFC 9110 §10.2.3 gives delay-seconds as digits; decimals are met in the wild (LiteLLM and Portkey cut them to whole seconds).
NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
SECONDS = re.compile(NUMBER)
# Go's time.Duration.String (h, m, s; or ms, µs, ns alone), and its units in one row as others write them: each at most once, in order.
_UNITS = (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("[uµμ]s", 1e-6), ("ns", 1e-9))
DURATION = re.compile("(?=[0-9])" + "".join(f"(?:({NUMBER}){unit})?" for unit, _ in _UNITS))
# RFC 9110 §5.6.7: IMF-fixdate, and the two that are obsolete and have to be read all the same (RFC 850's, asctime's).
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
DATES = (
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) (?P<month>[A-Z][a-z]{{2}}) (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Z][a-z]{{2}})-(?P<year>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)
_PARTS = ("day", "hour", "minute", "second")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# As far as seconds of nine digits go; what is later is as good as never.
LONGEST_S = 999_999_999.0
# A year of two digits that would be further in the future than this is one of the past.
FUTURE_YEARS = 50

_BARE = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9})?")
# A bare number as large as this counts from 1970 (2001-09-09), and one larger still in milliseconds (OpenRouter).
EPOCH_MIN_S = 1e9
_EPOCH_MIN_MS = 1e12
_REMAINING = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")
# Anthropic's `unified-…` are of subscriptions, whose windows of days say nothing of the next call.
_LIMIT = re.compile(
    r"(?P<of>x-|)rate-?limit-(?P<what>reset|remaining|limit)(?:-(?P<dimension>[a-z0-9-]{1,40}))?"
    r"|(?P<of_a>anthropic-)ratelimit-(?!unified)(?P<dimension_a>[a-z0-9-]{1,40})-(?P<what_a>reset|remaining|limit)"
)
# Whose header it is, by its beginning, and of which dimension.
Dimension = tuple[str, str]


def hint_s(headers: HeaderPairs, wall: float, *, is_limit: bool) -> float | None:
    """Seconds to wait as the answer says, None where it says nothing that we understand. Never negative, at most `LONGEST_S`.

    `wall` is now, in seconds since 1970. A point in time is counted from the answer's own `Date`, if it has one: the callee's clock may be
    wrong, and ours too. One that has passed is 0. Only where the answer is one of a limit (429) do the resets of limits say when to come
    again: others name them, too.
    """
    sent = _sent(headers, wall)
    for spelling, read in _SPELLINGS:
        told = [seconds for name, text in headers if name == spelling and (seconds := read(text.strip(), sent)) is not None]
        if told:
            return told[-1]
    return _longest_reset_s(headers, sent) if is_limit else None


def duration_s(text: str) -> float | None:
    """The seconds of a duration as Go prints it; None where it is none.

    >>> duration_s("6m0s"), duration_s("2m59.56s"), duration_s("500ms"), duration_s("6 minutes")
    (360.0, 179.56, 0.5, None)
    """
    found = DURATION.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS, strict=True)
    return min(sum(float(number) * seconds for number, (_, seconds) in parts if number is not None), LONGEST_S)


def _milliseconds(text: str, _: float) -> float | None:
    return float(text) / 1000 if SECONDS.fullmatch(text) else None


def _retry_after(text: str, sent: float) -> float | None:
    if SECONDS.fullmatch(text):
        return min(float(text), LONGEST_S)
    return _until(_date(text, sent), sent)


_SPELLINGS: tuple[tuple[str, Callable[[str, float], float | None]], ...] = (
    ("retry-after-ms", _milliseconds),
    ("x-ms-retry-after-ms", _milliseconds),
    ("retry-after", _retry_after),
)


def limits_in(headers: HeaderPairs, wall: float) -> tuple[dict[Dimension, float], dict[Dimension, float], dict[Dimension, float]]:
    """What an answer says of limits, by dimension: seconds until each is reset, how much of it is left, and how much there is in all."""
    return _limits(headers, _sent(headers, wall))


def _longest_reset_s(headers: HeaderPairs, sent: float) -> float | None:
    resets, remaining, _ = _limits(headers, sent)
    return max((told for dimension, told in resets.items() if not remaining or remaining.get(dimension, 1) <= 0), default=None)


def _limits(headers: HeaderPairs, sent: float) -> tuple[dict[Dimension, float], dict[Dimension, float], dict[Dimension, float]]:
    resets: dict[Dimension, float] = {}
    amounts: dict[str, dict[Dimension, float]] = {"remaining": {}, "limit": {}}
    for name, text in headers:
        if (found := _LIMIT.fullmatch(name)) is None:
            continue
        dimension = (found["of"] or found["of_a"] or "", found["dimension"] or found["dimension_a"] or "")
        if (of := amounts.get(found["what"] or found["what_a"])) is not None:
            if _REMAINING.fullmatch(text.strip()):
                of[dimension] = float(text)
        elif (told := _reset(text.strip(), sent)) is not None:
            resets[dimension] = told
    return resets, amounts["remaining"], amounts["limit"]


def _reset(text: str, sent: float) -> float | None:
    """The seconds until a limit is reset, in any of the ways to write that."""
    if _BARE.fullmatch(text):
        number = float(text)
        if number < EPOCH_MIN_S:
            return number
        return _until(number if number < _EPOCH_MIN_MS else number / 1000, sent)
    if (told := duration_s(text)) is not None:
        return told
    return _until(rfc3339_s(text), sent)


def _until(then: float | None, sent: float) -> float | None:
    return None if then is None else min(max(0.0, then - sent), LONGEST_S)


def _sent(headers: HeaderPairs, wall: float) -> float:
    """When an answer was sent, by its callee's clock; by ours where it does not say so."""
    return next((date for name, text in headers if name == "date" and (date := _date(text.strip(), wall)) is not None), wall)


def _date(text: str, wall: float) -> float | None:
    """An HTTP date in seconds since 1970; None where it is none. `wall` tells the century of a year with two digits."""
    found = next((match for form in DATES if (match := form.fullmatch(text))), None)
    if found is None or found["month"] not in MONTHS:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        this = datetime.fromtimestamp(wall, UTC).year
        year += this - this % 100
        year -= 100 if year > this + FUTURE_YEARS else 0
    month, day, hour, minute, second = MONTHS.index(found["month"]) + 1, *(int(found[part]) for part in _PARTS)
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
