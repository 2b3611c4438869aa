"""Requests or tokens per window, as one limit counts them: held from the moment that a call is let through, used from when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dispatcher.core.callees.bucket import Bucket
from dispatcher.core.callees.ceiling import Ceiling
from dispatcher.core.callees.window import Slot, Window

REQUESTS, TOKENS, CONCURRENCY = "requests", "tokens", "concurrency"
# Of a window: what is later than that part of it was rather slow than late.
LATE_MAX = 4


class Meter:
    """Owned by one limit. `dimension`: what is counted; `most`: how much of it in a window. Amounts are whole numbers.

    `ours` is what of that is this worker's, a `factor` how much of it may be used after complaints. What is used counts for `span_s`; what
    is `held` is for calls that are about to begin. No call counts for more than `longest_s` of it: whatever its request or its callee says.
    """

    __slots__ = ("_ceiling", "_counter", "_largest", "dimension", "held", "most", "ours", "span_s", "window_s")

    def __init__(self, dimension: str, most: int, window_s: float, span_s: float, counter: Window | Bucket, longest_s: float) -> None:
        self.dimension = dimension
        self.most = self.ours = most
        self.window_s = window_s
        self.span_s = span_s
        self._largest = most * max(1, math.ceil(longest_s / window_s))
        self._counter = counter
        self._ceiling = Ceiling()
        self.held = 0

    def capacity(self, factor: float) -> int:
        """How much may be used in a window. Complaints leave one at least, where there is one."""
        return max(min(1, self.ours), _whole(self.ours * factor))

    def used(self, now: float) -> int:
        """How much we have used in this window, or hold; what others had spent of what we gained is theirs to tell."""
        return self.held + self._counter.own(self.ours, now)

    def grant(self, amount: int, spent: int, now: float) -> bool:
        """So much is ours from now on, of which others have `spent` so much in this window; whether it is less than before."""
        amount = max(0, min(self.most, amount))
        is_less = amount < self.ours
        self._counter.resize(self.ours, amount, now)
        self.ours = amount
        if spent > 0:
            self._counter.gain(spent, amount, now)
        return is_less

    def lacks(self, amount: int) -> bool:
        """Whether so much never fits into what is ours. What is more than there is in a whole window fits into a whole one."""
        return min(amount, self.most) > self.ours

    def free_at(self, amount: int, capacity: int, now: float) -> float | None:
        """When so much may be used: `now` where it may; None where nobody knows: too little is ours, or what is held has to begin first.

        What is more than there is in a whole window waits until all of it is free.
        """
        if not capacity or self.lacks(amount):
            return None
        at = self._counter.free_at(self.held + min(amount, capacity), capacity, now)
        return None if at is None else max(at, self._ceiling.free_at(amount, now))

    def room(self, amount: int, capacity: int, now: float) -> int:
        """How many calls of so much may begin now, where one may."""
        return max(1, (self._counter.left(capacity, now) - self.held) // max(1, amount))

    def may_begin(self, entry: Entry, now: float) -> bool:
        """Whether what is held for a call still fits into what is ours."""
        if entry.slot is not None or self.lacks(entry.amount):
            return entry.slot is not None
        return self._counter.free_at(min(entry.amount, self.ours), self.ours, now) == now

    def hold(self, amount: int) -> Entry:
        """Let a call through that is expected to use so much."""
        amount = min(amount, self._largest)
        self.held += amount
        return Entry(self, amount, self._ceiling.take(amount))

    def begin(self, entry: Entry, capacity: int, now: float) -> None:
        """It is made now."""
        self.held -= entry.amount
        entry.slot = self._counter.count(entry.amount, capacity, now)

    def settle(self, entry: Entry, amount: int, capacity: int, now: float) -> None:
        """So much was used by it in the end; 0 where it was not made, or its callee did not take it."""
        amount = min(amount, self._largest)
        if entry.slot is None:
            self.held -= entry.amount
        else:
            self._counter.correct(entry.slot, amount - entry.amount, capacity, now)
        self._ceiling.give_back(entry.amount - amount, entry.mark)

    def late(self, entry: Entry, began: float, by_s: float) -> None:
        """Its call, made then, may have come so much later to its callee than others do."""
        if entry.slot is not None:
            self._counter.late(entry.slot, began + min(by_s, self.window_s / LATE_MAX))

    def hear(self, entry: Entry, left: float, until: float, now: float) -> None:
        """The callee said to this call that so much is left until then."""
        self._ceiling.hear(left, until, entry.mark, now)


@dataclass(slots=True)
class Entry:
    """What one call has of a meter."""

    meter: Meter
    amount: int
    mark: int
    slot: Slot | None = None  # once it is made


def _whole(amount: float) -> int:
    """The whole number in a product of floats: 0.1 * 30 is 3, though it falls short of that."""
    return int(amount + 1e-9)
