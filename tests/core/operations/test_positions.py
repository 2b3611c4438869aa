from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.operations.positions import END, NUMBER_MAX, START, UNITS_MS, Anchor, Position, Span, parse_position, parse_span
from dispatcher.errors import ConfigError

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
NOW_MS = 1_795_953_600_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", START),
        ("end", END),
        ("0", Position(Anchor.OFFSET, 0)),
        ("57", Position(Anchor.OFFSET, 57)),
        (str(NUMBER_MAX), Position(Anchor.OFFSET, NUMBER_MAX)),
        ("+0", START),
        ("+5", Position(Anchor.START, 5)),
        ("-0", END),
        ("-5", Position(Anchor.END, 5)),
        ("1795953600000", Position(Anchor.OFFSET, NOW_MS)),
        ("@-1h", Position(Anchor.TIME, NOW_MS - HOUR_MS)),
        ("@-90m", Position(Anchor.TIME, NOW_MS - HOUR_MS * 3 // 2)),
        ("@-5s", Position(Anchor.TIME, NOW_MS - 5000)),
        ("@-1d", Position(Anchor.TIME, NOW_MS - 24 * HOUR_MS)),
        ("@-0s", Position(Anchor.TIME, NOW_MS)),
        ("@-99999999999999d", Position(Anchor.TIME, 0)),
        ("@2026-11-29T10:00Z", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS)),
        ("@2026-11-29T10:00:30Z", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS + 30_000)),
        ("@2026-11-29T10:00:30.25Z", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS + 30_250)),
        ("@2026-11-29T12:00+02:00", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS)),
        ("@1960-01-01T00:00Z", Position(Anchor.TIME, 0)),
    ],
)
def test_one_spelling_has_one_meaning(text: str, expected: Position) -> None:
    """Every documented spelling is read as documented: a bare number is an offset, `@` is a time."""
    assert Span(expected) == parse_span(text, NOW)
    assert expected == parse_position(text, NOW)


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("start:end", START, END),
        ("5:7", Position(Anchor.OFFSET, 5), Position(Anchor.OFFSET, 7)),
        ("5:5", Position(Anchor.OFFSET, 5), Position(Anchor.OFFSET, 5)),
        ("-10:-2", Position(Anchor.END, 10), Position(Anchor.END, 2)),
        ("+1:-1", Position(Anchor.START, 1), Position(Anchor.END, 1)),
        ("@-2h:@-1h", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS), Position(Anchor.TIME, NOW_MS - HOUR_MS)),
        ("@2026-11-29T10:00Z:57", Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS), Position(Anchor.OFFSET, 57)),
        (
            "@2026-11-29T10:00+01:00:@2026-11-29T11:00:30+01:00",
            Position(Anchor.TIME, NOW_MS - 3 * HOUR_MS),
            Position(Anchor.TIME, NOW_MS - 2 * HOUR_MS + 30_000),
        ),
        ("57:@-0s", Position(Anchor.OFFSET, 57), Position(Anchor.TIME, NOW_MS)),
    ],
)
def test_a_range_is_two_positions(text: str, since: Position, until: Position) -> None:
    """The colon between FROM and TO is never taken for the colon of a time."""
    assert Span(since, until) == parse_span(text, NOW)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "start, end"),
        ("START", "start, end"),
        ("latest", "start, end"),
        ("@", "start, end"),
        ("@5", "an offset stands without @"),
        ("@1h", "start, end"),
        ("@-1", "start, end"),
        ("@-1w", "start, end"),
        ("@+1h", "start, end"),
        ("@2026-11-29", "start, end"),
        ("@2026-11-29T10:00", "needs its zone"),
        ("@2026-11-29T10:00:30", "needs its zone"),
        ("@2026-13-29T10:00Z", "start, end"),
        ("@2026-11-29T25:00Z", "start, end"),
        ("5:", "name both ends"),
        (":5", "name both ends"),
        ("1:2:3", "start, end"),
        ("--5", "start, end"),
        ("5.0", "start, end"),
        (" 5", "start, end"),
        ("\u0665", "start, end"),
        ("9223372036854775808", "at most"),
        ("7:5", "FROM stands before TO"),
        ("-2:-10", "FROM stands before TO"),
        ("end:start", "FROM stands before TO"),
        ("@-1h:@-2h", "FROM stands before TO"),
    ],
)
def test_what_has_no_meaning_is_refused_with_a_hint(text: str, hint: str) -> None:
    """Nothing is guessed: another spelling is an error that says what to write."""
    with pytest.raises(ConfigError) as caught:
        parse_span(text, NOW)
    assert hint in caught.value.hint


def test_a_range_is_refused_where_one_position_is_wanted() -> None:
    """`parse_position` takes no range."""
    with pytest.raises(ConfigError, match="is a range"):
        parse_position("1:2", NOW)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (START, 10),
        (END, 50),
        (Position(Anchor.START, 5), 15),
        (Position(Anchor.START, 500), 50),
        (Position(Anchor.END, 5), 45),
        (Position(Anchor.END, 500), 10),
        (Position(Anchor.OFFSET, 3), 3),
        (Position(Anchor.OFFSET, 77), 77),
    ],
)
def test_positions_are_taken_in_each_partition(position: Position, expected: int) -> None:
    """Counting from start or end stays within the partition; an offset is an offset."""
    assert expected == position.offset(10, 50)


def test_a_time_needs_the_broker() -> None:
    """Asking a time for its offset is a mistake of ours, not an answer."""
    with pytest.raises(ValueError, match="time"):
        Position(Anchor.TIME, 1).offset(0, 1)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises anything but ConfigError."""
    with contextlib.suppress(ConfigError):
        parse_span(text, NOW)


@given(st.sampled_from(["", "+", "-"]), st.integers(0, NUMBER_MAX))
def test_numbers_come_back(sign: str, number: int) -> None:
    """Every offset and distance that Kafka can have is read exactly."""
    expected = Position({"": Anchor.OFFSET, "+": Anchor.START, "-": Anchor.END}[sign], number)
    assert expected == parse_position(f"{sign}{number}", NOW)


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])),  # noqa: DTZ001 - the zone is drawn
    st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_times_come_back(time: datetime, precision: str) -> None:
    """A time in any zone and precision is read to the millisecond, rounded down, also as both ends of a range."""
    text = f"@{time.isoformat(timespec=precision)}"
    read = datetime.fromisoformat(text[1:])
    expected = Position(Anchor.TIME, (read - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
    assert Span(expected, expected) == parse_span(f"{text}:{text}", NOW)


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS_MS)))
def test_ages_count_from_now(number: int, unit: str) -> None:
    """`@-N<unit>` is that long before `now`, never before 1970."""
    assert Position(Anchor.TIME, max(0, NOW_MS - number * UNITS_MS[unit])) == parse_position(f"@-{number}{unit}", NOW)
