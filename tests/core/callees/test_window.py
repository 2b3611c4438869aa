"""How much is used in a window: against another implementation, and where ours is stricter than it need be."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyrate_limiter import InMemoryBucket, Rate, RateItem, StateBucket, TokenBucket

from dispatcher.core.callees.bucket import Bucket
from dispatcher.core.callees.window import SLICES, Window

# Steps of time, in whole units, so that nothing is rounded; and how much is asked for then.
ASKED = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 12)), min_size=1, max_size=60)


def admits(counter: Window | Bucket, amount: int, capacity: int, now: float) -> bool:
    """Ask for so much; it is used where it may be."""
    if counter.free_at(amount, capacity, now) != now:
        return False
    counter.count(amount, capacity, now)
    return True


def asked_of_both(counter: Window | Bucket, other: Any, capacity: int, asked: list[tuple[int, int]]) -> None:
    """Both say the same to each; and where ours says when there will be room, there is none before for the other, and there is then."""
    now, number = 1_000_000, 0

    def theirs(amount: int, at: int) -> bool:
        nonlocal number
        number += 1
        return bool(other.put(RateItem(f"{number}", at, weight=amount)))

    for step, amount in asked:
        now += step
        expected = theirs(amount, now)
        assert expected is admits(counter, amount, capacity, now)
        if not expected and amount <= capacity:
            due = counter.free_at(amount, capacity, now)
            assert due is not None
            before, now = int(due - 1e-6), int(due + 1 - 1e-6)
            assert not theirs(amount, before)
            assert theirs(amount, now)
            assert admits(counter, amount, capacity, now)


@given(asked=ASKED, capacity=st.integers(1, 12))
def test_a_window_says_what_a_log_of_every_call_says(asked: list[tuple[int, int]], capacity: int) -> None:
    """pyrate-limiter's, which counts what began a whole window ago as well."""
    interval = SLICES - 10
    asked_of_both(Window(interval + 1), InMemoryBucket([Rate(capacity, interval)]), capacity, asked)


@given(asked=ASKED, capacity=st.sampled_from([1, 2, 4, 5, 8, 10]))
def test_a_bucket_says_what_the_cell_rate_algorithm_says(asked: list[tuple[int, int]], capacity: int) -> None:
    """pyrate-limiter's, whose bucket is kept as one timestamp."""
    asked_of_both(Bucket(1000), StateBucket([Rate(capacity, 1000, burst=capacity)], TokenBucket()), capacity, asked)


@given(
    asked=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 15)), min_size=2, max_size=60),
    capacity=st.sampled_from([1, 2, 4, 5, 8, 10]),
)
@example(asked=[*[(0, 15)] * 10, (0, 0)], capacity=10)
@example(asked=[(0, 15), (0, 0)], capacity=1)
def test_a_bucket_has_its_margin_for_the_way_too(asked: list[tuple[int, int]], capacity: int) -> None:
    """Each call as soon as it may go; some are later on their way than others, by the margin at most: the callee's bucket takes all."""
    counter, now, arrived = Bucket(1000, 15), 1_000_000, list[int]()
    for step, later in asked:
        due = counter.free_at(1, capacity, now + step)
        assert due is not None
        now = math.ceil(due - 1e-6)
        assert admits(counter, 1, capacity, now)
        arrived.append(now + later)
    callee = StateBucket([Rate(capacity, 1000, burst=capacity)], TokenBucket())
    assert all(callee.put(RateItem(f"{number}", at)) for number, at in enumerate(sorted(arrived)))


def test_a_margin_costs_a_bucket_nothing_that_lasts() -> None:
    """Ten in a second for a minute, as soon as each may go: all there is, but for what is late in the beginning."""
    counter, now, count = Bucket(1.0, 0.05), 5000.0, 0
    while (now := counter.free_at(1, 10, now) or 0.0) < 5060:
        counter.count(1, 10, now)
        count += 1
    assert 609 == count


@given(steps=st.lists(st.floats(0, 0.3), min_size=1, max_size=200), capacity=st.integers(1, 30))
def test_whatever_is_merged_no_window_takes_more(steps: list[float], capacity: int) -> None:
    """A long window whose slices are coarser than the calls: never more than so many in it, and one slice later than they might be."""
    span_s, now = 10.0, 5000.0
    counter, taken = Window(span_s), list[float]()
    for step in steps:
        now += step / 100
        is_let = admits(counter, 1, capacity, now)
        recent = [at for at in taken if at > now - span_s]
        assert not (is_let and len(recent) >= capacity)
        if not is_let:
            assert len([at for at in taken if at > now - span_s * (1 + 2 / SLICES)]) >= capacity
        taken += [now] * is_let


def test_the_log_is_never_long() -> None:
    """100,000 calls in one window are a thousand entries."""
    counter = Window(60.0)
    for n in range(100_000):
        counter.count(1, 1_000_000, 5000.0 + n * 0.0005)
    assert len(counter._log) <= SLICES


HITS = [0.0, *(0.9 + 0.1 * n / 9 for n in range(9)), *(1.0 + 0.1 * n / 10 for n in range(10))]


@pytest.mark.parametrize(("counter", "most"), [(Window(1.0), 10), (Bucket(1.0), 11)])
def test_what_comes_around_the_turn_of_a_second_is_no_way_around_the_limit(counter: Window | Bucket, most: int) -> None:
    """One at 0, nine just before 1, ten just behind it, for a limit of ten in a second: fixed windows let 19 through within 0.2 s.

    A bucket lets through what was refilled meanwhile; after a rest a whole one and a refill: that is what it is.
    """
    let = [at for at in HITS if admits(counter, 1, 10, at)]
    assert most == max(len([at for at in let if start <= at < start + 1]) for start in let)
    later = [at for n in range(100) if admits(counter, 1, 10, at := 100 + n / 100)]
    assert (10 if isinstance(counter, Window) else 19) == len(later)


def test_time_that_stands_still_or_leaps() -> None:
    """A worker that was frozen for a day finds an empty window; and one whose clock does not move finds it as it was."""
    for counter in (Window(60.0), Bucket(60.0)):
        assert [True] * 10 + [False] * 10 == [admits(counter, 1, 10, 5000.0) for _ in range(20)]
        assert [True] * 10 + [False] * 10 == [admits(counter, 1, 10, 91_400.0) for _ in range(20)]


def test_what_was_not_used_is_free_again_and_what_was_more_counts() -> None:
    """Both ways, while it is in the window and behind it."""
    counter = Window(10.0)
    slot = counter.count(80, 100, 0.0)
    assert 10.0 == counter.free_at(40, 100, 1.0)
    counter.correct(slot, -50, 100, 1.0)
    assert 1.0 == counter.free_at(70, 100, 1.0)
    counter.correct(slot, 100, 100, 2.0)
    assert 10.0 == counter.free_at(1, 100, 2.0)
    assert 10.0 == counter.free_at(100, 100, 10.0)
    counter.correct(slot, -30, 100, 11.0)
    assert 11.0 == counter.free_at(100, 100, 11.0)
    counter.correct(slot, 60, 100, 12.0)
    assert (12.0, 22.0) == (counter.free_at(40, 100, 12.0), counter.free_at(41, 100, 12.0))


def test_what_comes_back_late_to_a_bucket_has_been_refilled_meanwhile() -> None:
    """One call that was not sent, and another that was, of two in four seconds: a third one begins when it would have without the first."""
    counter = Bucket(4.0)
    unsent = counter.count(1, 2, 0.0)
    counter.count(1, 2, 2.0)
    counter.correct(unsent, -1, 2, 3.0)
    assert (3.0, 4.0) == (counter.free_at(1, 2, 3.0), counter.free_at(2, 2, 3.0))
    at_once = Bucket(4.0)
    at_once.correct(at_once.count(1, 2, 0.0), -1, 2, 0.0)
    assert 0.0 == at_once.free_at(2, 2, 0.0)


def test_more_than_there_is_in_a_whole_window_is_never_free() -> None:
    """Whoever asks decides what then."""
    assert (None, None) == (Window(1.0).free_at(11, 10, 0.0), Bucket(1.0).free_at(11, 10, 0.0))
