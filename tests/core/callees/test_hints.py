"""When to come back, as callees write it in the head of an answer: a table for each grammar, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.hints import DATES, DURATION, LONGEST_S, duration_s, hint_s
from dispatcher.core.messages.call import HeaderPairs

NOW = 1795952211.0  # Sun, 29 Nov 2026 11:36:51 GMT


def told_s(headers: HeaderPairs, wall: float = NOW, *, is_limit: bool = True) -> float | None:
    """The hint of an answer of a limit, unless told otherwise."""
    return hint_s(headers, wall, is_limit=is_limit)


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
        ("999999999", 999_999_999.0),
        ("999999999.9", LONGEST_S),
    ],
)
def test_seconds_are_read_with_their_fraction(text: str, seconds: float) -> None:
    """Decimals count (others cut 1.5 to 1 and 0.4 to 0)."""
    assert seconds == told_s((("retry-after", text),), NOW)


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", "1e3", ".5", "5.", "1,5", "inf", "Infinity", "nan", "0x10", "1_000", "1 2", "10s", "1" * 10, "٣", "³"],
)
def test_what_is_no_number_of_seconds_says_nothing(text: str) -> None:
    """No crash, no endless wait, no wait that nobody meant; ten digits and more are an epoch or nonsense."""
    assert told_s((("retry-after", text),), NOW) is None


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
    assert seconds == told_s((("retry-after", text),), NOW)


def test_a_date_counts_from_the_callee_s_own_clock() -> None:
    """An hour of difference between the clocks is no hour of waiting, nor none at all."""
    for sent, seconds in (("Sun, 29 Nov 2026 11:37:01 GMT", 10), ("Sun, 29 Nov 2026 10:37:11 GMT", 3600), ("yesterday", 20)):
        assert seconds == told_s((("date", sent), ("retry-after", "Sun, 29 Nov 2026 11:37:11 GMT")), NOW)


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
    assert told_s((("retry-after", text),), NOW) is None


def test_the_last_header_that_is_understood_counts() -> None:
    """Proxies add a second one behind the callee's; an unreadable one does not hide a readable one."""
    assert told_s((("retry-after", "5"), ("x", "1"), ("retry-after", "7")), NOW) == 7
    assert told_s((("retry-after", "5"), ("retry-after", "soon")), NOW) == 5
    assert told_s((("x-retry-after", "5"), ("content-type", "5")), NOW) is None
    assert told_s((), NOW) is None


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms"])
@pytest.mark.parametrize(("text", "seconds"), [("250", 0.25), (" 1500.5 ", 1.5005), ("0", 0.0), ("999999999", 999_999.999)])
def test_milliseconds_are_milliseconds(name: str, text: str, seconds: float) -> None:
    """Both spellings, decimals too."""
    assert seconds == told_s(((name, text),))


@pytest.mark.parametrize("text", ["", "-1", "1e3", "inf", "250ms", "1" * 10, "Sun, 29 Nov 2026 11:37:11 GMT"])
def test_what_is_no_number_of_milliseconds_hides_nothing(text: str) -> None:
    """The next spelling is asked then."""
    assert told_s((("retry-after-ms", text),)) is None
    assert told_s((("retry-after-ms", text), ("x-ms-retry-after-ms", text), ("retry-after", "3"))) == 3


def test_the_most_exact_spelling_counts_wherever_it_stands() -> None:
    """Milliseconds before seconds, and what a callee says outright before the reset of a limit."""
    spelled = (("retry-after", "1"), ("x-ms-retry-after-ms", "300"), ("retry-after-ms", "250"), ("x-ratelimit-reset-tokens", "6m0s"))
    for first, seconds in ((0, 0.25), (1, 0.25), (2, 0.25)):
        assert seconds == told_s((*spelled[first:], *spelled[:first]))
    assert told_s(spelled[:2]) == 0.3
    assert told_s((spelled[3], spelled[0])) == 1
    assert told_s(spelled[3:]) == 360


DURATIONS = [
    *(("6m0s", 360.0), ("2m59.56s", 179.56), ("500ms", 0.5), ("1h30m", 5400.0), ("1h0m0s", 3600.0), ("8.64s", 8.64), ("0s", 0.0)),
    *(("1.5µs", 1.5e-6), ("12us", 12e-6), ("7ns", 7e-9), ("1h2m3s4ms", 3723.004), ("999999999h", LONGEST_S)),
]
NO_DURATIONS = ["", "s", "1x", "-1s", "1s1m", "1m1m", "1 s", "1m 2s", ".5s", "5.s", "1d", "1S", "infs", "٣s", "1s.", "1" * 10 + "s"]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_a_duration_is_read_as_go_prints_it(text: str, seconds: float) -> None:
    """Hours, minutes, seconds, and what is less, with fractions."""
    assert seconds == pytest.approx(duration_s(text))
    assert seconds == pytest.approx(told_s((("x-ratelimit-reset-tokens", text),)))


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration_says_nothing(text: str) -> None:
    """Each unit at most once, the large ones first, no sign, no space."""
    assert duration_s(text) is None
    assert told_s((("x-ratelimit-reset-tokens", text),)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("17", 17.0),
        ("0.25", 0.25),
        ("999999999", 999_999_999.0),
        ("1795952231", 20.0),
        ("1795952231.5", 20.5),
        ("1795952231500", 20.5),
        ("1795952210", 0.0),
        ("2026-11-29T11:37:11Z", 20.0),
        ("2026-11-29T11:37:11.250Z", 20.25),
        ("2026-11-29T12:37:11+01:00", 20.0),
        ("2026-11-29T11:36:50Z", 0.0),
        ("9999-12-31T23:59:59Z", LONGEST_S),
    ],
)
@pytest.mark.parametrize(
    "name", ["x-ratelimit-reset-requests", "x-ratelimit-reset", "ratelimit-reset", "anthropic-ratelimit-input-tokens-reset"]
)
def test_a_reset_is_read_in_each_way_to_write_it(name: str, text: str, seconds: float) -> None:
    """Seconds, seconds or milliseconds since 1970, or RFC 3339; what has passed is 0."""
    assert seconds == told_s(((name, text),))


@pytest.mark.parametrize("text", ["-17", "1e3", "nan", "soon", "2026-11-29", "2026-11-29T11:37:11", "2026-13-29T11:37:11Z", "1" * 14, ""])
def test_what_is_no_reset_says_nothing(text: str) -> None:
    """A date without its zone is none."""
    assert told_s((("x-ratelimit-reset-requests", text),)) is None


def test_a_time_counts_from_the_callee_s_own_clock_in_every_grammar() -> None:
    """Its clock is an hour behind ours."""
    behind = ("date", "Sun, 29 Nov 2026 10:36:51 GMT")
    for name, text in (("x-ratelimit-reset", "1795948631"), ("anthropic-ratelimit-requests-reset", "2026-11-29T10:37:11Z")):
        assert told_s((behind, (name, text))) == 20


LIMITS = [
    # The dimension that is used up, though another is named first, or takes longer.
    ({"requests": ("40", "1s"), "tokens": ("0", "6m0s")}, 360),
    ({"requests": ("0", "1s"), "tokens": ("40", "6m0s")}, 1),
    ({"tokens": ("0", "6m0s"), "requests": ("0", "1s")}, 360),
    ({"tokens": ("-3", "6m0s"), "requests": ("0.0", "1s")}, 360),
    # Nothing is used up: the limit is another one.
    ({"requests": ("40", "1s"), "tokens": ("12", "6m0s")}, None),
    # What is left is not said: the longest. It is said of one: the others do not count.
    ({"requests": (None, "1s"), "tokens": (None, "6m0s")}, 360),
    ({"requests": ("0", "1s"), "tokens": (None, "6m0s")}, 1),
    ({"requests": ("none", "1s"), "tokens": ("none", "6m0s")}, 360),
    # A reset that is not understood does not hide one that is.
    ({"requests": ("0", "1s"), "tokens": ("0", "later")}, 1),
]


@pytest.mark.parametrize(("limits", "seconds"), LIMITS)
@pytest.mark.parametrize("spelling", ["x-ratelimit-{what}-{of}", "anthropic-ratelimit-{of}-{what}"])
def test_the_longest_dimension_that_is_used_up_counts(
    limits: dict[str, tuple[str | None, str]], seconds: float | None, spelling: str
) -> None:
    """Whatever the order of the headers."""
    headers: list[tuple[str, str]] = []
    for of, (left, reset) in limits.items():
        headers.append((spelling.format(what="reset", of=of), reset))
        headers += [] if left is None else [(spelling.format(what="remaining", of=of), left)]
    assert seconds == told_s(tuple(headers))
    assert seconds == told_s(tuple(reversed(headers)))


def test_limits_speak_only_where_one_was_met() -> None:
    """They stand in every answer: behind a 500 they say nothing of when the callee will be well again."""
    limits = (("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s"))
    assert told_s(limits, is_limit=False) is None
    assert told_s((*limits, ("retry-after", "2")), is_limit=False) == 2
    assert told_s((("anthropic-ratelimit-unified-7d-reset", "1796952211"),)) is None


NAMES = st.sampled_from(
    [
        *("date", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens"),
        *("x-ratelimit-remaining-tokens", "anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.integers(0, 10**16).map(str),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    *(st.from_regex(form, fullmatch=True) for form in (*DATES, DURATION)),
)


@given(st.lists(st.tuples(NAMES, TEXTS), max_size=6))
def test_any_head_is_survived(headers: list[tuple[str, str]]) -> None:
    """Whatever a callee sends, the hint is absent or a finite number that is not negative."""
    told = told_s(tuple(headers))
    assert told is None or 0 <= told < 1e9
