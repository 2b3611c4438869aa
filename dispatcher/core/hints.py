"""What a callee says about when to come back. This module reads `Retry-After`; other headers come with the issue on hints."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dispatcher.core.call import HeaderPairs

# RFC 9110 §10.2.3 gives delay-seconds as digits; decimals are met in the wild (LiteLLM and Portkey cut them to whole seconds).
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
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


def retry_after_s(headers: HeaderPairs, wall: float) -> float | None:
    """Seconds to wait as the answer says, None where it says nothing that we understand. The last header counts.

    `wall` is now, in seconds since 1970. A date is counted from the answer's own `Date`, if it has one: the callee's clock may be wrong,
    and ours too. One that has passed is 0.
    """
    told = None
    sent = next((date for name, text in headers if name == "date" and (date := _date(text, wall)) is not None), wall)
    for name, text in headers:
        if name != "retry-after":
            continue
        if SECONDS.fullmatch(text.strip()):
            told = float(text)
        elif (date := _date(text, wall)) is not None:
            told = min(max(0.0, date - sent), LONGEST_S)
    return told


def _date(text: str, wall: float) -> float | None:
    """An HTTP date in seconds since 1970; None where it is none."""
    found = next((match for form in DATES if (match := form.fullmatch(text.strip()))), None)
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
