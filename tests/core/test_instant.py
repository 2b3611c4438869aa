"""An instant reads both clocks and writes only the wall's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.instant import Instant


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
