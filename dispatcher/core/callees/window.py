"""A sliding-window log: what was used in the last so many seconds, whenever they are looked at.

Providers that count so refuse what is over at any moment, not at the turn of a second; and who stays below this one stays below a bucket
of the same size, too. A log of every call would grow with the limit: what is used within a thousandth of the window is one entry, which
leaves with the last of it, so that the log is a little strict and never long.
"""

from __future__ import annotations

from collections import deque

SLICES = 1000


class Slot:
    """So much was used then: of one call, or of some that began nearly at once. `amount` is 0 once it has left the window."""

    __slots__ = ("amount", "at", "since")

    def __init__(self, amount: int, at: float) -> None:
        self.amount = amount
        self.since = self.at = at


class Window:
    """Owned by one meter. `span_s`: how long what is used counts. Times are monotonic seconds, amounts whole numbers."""

    __slots__ = ("_log", "_slice_s", "_span_s", "_theirs", "_used")

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._slice_s = span_s / SLICES
        self._log: deque[Slot] = deque()
        self._theirs: deque[tuple[float, int]] = deque()  # when, and how much of it others had used
        self._used = 0

    def own(self, _: int, now: float) -> int:
        """How much we have used in this window."""
        self._forget(now)
        while self._theirs and self._theirs[0][0] + self._span_s <= now:
            self._theirs.popleft()
        return max(0, self._used - sum(amount for _, amount in self._theirs))

    def left(self, capacity: int, now: float) -> int:
        """How much of it is not used, by anybody."""
        self._forget(now)
        return capacity - self._used

    def gain(self, spent: int, capacity: int, now: float) -> None:
        """Others have used so much of what we gained: it leaves as if it had been used now."""
        self.count(spent, capacity, now)
        self._theirs.append((now, spent))

    def resize(self, before: int, capacity: int, now: float) -> None:
        """Without effect: what is used beyond that leaves with its window."""

    def free_at(self, needed: int, capacity: int, now: float) -> float | None:
        """When there is room for so much beside what is used: `now` where there is; None where it is more than there ever is."""
        self._forget(now)
        over = self._used + needed - capacity
        if over <= 0:
            return now
        at = now
        for slot in self._log:
            over -= slot.amount
            # One that came late to its callee leaves behind those that were sent after it.
            at = max(at, slot.at + self._span_s)
            if over <= 0:
                return at
        return None

    def count(self, amount: int, _: int, now: float) -> Slot:
        """So much is used now, whether there is room or not."""
        self._forget(now)
        self._used += amount
        if self._log and now - self._log[-1].since < self._slice_s:
            slot = self._log[-1]
            slot.amount += amount
            slot.at = now
            return slot
        slot = Slot(amount, now)
        self._log.append(slot)
        return slot

    def correct(self, slot: Slot, by: int, capacity: int, now: float) -> None:
        """It was more than was counted, or less. Of a call that has left the window only what is more counts, from now on."""
        if by > 0 and not slot.amount:
            self.count(by, capacity, now)
            return
        by = max(by, -slot.amount)
        slot.amount += by
        self._used += by

    def late(self, slot: Slot, at: float) -> None:
        """What is counted there may have come to its callee as late as that: it leaves by then."""
        slot.at = max(slot.at, at)

    def _forget(self, now: float) -> None:
        while self._log and self._log[0].at + self._span_s <= now:
            slot = self._log.popleft()
            self._used -= slot.amount
            slot.amount = 0
