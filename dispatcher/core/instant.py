"""One reading of both clocks, taken by whoever owns a clock and handed to the core."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Instant:
    """`mono` for everything that is measured or waited for; `wall` only for what is written down (seconds since 1970)."""

    mono: float
    wall: float

    def rfc3339(self, later_s: float = 0) -> str:
        """The wall clock, `later_s` seconds from this instant, as RFC 3339 in UTC with milliseconds."""
        text = datetime.fromtimestamp(self.wall + later_s, UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
