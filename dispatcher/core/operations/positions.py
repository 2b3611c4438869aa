"""Positions in a topic as the command line writes them (`-o`): one spelling, one meaning.

`start` `end` `N` `+N` `-N` `@2026-11-29T10:00Z` `@-1h`, alone or as `FROM:TO`. A bare number is an offset, `@` is always time; `+N` counts
from the start and `-N` back from the end, in each partition. FROM is included, TO is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from dispatcher.errors import ConfigError

# Kafka's offsets and times are signed 64-bit integers.
NUMBER_MAX = 2**63 - 1
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
HINT = "write start, end, N, +N, -N, @2026-11-29T10:00Z or @-1h; two of them as FROM:TO"

# A clock always has its zone, which also tells the colon of a time from the colon between FROM and TO.
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
_POSITION = rf"start|end|[+-]?[0-9]+|@-[0-9]+[smhd]|@{_TIME}"
_SPAN = re.compile(rf"({_POSITION})(?::({_POSITION}))?")


class Anchor(Enum):
    """What the number of a position counts from."""

    OFFSET = "offset"  # the number is the offset
    START = "start"  # so many offsets after the first one that is there
    END = "end"  # so many offsets before the end
    TIME = "time"  # the first record of that time or later, milliseconds since 1970


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every partition of a topic."""

    anchor: Anchor
    number: int = 0

    def offset(self, first: int, end: int) -> int:
        """Return the offset in a partition whose first record is at `first` and whose end is `end`. Not for times: only Kafka knows them.

        Counting from start or end stays within the partition; an offset is taken as it is, also where nothing stands there yet.
        """
        if self.anchor is Anchor.START:
            return min(first + self.number, end)
        if self.anchor is Anchor.END:
            return max(end - self.number, first)
        if self.anchor is Anchor.OFFSET:
            return self.number
        raise ValueError("a time has no offset without its topic")


START = Position(Anchor.START)
END = Position(Anchor.END)


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where to read. Without `until` there is no stop but the reader's own."""

    since: Position
    until: Position | None = None


def parse_span(text: str, now: datetime) -> Span:
    """Read `FROM` or `FROM:TO`. `now` (with its zone) is what `@-1h` counts from. Raises ConfigError."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise _fault(text)
    since = _position(match[1], now)
    until = None if match[2] is None else _position(match[2], now)
    if until is not None and _is_backwards(since, until):
        raise ConfigError(f"position {text!r} ends before it begins", "FROM stands before TO, and TO itself is not read")
    return Span(since, until)


def parse_position(text: str, now: datetime) -> Position:
    """Read one position, where a range makes no sense. Raises ConfigError."""
    span = parse_span(text, now)
    if span.until is not None:
        raise ConfigError(f"position {text!r} is a range", "one position is wanted here")
    return span.since


def _position(text: str, now: datetime) -> Position:
    if text == "start":
        return START
    if text == "end":
        return END
    if text[0] == "@":
        return Position(Anchor.TIME, _time_ms(text, now))
    number = int(text.lstrip("+-"))
    if number > NUMBER_MAX:
        raise ConfigError(f"position {text!r} is larger than any offset", f"at most {NUMBER_MAX}")
    return Position({"+": Anchor.START, "-": Anchor.END}.get(text[0], Anchor.OFFSET), number)


def _time_ms(text: str, now: datetime) -> int:
    """Return the time after `@`, at least 1970: Kafka has none before."""
    if text.startswith("@-"):
        return max(0, _milliseconds(now) - int(text[2:-1]) * UNITS_MS[text[-1]])
    try:
        return max(0, _milliseconds(datetime.fromisoformat(text[1:])))
    except ValueError:
        raise ConfigError(f"position {text!r} is not a time of the calendar", HINT) from None


def _milliseconds(time: datetime) -> int:
    return (time - datetime.fromisoformat("1970-01-01T00:00Z")) // timedelta(milliseconds=1)


def _is_backwards(since: Position, until: Position) -> bool:
    """Whether a range can be seen to be empty or reversed without its topic."""
    if since.anchor is not until.anchor:
        return since == END and until == START
    return since.number < until.number if since.anchor is Anchor.END else since.number > until.number


def _fault(text: str) -> ConfigError:
    """Say what is wrong, with the hint for the slips that are known."""
    hint = HINT
    if text.startswith("@") and re.fullmatch(r"@[0-9]+", text):
        hint = "@ is a time: write @2026-11-29T10:00Z; an offset stands without @"
    elif re.search(r"T[0-9]{2}:[0-9]{2}", text) and not re.search(r"Z|T[^:]+:.*[+-][0-9]{2}:[0-9]{2}", text):
        hint = "a time needs its zone: @2026-11-29T10:00Z or @2026-11-29T10:00+01:00"
    elif text.startswith(":") or text.endswith(":"):
        hint = "name both ends, such as start:100 or 100:end"
    return ConfigError(f"position {text[:80]!r} cannot be read", hint)
