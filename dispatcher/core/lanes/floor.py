"""Whose turn it is of the classes of a lane: one call at a time, weighted, and none starves.

A lane that spans several request topics has a queue for each, and one call at a time. Classes that could call stand, and the next turn goes
by start-time fair queueing (Goyal, Vin, Chen 1996): whoever begins to stand gets a start tag, the lane's virtual time or where its own last
turn ends, whichever is later; the least one has the turn, and with it the lane's virtual time comes there; a turn is `1 / weight` long. A
tag is never looked at again while its class stands: what waits ages by standing, and what comes later cannot overtake it for ever. Under
backlog turns are as the weights; a class of weight w that stands waits for at most `sum(v / w + 1)` turns, over the weights v of the
others, and for the one in hand.

A class may have no more than so many calls at once in a worker. One that has them all gives way to the others of its lanes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_W = TypeVar("_W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Share:
    """What a class has: its weight, and how many calls at once it may have; None: as many as the worker."""

    weight: float = 1.0
    concurrency: int | None = None


@dataclass(slots=True)
class _Standing(Generic[_W]):
    who: _W
    start: float
    number: int


@dataclass(slots=True)
class _Floor(Generic[_W]):
    """One lane's. `holder` has the turn: its call begins when there is a slot, or has begun."""

    holder: _W | None = None
    of: int = 0  # the holder's class
    start: float = 0.0  # the holder's tag
    has_begun: bool = False
    at: float = 0.0  # virtual time
    standing: dict[int, _Standing[_W]] = field(default_factory=dict)
    finish: dict[int, float] = field(default_factory=dict)


class Floors(Generic[_W]):
    """Those of all lanes of a worker, by name. Owned by the engine. `_W` == who stands: what a lane has of one class."""

    __slots__ = ("_called", "_calls", "_floors", "_number", "_shares", "_short")

    def __init__(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        self._floors: dict[Hashable, _Floor[_W]] = {}
        self._calls = [0] * len(shares)
        self._short: list[dict[_W, None]] = [{} for _ in shares]  # who waits only since its class has all its calls
        self._called: dict[_W, None] = {}
        self._number = 0

    def holds(self, name: Hashable, who: _W) -> bool:
        """Whether it has the turn of its lane."""
        floor = self._floors.get(name)
        return floor is not None and floor.holder == who

    def claim(self, name: Hashable, of: int, who: _W) -> bool:
        """It could call, if it had the turn: whether it has. Else it stands, and is `called` when it has."""
        floor = self._floors.setdefault(name, _Floor())
        if floor.holder == who:
            if floor.has_begun or self._has_room(of):
                return True
            floor.holder = None
            floor.standing[of] = _Standing(who, floor.start, self._next_number())
        standing = floor.standing.get(of)
        if standing is None or standing.who != who:
            floor.standing[of] = _Standing(who, max(floor.at, floor.finish.get(of, 0.0)), self._next_number())
        self._pick(floor)
        self._called.pop(who, None)
        if floor.holder == who:
            return True
        self._pass_on(of)
        return False

    def leave(self, name: Hashable, of: int, who: _W) -> None:
        """It could not call now: a turn that it has no use for is another one's."""
        self._called.pop(who, None)
        self._short[of].pop(who, None)
        floor = self._floors.get(name)
        self._pass_on(of)
        if floor is None:
            return
        standing = floor.standing.get(of)
        if standing is not None and standing.who == who:
            del floor.standing[of]
        if floor.holder == who and not floor.has_begun:
            floor.holder = None
        self._pick(floor)
        if floor.holder is None and not floor.standing:
            del self._floors[name]

    def begin(self, name: Hashable, of: int, who: _W) -> None:
        """The call of the one that has the turn begins."""
        floor = self._floors.setdefault(name, _Floor())
        floor.holder, floor.of, floor.has_begun = who, of, True
        floor.at = max(floor.at, floor.start)
        floor.finish[of] = floor.start + 1 / self._shares[of].weight
        self._calls[of] += 1

    def end(self, name: Hashable, of: int, who: _W, *, is_made: bool = True) -> None:
        """That call has ended, or was not made after all. Nobody is called before it has claimed the next turn, or left."""
        self._calls[of] -= 1
        floor = self._floors.get(name)
        if floor is not None and floor.holder == who:
            floor.holder, floor.has_begun = None, False
            if not is_made:
                floor.finish[of] = floor.start
        self._pass_on(of)

    def forget(self, name: Hashable) -> None:
        """All of a lane is given up."""
        floor = self._floors.pop(name, None)
        for of, standing in {} if floor is None else floor.standing.items():
            self._short[of].pop(standing.who, None)

    def called(self) -> list[_W]:
        """Whose turn has come since this was asked last, or may have; they are to claim it, or to leave."""
        called = list(self._called)
        self._called.clear()
        return called

    def names(self) -> list[Hashable]:
        """The lanes that somebody stands in."""
        return list(self._floors)

    def _pick(self, floor: _Floor[_W]) -> None:
        """Give the turn to whoever comes first of those whose class may have one more call."""
        if floor.holder is not None or not floor.standing:
            return
        for of, one in sorted(floor.standing.items(), key=lambda item: (item[1].start, item[1].number)):
            if self._has_room(of):
                del floor.standing[of]
                self._short[of].pop(one.who, None)
                floor.holder, floor.of, floor.start, floor.has_begun = one.who, of, one.start, False
                self._called[one.who] = None
                return
            self._short[of].setdefault(one.who)

    def _pass_on(self, of: int) -> None:
        """Call the first of those that wait for a call of their class to end, if one may: who has no use for it passes it on."""
        if self._short[of] and self._has_room(of):
            first = next(iter(self._short[of]))
            del self._short[of][first]
            self._called[first] = None

    def _has_room(self, of: int) -> bool:
        most = self._shares[of].concurrency
        return most is None or self._calls[of] < most

    def _next_number(self) -> int:
        self._number += 1
        return self._number
