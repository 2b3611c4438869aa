"""An instant reads both clocks and writes only the wall's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.instant import Instant, rfc3339_s


def test_the_wall_clock_as_rfc3339() -> None:
    """UTC, milliseconds, Z; the monotonic clock has no part in it."""
    assert Instant(mono=99.0, wall=1795946400.25).rfc3339() == "2026-11-29T10:00:00.250Z"
    assert Instant(mono=0.0, wall=1795946400.25).rfc3339(later_s=90) == "2026-11-29T10:01:30.250Z"


@given(st.floats(0, 4e9), st.floats(0, 999_999_999.5))
def test_every_hint_that_is_understood_can_be_written_down(wall: float, later_s: float) -> None:
    """The longest `Retry-After` that is read (nine digits) lies within the calendar, to the millisecond below."""
    text = Instant(0.0, wall).rfc3339(later_s)
    assert text.endswith("Z")
    exact = datetime.fromtimestamp(wall + later_s, UTC)
    assert timedelta(0) <= exact - datetime.fromisoformat(text) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (1795946400.0, "2026-11-29T10:00:00Z"),
        (1795946400.5, "2026-11-29t10:00:00.500z"),
        (1795946400.0, "2026-11-29T12:00:00+02:00"),
        (1795946400.0, "2026-11-29T09:59:60Z"),
        (253402300800.0, "9999-12-31T23:59:60Z"),
        (None, "2026-11-29T10:00:00"),
        (None, "2026-11-29 10:00:00Z"),
        (None, "2026-11-29T10:00Z"),
        (None, "20261129T100000Z"),
        (None, "2026-02-30T10:00:00Z"),
        (None, "2026-11-29T24:00:00Z"),
        (None, "2026-11-29T10:00:61Z"),
        (None, "2026-11-29T10:00:00+99:00"),
        (None, "2026-11-29T10:00:00Z\n"),
        (None, "٢٠٢٦-11-29T10:00:00Z"),
        (None, ""),
    ],
)
def test_a_time_that_somebody_wrote(expected: float | None, text: str) -> None:
    """RFC 3339 and nothing else: what other readers of ISO 8601 take beside it would mean another time to somebody."""
    assert expected == rfc3339_s(text)


@given(st.floats(-1e9, 4e9))
def test_what_is_written_is_read(wall: float) -> None:
    """To the millisecond below."""
    read = rfc3339_s(Instant(0.0, wall).rfc3339())
    assert read is not None
    assert -1e-6 <= wall - read < 0.0011
