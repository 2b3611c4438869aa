"""Turns of the classes of a lane: one at a time, as their weights say, and nobody starves."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.core.lanes.floor import Floors, Share
from tests.core.turns import turns_max

THREE = (Share(3), Share(2), Share(1))
LANE = "doc:1"


def turns(floors: Floors[Any], count: int, ready: list[int]) -> list[int]:
    """Who calls in each of so many turns of a lane in which these classes always have something."""
    called = []
    for of in ready:
        floors.claim(LANE, of, of)
    for _ in range(count):
        (holder,) = [of for of in ready if floors.holds(LANE, of)]
        floors.begin(LANE, holder, holder)
        assert not any(floors.claim(LANE, of, of) for of in ready if of != holder), "one at a time"
        floors.end(LANE, holder, holder)
        floors.claim(LANE, holder, holder)
        called.append(holder)
    return called


def test_under_backlog_turns_are_as_the_weights() -> None:
    """3 : 2 : 1, and in every six turns already; of two that are left 3 : 1."""
    called = turns(Floors(THREE), 600, [0, 1, 2])
    assert {0: 300, 1: 200, 2: 100} == Counter(called)
    assert all({0: 3, 1: 2, 2: 1} == Counter(called[n : n + 6]) for n in range(0, 600, 6))
    assert {0: 300, 2: 100} == Counter(turns(Floors(THREE), 400, [0, 2]))


def test_a_class_that_was_away_saves_nothing_up() -> None:
    """It comes back with its weight, and not with all the turns that it did not take."""
    floors: Floors[Any] = Floors(THREE)
    turns(floors, 100, [0, 1])
    assert {0: 30, 1: 20, 2: 10} == Counter(turns(floors, 60, [0, 1, 2]))


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0]), min_size=2, max_size=5), st.integers(0, 40), st.data())
def test_who_stands_has_its_turn_within_the_bound(weights: list[float], before: int, data: st.DataObject) -> None:
    """However long the others were at it: the tag that it got when it began to stand is never looked at again."""
    floors: Floors[Any] = Floors([Share(weight) for weight in weights])
    late = data.draw(st.integers(0, len(weights) - 1))
    others = [of for of in range(len(weights)) if of != late]
    turns(floors, before, others)
    called = turns(floors, 200, [*others, late])
    assert called.index(late) <= turns_max(weights, late)


def test_a_class_that_has_all_its_calls_gives_way_and_comes_back() -> None:
    """To the others of its lane; and is called once one of its calls has ended, in whichever lane."""
    floors: Floors[Any] = Floors((Share(3, concurrency=1), Share(1)))
    assert floors.claim("a", 0, "a0")
    floors.begin("a", 0, "a0")
    assert not floors.claim("b", 0, "b0")
    assert floors.claim("b", 1, "b1")
    floors.begin("b", 1, "b1")
    floors.end("b", 1, "b1")
    floors.leave("b", 1, "b1")
    assert not floors.holds("b", "b0")
    floors.called()
    floors.end("a", 0, "a0")
    assert ["b0"] == floors.called()
    assert floors.claim("b", 0, "b0")


def test_who_cannot_use_a_call_of_its_class_passes_it_on() -> None:
    """Else it would be nobody's, until the next call of that class ends; and there may be none."""
    floors: Floors[Any] = Floors((Share(1, concurrency=1), Share(1)))
    for name, of, who in (("a", 0, "a0"), ("b", 1, "b1")):
        assert floors.claim(name, of, who)
        floors.begin(name, of, who)
    assert not floors.claim("c", 0, "c0")
    assert not floors.claim("d", 0, "d0")
    floors.called()
    floors.end("a", 0, "a0")
    assert ["c0"] == floors.called()
    floors.leave("c", 0, "c0")
    assert ["d0"] == floors.called()


def test_an_intent_that_is_withdrawn_was_no_turn() -> None:
    """Nothing was called: the class stands where it stood."""
    floors: Floors[Any] = Floors((Share(1), Share(2)))
    assert floors.claim(LANE, 0, 0)
    floors.begin(LANE, 0, 0)
    assert not floors.claim(LANE, 1, 1)
    floors.end(LANE, 0, 0, is_made=False)
    assert not floors.claim(LANE, 0, 0), "the other one came before"
    assert [1, 0, 1] == turns(floors, 3, [0, 1]), "and a turn of its own is twice as long"


class Classes(RuleBasedStateMachine):
    """Lanes whose classes come and go as they like: one call at a time in each, no class over its calls, nobody forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.floors: Floors[Any] = Floors((Share(3, concurrency=2), Share(2), Share(1, concurrency=1)))
        self.ready: set[tuple[str, int]] = set()
        self.calling: set[tuple[str, int]] = set()

    def look(self, name: str, of: int) -> None:
        """As the engine does: whoever is ready claims, and begins if it may."""
        if (name, of) in self.calling:
            return
        if (name, of) not in self.ready:
            self.floors.leave(name, of, (name, of))
        elif self.floors.claim(name, of, (name, of)):
            self.floors.begin(name, of, (name, of))
            self.calling.add((name, of))
            self.ready.discard((name, of))

    def go_on(self) -> None:
        """Until nobody is called any more."""
        while called := self.floors.called():
            for name, of in called:
                self.look(name, of)

    @rule(name=st.sampled_from("abcd"), of=st.integers(0, 2))
    def come(self, name: str, of: int) -> None:
        """Something of a class comes."""
        self.ready.add((name, of))
        self.look(name, of)
        self.go_on()

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        """What waits is cancelled."""
        who = data.draw(st.sampled_from(sorted(self.ready)))
        self.ready.discard(who)
        self.look(*who)
        self.go_on()

    @precondition(lambda self: self.calling)
    @rule(data=st.data(), more=st.booleans())
    def end(self, data: st.DataObject, *, more: bool) -> None:
        """A call ends, and more of its class may wait."""
        who = data.draw(st.sampled_from(sorted(self.calling)))
        self.calling.discard(who)
        self.floors.end(*who, who)
        if more:
            self.ready.add(who)
        self.look(*who)
        self.go_on()

    @invariant()
    def one_at_a_time(self) -> None:
        """In a lane, and of a class no more than it may have."""
        assert all(count == 1 for count in Counter(name for name, _ in self.calling).values())
        of = Counter(of for _, of in self.calling)
        assert of[0] <= 2
        assert of[2] <= 1

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Who waits waits for a call of its lane to end, or for one of its class."""
        of, busy = Counter(of for _, of in self.calling), {name for name, _ in self.calling}
        for name, mine in self.ready:
            assert name in busy or of[mine] >= {0: 2, 2: 1}.get(mine, 99)


TestClasses = Classes.TestCase
