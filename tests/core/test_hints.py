"""Retry-After, as callees write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.hints import DATES, LONGEST_S, retry_after_s

NOW = 1795952211.0  # Sun, 29 Nov 2026 11:36:51 GMT


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
    assert seconds == retry_after_s((("retry-after", text),), NOW)


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", "1e3", ".5", "5.", "1,5", "inf", "Infinity", "nan", "0x10", "1_000", "1 2", "10s", "1" * 10, "٣", "³"],
)
def test_what_is_no_number_of_seconds_says_nothing(text: str) -> None:
    """No crash, no endless wait, no wait that nobody meant; ten digits and more are an epoch or nonsense."""
    assert retry_after_s((("retry-after", text),), NOW) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sun, 29 Nov 2026 11:37:11 GMT", 20.0),
        (" Sun, 29 Nov 2026 11:37:11 GMT ", 20.0),
        ("Sunday, 29-Nov-26 11:37:11 GMT", 20.0),
        ("Sun Nov 29 11:37:11 2026", 20.0),
        ("Tue Dec  1 11:36:51 2026", 2 * 86_400.0),
        ("Sun, 29 Nov 2026 11:36:50 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_S),
        ("Sat, 01 Jan 0001 00:00:00 GMT", 0.0),
    ],
)
def test_a_date_is_read_in_the_three_forms_of_http(text: str, seconds: float) -> None:
    """Counted from our clock where the answer has no date of its own; one that has passed is 0."""
    assert seconds == retry_after_s((("retry-after", text),), NOW)


def test_a_date_counts_from_the_callee_s_own_clock() -> None:
    """An hour of difference between the clocks is no hour of waiting, nor none at all."""
    for sent, seconds in (("Sun, 29 Nov 2026 11:37:01 GMT", 10), ("Sun, 29 Nov 2026 10:37:11 GMT", 3600), ("yesterday", 20)):
        assert seconds == retry_after_s((("date", sent), ("retry-after", "Sun, 29 Nov 2026 11:37:11 GMT")), NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("Sun, 29 Nov 2026 11:37:11", "Sun, 29 Nov 2026 11:37:11 UTC", "Sun, 29 Nov 2026 11:37:11 +0000", "29 Nov 2026 11:37:11 GMT"),
        *(
            "Sun, 31 Nov 2026 11:37:11 GMT",
            "Sun, 29 nov 2026 11:37:11 GMT",
            "Sun, 29 Foo 2026 11:37:11 GMT",
            "Sun, 29 Nov 2026 24:00:00 GMT",
        ),
        *("2026-11-29T11:37:11Z", "Sun, 29 Nov 0000 11:37:11 GMT", "Sun, ٢٩ Nov 2026 11:37:11 GMT"),
    ],
)
def test_what_is_no_date_of_http_says_nothing(text: str) -> None:
    """Neither a guess nor a crash."""
    assert retry_after_s((("retry-after", text),), NOW) is None


def test_the_last_header_that_is_understood_counts() -> None:
    """Proxies add a second one behind the callee's; an unreadable one does not hide a readable one."""
    assert retry_after_s((("retry-after", "5"), ("x", "1"), ("retry-after", "7")), NOW) == 7
    assert retry_after_s((("retry-after", "5"), ("retry-after", "soon")), NOW) == 5
    assert retry_after_s((("x-retry-after", "5"), ("content-type", "5")), NOW) is None
    assert retry_after_s((), NOW) is None


@given(st.text(max_size=30) | st.one_of(*(st.from_regex(form, fullmatch=True) for form in DATES)))
def test_any_text_is_survived(text: str) -> None:
    """Whatever a callee sends, the hint is absent or a finite number that is not negative."""
    told = retry_after_s((("date", text), ("retry-after", text)), NOW)
    assert told is None or 0 <= told < 1e9
