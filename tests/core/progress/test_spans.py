"""Ranges of offsets against a set that holds every offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.progress.spans import NUMBER_MAX_BYTES, Spans, number_bytes

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1])), max_size=30)


@given(RANGES)
def test_they_hold_what_was_added_in_as_few_as_possible(ranges: list[tuple[int, int]]) -> None:
    """In order, apart from each other, and exactly the offsets that were added."""
    spans = Spans(ranges)
    kept = list(spans)
    assert {offset for start, stop in kept for offset in range(start, stop)} == {n for start, stop in ranges for n in range(start, stop)}
    assert all(start < stop for start, stop in kept)
    assert all(before[1] < after[0] for before, after in pairwise(kept))
    assert [offset in spans for offset in range(70)] == [any(start <= offset < stop for start, stop in kept) for offset in range(70)]
    assert len(spans) == len(kept)


@given(RANGES, st.integers(0, 70))
def test_rising_forgets_what_is_below_and_runs_on(ranges: list[tuple[int, int]], position: int) -> None:
    """The mark stops at the first offset that is not there; the copy stays as it was."""
    spans = Spans(ranges)
    before = spans.copy()
    offsets = {offset for start, stop in spans for offset in range(start, stop)}
    reached = position
    while reached in offsets:
        reached += 1
    assert spans.rise(position) == reached
    assert {offset for start, stop in spans for offset in range(start, stop)} == {offset for offset in offsets if offset > reached}
    assert list(before) == list(Spans(ranges))


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)).map(lambda drawn: (drawn[0], sum(drawn))), max_size=30),
    st.integers(0, 10**6),
)
def test_their_size_is_known_all_the_while(ranges: list[tuple[int, int]], position: int) -> None:
    """What a commit note of them takes, but for the distance of the first, which is counted at its most."""
    spans = Spans()
    for start, stop in ranges:
        is_one_more = not spans.touches(start, stop)
        before = len(spans)
        spans.add(start, stop)
        assert is_one_more == (len(spans) > before)
    _agrees(spans)
    spans.rise(position)
    _agrees(spans)
    _agrees(spans.copy())


def _agrees(spans: Spans) -> None:
    ranges = list(spans)
    gaps = [start - stop for (_, stop), (start, _) in pairwise(ranges)]
    numbers = [*gaps, *(stop - start for start, stop in ranges)]
    assert spans.size_bytes == sum(map(number_bytes, numbers)) + (NUMBER_MAX_BYTES if ranges else 0)
