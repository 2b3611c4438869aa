"""A line in which the more urgent go first, and nobody waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.priority_line import PATIENCE_TURNS, PriorityLine

PRIORITIES = st.integers(0, 9)


def line(*priorities: int) -> PriorityLine[int]:
    """A line in which number n has the n-th priority."""
    made: PriorityLine[int] = PriorityLine()
    for number, priority in enumerate(priorities):
        made.join(number, priority)
    return made


def test_the_most_urgent_goes_first_and_of_equals_the_first_that_came() -> None:
    """9 before 4 before 0; two of one priority in their order."""
    of = line(4, 0, 9, 4, 9)
    assert [2, 4, 0, 3, 1, None] == [of.take() for _ in range(6)]


@given(st.lists(st.tuples(PRIORITIES, st.booleans()), max_size=200))
def test_those_of_one_priority_take_turns(steps: list[tuple[int, bool]]) -> None:
    """Of one priority alone it is first come, first served, whoever comes meanwhile."""
    of: PriorityLine[int] = PriorityLine()
    here: list[int] = []
    for number, (_, comes) in enumerate(steps):
        if comes:
            of.join(number, 4)
            here.append(number)
        else:
            assert (here.pop(0) if here else None) == of.take()


@given(st.lists(PRIORITIES, max_size=30), st.lists(st.lists(PRIORITIES, max_size=3), min_size=400, max_size=400), st.integers(0, 9))
def test_the_least_urgent_has_its_turn_within_the_bound(before: list[int], comers: list[list[int]], skew: int) -> None:
    """Behind n others it is taken within `PATIENCE_TURNS * (n + 1)` turns, whoever comes after it, and wherever the count stood."""
    of = line(*before, *([9] * skew))
    for _ in range(skew):
        of.take()
    number, ahead = 10_000, len(of)
    of.join(-1, 0)
    for turn in range(1, PATIENCE_TURNS * (ahead + 1) + 1):
        for priority in comers[turn % len(comers)] or [9]:
            number += 1
            of.join(number, priority)
        if of.take() == -1:
            return
    raise AssertionError(f"no turn behind {ahead} others")


@given(st.lists(PRIORITIES, max_size=40), st.sets(st.integers(0, 40)), st.integers(0, 50))
def test_who_may_not_go_is_passed_and_keeps_its_place(priorities: list[int], kept: set[int], count: int) -> None:
    """Of `count` turns each is that of somebody who may go; nobody is lost, and the others stand as they stood."""
    of = line(*priorities)
    taken = of.take_some(count, lambda number: number not in kept)
    may = [number for number in range(len(priorities)) if number not in kept]
    assert min(count, len(may)) == len(taken) == len(set(taken))
    assert set(taken) <= set(may)
    assert [number for number in range(len(priorities)) if number not in taken] == list(of)


@given(st.lists(PRIORITIES, max_size=40), st.integers(0, 45))
def test_many_turns_at_once_are_those_of_one_by_one(priorities: list[int], count: int) -> None:
    """`take_some` is `take`, again and again."""
    at_once, one_by_one = line(*priorities), line(*priorities)
    assert [found for _ in range(count) if (found := one_by_one.take()) is not None] == at_once.take_some(count)


def test_another_priority_keeps_the_place_among_all() -> None:
    """Its next request is less urgent: it goes behind those of that priority, and the tenth turn is its own still."""
    of = line(9, *[9] * 12)
    of.join(0, 0)
    assert [*range(1, 10), 0, 10, 11, 12] == [of.take() for _ in range(13)]


def test_who_leaves_stands_here_no_more() -> None:
    """Once; and who stands there twice has one place."""
    of = line(1, 2)
    of.join(1, 2)
    assert (2, True) == (len(of), 1 in of)
    assert (True, False) == (of.leave(1), of.leave(1))
    assert [0, None] == [of.take(), of.take()]


def test_the_first_is_whose_turn_it_would_be() -> None:
    """Looking takes nobody out; who stays has had a turn all the same, and each tenth is the first comer's."""
    looked, taken = line(0, *[9] * 30), line(0, *[9] * 30)
    for _ in range(31):
        assert looked.first == looked.first
        first = looked.first
        assert taken.take() == first
        looked.serve()
        looked.leave(first)


def test_who_stands_beside_somebody() -> None:
    """The first of those as urgent, how many these are, and how many are more urgent."""
    assert (1, 2, 3) == line(0, 4, 9, 4, 9, 9).beside(3)
