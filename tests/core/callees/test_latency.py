"""How long calls take: quantiles of samples of which some were cut off, and the last calls of each series."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.latency import (
    QUANTILE,
    SERIES_MAX,
    WHOLE_MIN,
    WINDOW,
    Latencies,
    Sample,
    quantile_s,
)
from dispatcher.core.messages.series import Series

CHAT = Series("openai", "m-1", is_stream=False)


def whole(*seconds: float) -> list[Sample]:
    """Calls that ended."""
    return [Sample(one) for one in seconds]


def cut(*seconds: float) -> list[Sample]:
    """Calls that were cut off."""
    return [Sample(one, was_cut=True) for one in seconds]


ROWS: list[tuple[str, list[Sample], float | None]] = [
    ("no sample", [], None),
    ("one", whole(3), 3),
    ("the 99th of a hundred", whole(*range(1, 101)), 99),
    ("one slow one of a hundred", whole(*[1.0] * 99, 60.0), 1),
    ("two slow ones of a hundred", whole(*[1.0] * 98, 60.0, 60.0), 60),
    ("the slowest of twenty", whole(*range(1, 21)), 20),
    # One in a hundred may take longer than P99 says, and was cut off.
    ("one cut off of a hundred", [*whole(*[1.0] * 99), *cut(1.5)], 1),
    ("two cut off of a hundred", [*whole(*[1.0] * 98), *cut(1.5, 1.5)], None),
    ("one cut off of twenty", [*whole(*[1.0] * 19), *cut(1.5)], None),
    # Cut off in the same moment: it would have taken longer.
    ("two cut off when the others ended", [*whole(*[1.0] * 98), *cut(1.0, 1.0)], None),
    # What was cut off before the others ended says little, and does not pull the estimate down.
    ("cut off early by its own time", [*whole(*[5.0] * 50), *cut(*[0.1] * 50)], 5),
    ("all cut off", cut(*[60.0] * 100), None),
    # A sixth takes longer than 1 s: half of that after 8 s, nothing after 9 s.
    ("cut off between", [*whole(*[1.0] * 20), *cut(2.0, 2.0), *whole(8.0, 9.0)], 9),
]


@pytest.mark.parametrize(("samples", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_quantile_counts_what_was_cut_off_as_longer(samples: list[Sample], expected: float | None) -> None:
    """P99 by the product-limit estimator, whatever the order in which the samples came; unknown where the upper end was cut off."""
    for seed in range(3):
        Random(seed).shuffle(samples)
        assert expected == quantile_s(samples)


SECONDS = st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0, 30.0, 60.0]) | st.floats(0.001, 100)
SAMPLES = st.lists(st.builds(Sample, SECONDS, st.booleans()), max_size=WINDOW)


@given(st.lists(SECONDS, min_size=1, max_size=WINDOW))
def test_where_nothing_was_cut_off_it_is_the_nearest_rank(seconds: list[float]) -> None:
    """The smallest time within which at least 99 of 100 ended; the quick way of a window gives the same."""
    expected = sorted(seconds)[math.ceil(len(seconds) * QUANTILE) - 1]
    assert expected == quantile_s(whole(*seconds))
    latencies = Latencies()
    for one in seconds:
        latencies.note(CHAT, Sample(one))
    assert latencies.quantile_s(CHAT) == (expected if len(seconds) >= WHOLE_MIN else None)


@given(SAMPLES)
def test_it_is_that_of_the_estimator_in_fractions(samples: list[Sample]) -> None:
    """The textbook's product over the moments at which calls ended, without rounding."""
    longer = Fraction(1)
    expected = None
    for moment in sorted({one.seconds for one in samples if not one.was_cut}):
        at_risk = sum(one.seconds >= moment for one in samples)
        ended = sum(one == Sample(moment) for one in samples)
        longer *= 1 - Fraction(ended, at_risk)
        if longer <= Fraction(1, 100):
            expected = moment
            break
    assert expected == quantile_s(samples)


@given(SAMPLES, SAMPLES, st.data())
def test_a_timeout_never_pulls_it_down(samples: list[Sample], more: list[Sample], data: st.DataObject) -> None:
    """Had a call that ended been cut off at that time, or any later one been added as cut off, P99 would not be less."""
    before = quantile_s(samples)
    censored = [Sample(one.seconds, one.was_cut or data.draw(st.booleans())) for one in samples]
    censored += [Sample(max(one.seconds, before or 0.0), was_cut=True) for one in more]
    after = quantile_s(censored)
    assert after is None or (before is not None and after >= before)


def test_so_few_are_no_estimate() -> None:
    """Twenty that ended are needed; one that was cut off is none of them."""
    latencies = Latencies()
    for number in range(WHOLE_MIN - 1):
        latencies.note(CHAT, Sample(1.0 + number))
        latencies.note(CHAT, Sample(0.1, was_cut=True))
    assert latencies.quantile_s(CHAT) is None
    latencies.note(CHAT, Sample(0.5))
    assert latencies.quantile_s(CHAT) == WHOLE_MIN - 1


@given(st.lists(st.builds(Sample, SECONDS, st.booleans()), max_size=3 * WINDOW))
def test_the_last_hundred_count(samples: list[Sample]) -> None:
    """What is older is forgotten, whether it ended or was cut off."""
    latencies = Latencies()
    for one in samples:
        latencies.note(CHAT, one)
    last = samples[-WINDOW:]
    expected = quantile_s(last) if sum(not one.was_cut for one in last) >= WHOLE_MIN else None
    assert expected == latencies.quantile_s(CHAT)


def test_each_series_is_by_itself() -> None:
    """Another upstream, model, or a stream takes its own time; of one without a call nothing is known."""
    latencies = Latencies()
    others = [CHAT._replace(upstream="azure"), CHAT._replace(model="m-2"), CHAT._replace(is_stream=True)]
    for number, series in enumerate([CHAT, *others], 1):
        for _ in range(WHOLE_MIN):
            latencies.note(series, Sample(float(number)))
    assert [1, 2, 3, 4] == [latencies.quantile_s(series) for series in [CHAT, *others]]
    assert latencies.quantile_s(CHAT._replace(model="m-3")) is None


def test_so_many_series_are_kept_and_the_least_recently_used_goes() -> None:
    """A sender that names a new model in each request costs no memory, and what is in use stays."""
    latencies = Latencies()
    for number in range(3 * SERIES_MAX):
        latencies.note(Series("openai", f"m-{number}", is_stream=False), Sample(9.0))
        if number < WHOLE_MIN or number % 100 == 0:
            latencies.note(CHAT._replace(model="used"), Sample(2.0))
    assert SERIES_MAX == len(latencies)
    assert latencies.quantile_s(CHAT._replace(model="used")) == 2
