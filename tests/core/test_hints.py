"""Retry-After in seconds, as callees write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.hints import retry_after_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20", 20.0),
        ("1.5", 1.5),
        ("0.4", 0.4),
        ("0", 0.0),
        ("  3 ", 3.0),
        ("007", 7.0),
        ("600", 600.0),
        ("999999999.999999999", 999_999_999.999999999),
    ],
)
def test_seconds_are_read_with_their_fraction(text: str, seconds: float) -> None:
    """Decimals count (others cut 1.5 to 1 and 0.4 to 0)."""
    assert seconds == retry_after_s((("retry-after", text),))


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", "1e3", ".5", "5.", "1,5", "inf", "Infinity", "nan", "0x10", "1_000", "1 2", "10s", "1" * 10, "٣", "³"],
)
def test_what_is_no_number_of_seconds_says_nothing(text: str) -> None:
    """No crash, no endless wait, no wait that nobody meant; ten digits and more are an epoch or nonsense."""
    assert retry_after_s((("retry-after", text),)) is None


def test_a_date_is_not_read_yet() -> None:
    """The other form of RFC 9110 says nothing here, and does not crash."""
    assert retry_after_s((("retry-after", "Sun, 29 Nov 2026 11:37:11 GMT"),)) is None


def test_the_last_header_that_is_understood_counts() -> None:
    """Proxies add a second one behind the callee's; an unreadable one does not hide a readable one."""
    assert retry_after_s((("retry-after", "5"), ("x", "1"), ("retry-after", "7"))) == 7
    assert retry_after_s((("retry-after", "5"), ("retry-after", "soon"))) == 5
    assert retry_after_s((("x-retry-after", "5"), ("content-type", "5"))) is None
    assert retry_after_s(()) is None


@given(st.text(max_size=30))
def test_any_text_is_survived(text: str) -> None:
    """Whatever a callee sends, the hint is absent or a finite number that is not negative."""
    told = retry_after_s((("retry-after", text),))
    assert told is None or 0 <= told < 1e9
