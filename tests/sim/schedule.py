"""Virtual time. Everything that happens in a simulated world is an action on one heap; chance orders what happens at the same moment."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

Action = Callable[..., object]


class Schedule:
    """Seconds since the world began, and what is to happen when."""

    def __init__(self, chance: Random) -> None:
        self.now = 0.0
        self.steps = 0
        self._chance = chance
        self._heap: list[tuple[float, float, int, Action, tuple[Any, ...]]] = []
        self._number = 0

    def after(self, delay_s: float, action: Action, *args: Any) -> None:
        """Let `action` happen in `delay_s`."""
        self._number += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._chance.random(), self._number, action, args))

    def run(self, until_s: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass up to `until_s`, or until `done`; says whether it is done."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now, _, _, action, args = heapq.heappop(heap)
            self.steps += 1
            action(*args)
            if done():
                return True
        self.now = max(self.now, until_s)
        return done()
