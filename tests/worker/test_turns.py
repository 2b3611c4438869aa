"""Who may call next: the most urgent, of equals the first; slots of the worker and of a partition; nobody waits while there is a slot."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.instant import Instant
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Ready
from dispatcher.worker.turns import Turns
from tests.specimens import decoder, record, value

DECODER = decoder()
NOW = Instant(0.0, 0.0)
ROOM = Room(records=100, size_bytes=1 << 20, unpublished_s=10)


def partition(number: int = 0) -> Partition:
    """An assignment of its own."""
    return Partition(Owner(number, 7), 0, DECODER, ROOM)


def lanes(of: Partition, count: int) -> list[Lane]:
    """Lanes of a partition, by key."""
    return [Lane(of.owner, DECODER, b"k%d" % n) for n in range(count)]


def urgent(of: Partition, *priorities: int) -> list[Lane]:
    """Lanes of a partition whose next requests have these priorities."""
    made = lanes(of, len(priorities))
    for lane, priority in zip(made, priorities, strict=True):
        lane.add(record(value(priority=priority)), 0.0)
        assert isinstance(lane.next(NOW, may_call=False), Ready)
    return made


def go(turns: Turns) -> Lane | None:
    """The lane whose turn it is takes its slot."""
    turn = turns.next()
    if turn is None:
        return None
    assert turns.has_slot(turn[0], has_turn=True)
    turns.take(turn[0])
    return turn[1]


def test_the_first_that_came_is_the_first_that_goes() -> None:
    """Two slots, four lanes; one that asks again keeps its place."""
    turns, of = Turns(2, 10), partition()
    first, second, third, fourth = lanes(of, 4)
    for lane in (first, second, third, second, fourth):
        turns.stand(of, lane)
    assert [first, second, None] == [go(turns) for _ in range(3)]
    turns.give_back(of)
    assert [third, None] == [go(turns) for _ in range(2)]


def test_who_comes_later_does_not_pass_the_line() -> None:
    """There is a slot, and somebody in line for it."""
    turns, of = Turns(1, 10), partition()
    turns.stand(of, lanes(of, 1)[0])
    assert not turns.has_slot(of, has_turn=False)
    assert turns.has_slot(of, has_turn=True)


def test_the_most_urgent_goes_first() -> None:
    """In line; and of those that stand aside, whose partition has one slot of its own."""
    turns, of, full = Turns(10, 10), partition(), partition(1)
    low, usual, high, other = urgent(of, 0, 4, 9, 4)
    for lane in (low, usual, high, other):
        turns.stand(of, lane)
    assert [high, usual, other, low] == [go(turns) for _ in range(4)]
    turns, standing = Turns(10, 1), urgent(full, 3, 0, 9)
    for lane in standing:
        turns.stand(full, lane, aside=True)
    went = []
    for _ in standing:
        turns.release(full)
        went.append(go(turns))
        turns.give_back(full)
    assert [standing[2], standing[0], standing[1]] == went


def test_a_lane_of_the_lowest_priority_is_not_starved() -> None:
    """One slot, and two lanes of the highest priority that are ready again at once: every tenth turn is the other one's."""
    turns, of = Turns(1, 10), partition()
    low, first, second = urgent(of, 0, 9, 9)
    for lane in (low, first, second):
        turns.stand(of, lane)
    went = []
    for _ in range(40):
        turn = go(turns)
        assert turn is not None
        went.append(turn)
        turns.give_back(of)
        turns.stand(of, turn)
    assert [9, 19, 29, 39] == [turn for turn, lane in enumerate(went) if lane is low]
    assert {first: 18, second: 18, low: 4} == Counter(went)


def test_a_full_partition_does_not_stop_the_others() -> None:
    """Its lanes stand aside; each call that ends there brings back one of them, the first that came."""
    turns, full, other = Turns(10, 1), partition(), partition(1)
    turns.take(full)
    first, second = lanes(full, 2)
    (third,) = lanes(other, 1)
    turns.stand(full, first)
    turns.stand(full, second)
    turns.stand(other, third)
    assert [third, None] == [go(turns), go(turns)]
    turns.give_back(full)
    turns.release(full)
    assert [first, None] == [go(turns), go(turns)]


def test_only_those_that_may_start_come_back() -> None:
    """Where a commit's map is full, only what fills a gap in it may go: it passes the others."""
    turns, of = Turns(10, 10), partition()
    first, second = lanes(of, 2)
    turns.stand(of, first, above=True)
    turns.stand(of, second, above=True)
    turns.release(of)
    assert None is go(turns)
    turns.rise(of, lambda lane: lane is second)
    assert [second, None] == [go(turns), go(turns)]
    turns.rise(of, lambda _: True)
    assert [first, None] == [go(turns), go(turns)]


def test_a_lane_stands_in_one_place() -> None:
    """One that stood aside and may go after all is not called back a second time, in the place of another one."""
    turns, of = Turns(10, 1), partition()
    first, second = lanes(of, 2)
    turns.stand(of, first, aside=True)
    turns.stand(of, second, aside=True)
    turns.stand(of, first)
    assert first is go(turns)
    turns.give_back(of)
    turns.release(of)
    assert second is go(turns)


def test_who_wants_no_call_any_more_leaves_its_turn_to_the_next() -> None:
    """In line or aside: paused meanwhile, or skipped."""
    turns, of = Turns(10, 1), partition()
    first, second, third, fourth = lanes(of, 4)
    turns.stand(of, first)
    turns.stand(of, second)
    turns.leave(of, first)
    assert second is go(turns)
    turns.stand(of, third)
    turns.stand(of, fourth)
    turns.leave(of, third)
    turns.give_back(of)
    turns.release(of)
    assert fourth is go(turns)


def test_an_assignment_that_is_over_stands_nowhere() -> None:
    """Neither in line nor aside; its successor does not wait behind it."""
    turns, over, after = Turns(10, 10), Partition(Owner(0, 7), 0, DECODER, ROOM), Partition(Owner(0, 8), 0, DECODER, ROOM)
    first, second = lanes(over, 2)
    (third,) = lanes(after, 1)
    turns.stand(over, first, above=True)
    turns.stand(over, second, aside=True)
    turns.forget(over.owner)
    turns.release(over)
    turns.rise(over, lambda _: True)
    assert turns.has_slot(after, has_turn=False)
    turns.stand(after, third)
    assert [third, None] == [go(turns), go(turns)]


class TurnsMachine(RuleBasedStateMachine):
    """Lanes of three partitions that want calls, driven as the engine drives them."""

    @initialize(slots=st.integers(1, 5), own=st.integers(1, 3), seed=st.integers(0, 99))
    def begin(self, slots: int, own: int, seed: int) -> None:
        self.slots, self.own = slots, own
        self.turns = Turns(slots, own)
        self.of: dict[Lane, Partition] = {}
        self.barred: set[Lane] = set()
        for number in range(3):
            of = partition(number)
            self.of |= dict.fromkeys(lanes(of, 4), of)
        self.lanes = list(self.of)
        random.Random(seed).shuffle(self.lanes)
        self.since: dict[Lane, int] = {}  # lanes that want a call, and since when
        self.calling: list[Lane] = []
        self.now = 0

    def may_start(self, lane: Lane) -> bool:
        """What the partition says of it."""
        return lane not in self.barred

    def ask(self, lane: Lane, *, has_turn: bool = False) -> None:
        """A lane is looked at: it calls, stands somewhere, or wants nothing."""
        of = self.of[lane]
        if lane in self.calling or lane not in self.since:
            self.turns.leave(of, lane)
        elif self.may_start(lane) and self.turns.has_slot(of, has_turn=has_turn):
            self.turns.take(of)
            self.turns.leave(of, lane)
            self.calling.append(lane)
            before = [one for one in self.since if self.since[one] < self.since[lane] and self.may_start(one) and one not in self.calling]
            assert all(self.of[one] is not of for one in before) or self.barred_lately
            del self.since[lane]
        else:
            self.turns.stand(of, lane, above=not self.may_start(lane))
        self.fill()

    barred_lately = False  # who was barred comes back to the end of the line

    def fill(self) -> None:
        """Slots go to those whose turn it is."""
        while (turn := self.turns.next()) is not None:
            self.ask(turn[1], has_turn=True)

    @rule(n=st.integers(0, 11))
    def want(self, n: int) -> None:
        lane = self.lanes[n]
        if lane not in self.calling and lane not in self.since:
            self.now += 1
            self.since[lane] = self.now
        self.ask(lane)

    @rule(n=st.integers(0, 11))
    def want_no_more(self, n: int) -> None:
        self.since.pop(self.lanes[n], None)
        self.ask(self.lanes[n])

    @rule(n=st.integers(0, 11))
    def bar(self, n: int) -> None:
        self.barred_lately = True
        self.barred.add(self.lanes[n])

    @rule(number=st.integers(0, 2))
    def unbar(self, number: int) -> None:
        of = next(of for of in self.of.values() if of.owner.partition == number)
        self.barred -= {lane for lane in self.lanes if self.of[lane] is of}
        self.turns.release(of)
        self.turns.rise(of, self.may_start)
        self.fill()

    @precondition(lambda self: self.calling)
    @rule(data=st.data(), again=st.booleans())
    def end(self, data: st.DataObject, again: bool) -> None:  # noqa: FBT001 - drawn
        lane = self.calling.pop(data.draw(st.integers(0, len(self.calling) - 1)))
        of = self.of[lane]
        self.turns.give_back(of)
        self.turns.release(of)
        self.turns.rise(of, self.may_start)
        if again:
            self.now += 1
            self.since[lane] = self.now
        self.ask(lane)
        self.fill()

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        if not hasattr(self, "turns"):
            return
        for of in dict.fromkeys(self.of.values()):  # as it is done now and then
            self.turns.rise(of, self.may_start)
        self.fill()
        calls = Counter(self.of[lane].owner.partition for lane in self.calling)
        assert len(self.calling) <= self.slots
        assert all(count <= self.own for count in calls.values())
        if len(self.calling) < self.slots:
            waiting = [lane for lane in self.since if self.may_start(lane) and calls[lane.owner.partition] < self.own]
            assert not waiting


TestTurnsInAnyOrder = TurnsMachine.TestCase
TestTurnsInAnyOrder.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
