"""One reading of both clocks, taken by whoever owns a clock and handed to the core."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# RFC 3339 §5.6: date-time, with a fraction of as many digits as somebody may write; the zone is not optional.
RFC3339 = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(\.[0-9]{1,40})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
_RFC3339 = re.compile(RFC3339, re.ASCII)


@dataclass(frozen=True, slots=True)
class Instant:
    """`mono` for everything that is measured or waited for; `wall` only for what is written down (seconds since 1970)."""

    mono: float
    wall: float

    def rfc3339(self, later_s: float = 0) -> str:
        """The wall clock, `later_s` seconds from this instant, as RFC 3339 in UTC with milliseconds."""
        text = datetime.fromtimestamp(self.wall + later_s, UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")


def rfc3339_s(text: str) -> float | None:
    """The seconds since 1970 of an RFC 3339 date and time; None where it is none. A leap second counts as the one after it."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    day, time, second, part, zone = found.groups()
    if int(second) > 60:
        return None
    try:
        minute = datetime.fromisoformat(f"{day}T{time}:00{'+00:00' if zone in {'Z', 'z'} else zone}")
        # Not `timestamp` of the sum: the last second of the year 9999 is a time like any other, and has no successor.
        return (minute - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1) + int(second) + float(part or 0)
    except (ValueError, OverflowError):
        return None
