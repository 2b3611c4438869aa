"""What callees take is divided fairly, wholly, and never beyond what there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.division import FLOOR_SHARE, Want, divide

TOTALS = st.integers(0, 300)
WANTS = st.builds(Want, st.integers(0, 400), st.integers(1, 120), st.booleans(), st.floats(0, 20))
MANY = st.dictionaries(st.sampled_from("abcdef"), WANTS, min_size=1)


@given(TOTALS, MANY)
def test_all_of_it_is_divided_and_no_more(total: int, wants: dict[str, Want]) -> None:
    """Everybody has a part, none of them less than nothing, and together they are what there is."""
    parts = divide(total, wants, 5.0)
    assert wants.keys() == parts.keys()
    assert (total, True) == (sum(parts.values()), all(part >= 0 for part in parts.values()))


@given(TOTALS, st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 400), min_size=1))
def test_nobody_has_less_than_another_while_it_wants_more(total: int, amounts: dict[str, int]) -> None:
    """Max-min fair, but for the one that a whole number leaves, and where there is at least one for each."""
    parts = divide(total, {name: Want(amount) for name, amount in amounts.items()}, 5.0)
    if total < len(amounts):
        return
    assert all(part >= 1 for part in parts.values())
    for short in (name for name, amount in amounts.items() if parts[name] < min(total, amount)):
        assert all(part <= parts[short] + 1 for part in parts.values())


@given(st.integers(1, 300), MANY)
def test_somebody_can_always_go_on(total: int, wants: dict[str, Want]) -> None:
    """Where anybody wants anything one of them has what is of use to it, however much that is."""
    parts = divide(total, wants, 5.0)
    wanting = {name: want for name, want in wants.items() if want.amount}
    assert not wanting or any(parts[name] >= min(total, want.least) for name, want in wanting.items())


@given(st.integers(1, 300), MANY)
def test_who_has_lacked_it_longest_is_next(total: int, wants: dict[str, Want]) -> None:
    """Once nobody has a turn of his own any more, whatever anybody else wants."""
    wants = {name: Want(want.amount, want.least, want.has, 9.0 if want.has else want.since_s) for name, want in wants.items()}
    lacking = {name: want for name, want in wants.items() if not want.has and want.amount}
    if not lacking:
        return
    name = min(lacking, key=lambda name: (-lacking[name].since_s, name))
    assert divide(total, wants, 5.0)[name] >= min(total, lacking[name].least, max(lacking[name].amount, 1)) or lacking[name].least == 1


def test_a_fortieth_is_for_those_who_want_nothing_yet() -> None:
    """So that the first call need not wait until others have given something up."""
    parts = divide(50 * FLOOR_SHARE, {"a": Want(10**9), "b": Want(0)}, 5.0)
    assert {"a": 50 * FLOOR_SHARE - 25, "b": 25} == parts


def test_nobody_is_nobody() -> None:
    """Nothing is divided among none."""
    assert {} == divide(10, {}, 5.0)
