"""Who looks whether another worker lives under its name."""

from __future__ import annotations

import pytest

from dispatcher.core.instant import Instant
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.namesakes import FIRST_LOOKS_S, LOOK_S, MOMENT_S, SECOND_LOOK_S, Namesakes

SESSION_S = 45.0


class Group(SystemClock):
    """A group, and a clock that is told the time."""

    def __init__(self) -> None:
        self.mono = 0.0
        self.members: set[str] | None = set()

    def now(self) -> Instant:
        return Instant(self.mono, 0.0)

    def look(self, names: Namesakes, *members: str, after_s: float = 10.0) -> str:
        self.mono += after_s
        self.members = set(members)
        names.look()
        return str(names.fault or "")


@pytest.fixture
def group() -> Group:
    """Make an empty one."""
    return Group()


def member(group: Group, own: str) -> Namesakes:
    """Make one who looks."""
    return Namesakes("7", lambda: group.members, lambda: own, group, SESSION_S)


def test_who_comes_later_stays(group: Group) -> None:
    """The one that was there before goes at its next look; to the other it may be a predecessor that has died."""
    older, newer = member(group, "a"), member(group, "b")
    assert FIRST_LOOKS_S == older.again_in_s
    assert "" == group.look(older, "a")
    assert LOOK_S == older.again_in_s
    assert "" == group.look(newer, "a", "b")
    assert "another worker has the slot '7'" in group.look(older, "a", "b")
    assert "" == group.look(newer, "b")


def test_who_has_the_higher_id_goes_if_the_other_has_not(group: Group) -> None:
    """The newer one has the older among those that were there before it, and stays."""
    older, newer = member(group, "b"), member(group, "a")
    assert "" == group.look(older, "b")
    assert "" == group.look(newer, "a", "b")
    assert "" == group.look(older, "a", "b")
    assert SECOND_LOOK_S == older.again_in_s > LOOK_S
    assert "" == group.look(newer, "a", "b", after_s=LOOK_S)
    assert "another worker has the slot '7'" in group.look(older, "a", "b")
    assert "" == group.look(newer, "a", after_s=SESSION_S + MOMENT_S)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_that_take_each_other_for_the_newcomer_one_goes(group: Group, *, is_first: bool) -> None:
    """The older stood still, was thrown out, and joined again when the newer had looked: whichever looks first, the same one goes."""
    older, newer = member(group, "b"), member(group, "a")
    assert "" == group.look(older, "b")
    assert "" == group.look(newer, "a")
    if is_first:
        assert "" == group.look(older, "a", "b", after_s=0)
    assert "another worker has the slot '7'" in group.look(newer, "a", "b")
    for _ in range(2):
        assert "" == group.look(older, "b", after_s=SECOND_LOOK_S)
    assert LOOK_S == older.again_in_s


def test_a_predecessor_that_has_died_is_nobody(group: Group) -> None:
    """It is a member until its session has run out."""
    again = member(group, "a")
    for _ in range(6):
        assert "" == group.look(again, "a", "z")
    assert "" == group.look(again, "a", after_s=SESSION_S + MOMENT_S)


def test_of_two_that_start_at_once_one_goes(group: Group) -> None:
    """Each was there when the other looked first."""
    one, other = member(group, "a"), member(group, "b")
    for names in (one, other):
        assert "" == group.look(names, "a", "b")
    faults = [group.look(names, "a", "b", after_s=SESSION_S + MOMENT_S) for names in (one, other)]
    assert [True, False] == [bool(fault) for fault in faults]


def test_who_was_thrown_out_and_joins_again_is_no_other(group: Group) -> None:
    """A classic member comes back under another id, and its old one may be there for a moment."""
    ids = ["a", "a", "b", "b", "b", "b"]
    names = Namesakes("7", lambda: group.members, lambda: ids.pop(0), group, SESSION_S)
    assert "" == group.look(names, "a")
    assert "" == group.look(names, "a", "b")
    assert "" == group.look(names, "a", "b")


def test_nothing_is_made_of_half_an_answer(group: Group) -> None:
    """Kafka is away, or does not know us yet, or we joined anew while it was asked: whoever is there may be ourselves."""
    changed = ["a", "b"]
    names = Namesakes("7", lambda: group.members, lambda: changed.pop(0) if changed else "b", group, SESSION_S)
    assert "" == group.look(names, "a", "b", "c")
    group.members = None
    names.look()
    assert "" == group.look(names, "c")
    assert "" == group.look(names, "b", "c")
    assert "another worker" in group.look(names, "b", "d")
