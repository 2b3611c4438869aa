"""Lengths of time: one spelling, one meaning."""

from __future__ import annotations

import pytest

from dispatcher.core.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("30", 30), ("2m", 120), ("1.5h", 5400), ("7d", 604_800), (" 10s ", 10), ("0", 0)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    """Units from ms to d; a bare number is seconds."""
    assert seconds == pytest.approx(parse_duration(text))


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1w", "1h30m", "nan", "inf", "1e3", "٣s", "99999999d"])
def test_what_is_no_length_of_time(text: str) -> None:
    """Signs, mixtures, unknown units and centuries are refused, not guessed."""
    with pytest.raises(ValueError, match=r"length of time|hundred years"):
        parse_duration(text)
