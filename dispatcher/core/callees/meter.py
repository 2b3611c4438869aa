"""Requests or tokens per window, as one limit counts them: held from the moment that a call is let through, used from when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.callees.bucket import Bucket
from dispatcher.core.callees.ceiling import Ceiling
from dispatcher.core.callees.window import Slot, Window

REQUESTS, TOKENS = "requests", "tokens"
# Of a window: what is later than that part of it was rather slow than late.
LATE_MAX = 4


class Meter:
    """Owned by one limit. `dimension`: what is counted; `most`: how much of it in a window. Amounts are whole numbers.

    `part` and `factor` say how much of that is ours to use: the share of this worker, and what of it after complaints.
    """

    __slots__ = ("_ceiling", "_counter", "_held", "dimension", "most", "window_s")

    def __init__(self, dimension: str, most: int, window_s: float, counter: Window | Bucket) -> None:
        self.dimension = dimension
        self.most = most
        self.window_s = window_s
        self._counter = counter
        self._ceiling = Ceiling()
        self._held = 0

    def capacity(self, part: float, factor: float) -> int:
        """How much may be used in a window. Complaints leave one at least, where our share does."""
        ours = self.most * part
        return max(min(1, _whole(ours)), _whole(ours * factor))

    def free_at(self, amount: int, capacity: int, now: float) -> float | None:
        """When so much may be used: `now` where it may; None where that is not known: nothing is ours, or what is held has to begin first.

        What is more than there is in a whole window waits until all of it is free.
        """
        at = self._counter.free_at(self._held + min(amount, capacity), capacity, now) if capacity else None
        return None if at is None else max(at, self._ceiling.free_at(amount, now))

    def hold(self, amount: int) -> Entry:
        """Let a call through that is expected to use so much."""
        self._held += amount
        return Entry(self, amount, self._ceiling.take(amount))

    def begin(self, entry: Entry, capacity: int, now: float) -> None:
        """It is made now."""
        self._held -= entry.amount
        entry.slot = self._counter.count(entry.amount, capacity, now)

    def settle(self, entry: Entry, amount: int, capacity: int, now: float) -> None:
        """So much was used by it in the end; 0 where it was not made, or its callee did not take it."""
        if entry.slot is None:
            self._held -= entry.amount
        else:
            self._counter.correct(entry.slot, amount - entry.amount, capacity, now)
        self._ceiling.give_back(entry.amount - amount)

    def late(self, entry: Entry, began: float, by_s: float) -> None:
        """Its call, made then, may have come so much later to its callee than others do."""
        if entry.slot is not None:
            self._counter.late(entry.slot, began + min(by_s, self.window_s / LATE_MAX))

    def hear(self, entry: Entry, left: float, until: float, now: float) -> None:
        """The callee said to this call that so much is left until then."""
        self._ceiling.hear(left, until, entry.mark, now)

    def gain(self, amount: int, capacity: int, now: float) -> None:
        """So much more is ours from now on, which somebody else may have used in this window."""
        self._counter.count(amount, capacity, now)


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
