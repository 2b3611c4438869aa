"""A token bucket: refilled all the time, at the pace of its capacity per window, and never fuller than that.

For providers that count so. After a rest a whole bucket may be used at once and a window's refill in the window behind it: up to twice
the capacity in one window, which a provider that counts by windows refuses.

The callee's refills from when a call has come, and of two calls the later one may be faster on its way. So ours refills from the margin
behind a call that finds it full, or all but full: what is used of it then never looks less than it does to a callee that all the others
come to later by no more than that.
"""

from __future__ import annotations

import math

from dispatcher.core.callees.window import Slot

# Times are doubles: what is missing by a rounding is there.
_TINY = 1e-7


class Bucket:
    """Owned by one meter. Kept as what is used of it, so that the capacity may change. Times are monotonic seconds."""

    __slots__ = ("_at", "_gone", "_gone_at", "_gone_theirs", "_margin_s", "_theirs", "_used", "_window_s")

    def __init__(self, window_s: float, margin_s: float = 0.0) -> None:
        self._window_s = window_s
        self._margin_s = margin_s
        self._used = 0.0
        self._at: float | None = None  # up to when it has been refilled, or from when on it will be
        self._theirs = 0.0  # what others had used of it
        self._gone, self._gone_theirs = 0.0, 0.0  # what was used of a part that is not ours any more, and when that was
        self._gone_at = 0.0

    def own(self, capacity: int, now: float) -> int:
        """How much is used of it by us, in whole numbers; of what went, what is not refilled yet. What is theirs is refilled first."""
        self._refill(capacity, now)
        return math.ceil(self._used - self._theirs + self._gone * self._left(now) - _TINY)

    def left(self, capacity: int, now: float) -> int:
        """How much of it is not used, by anybody, in whole numbers."""
        self._refill(capacity, now)
        return math.floor(capacity - self._used + _TINY * capacity)

    def gain(self, spent: int, capacity: int, now: float) -> None:
        """Others have used so much of what we gained."""
        self._refill(capacity, now)
        self._used += spent
        self._theirs += spent

    def resize(self, before: int, capacity: int, now: float) -> None:
        """There is so much from now on. What is used beyond that goes with the part that it is of, which others refill in a window."""
        self._refill(before, now)
        gone, theirs = self._gone * self._left(now), self._gone_theirs * self._left(now)
        if capacity < before:
            over = max(0.0, self._used - capacity)
            foreign = min(over, self._theirs)
            self._gone, self._gone_theirs = gone + over - foreign, theirs + foreign
            self._used, self._theirs = self._used - over, self._theirs - foreign
        else:
            back, foreign = min(gone, capacity - before), min(theirs, capacity - before)
            self._gone, self._gone_theirs = gone - back, theirs - foreign
            self._used, self._theirs = self._used + back + foreign, self._theirs + foreign
        self._gone_at = now

    def _left(self, now: float) -> float:
        return max(0.0, 1 - (now - self._gone_at) / self._window_s)

    def free_at(self, needed: int, capacity: int, now: float) -> float | None:
        """When there is room for so much beside what is used: `now` where there is; None where it is more than there ever is."""
        self._refill(capacity, now)
        if needed > capacity:
            return None
        over = self._used + needed - capacity
        missing_s = over * self._window_s / capacity + self._rests_s(now) if self._used and capacity else 0.0
        return now if missing_s <= _TINY * self._window_s else now + missing_s

    def count(self, amount: int, capacity: int, now: float) -> Slot:
        """So much is used now, whether there is room or not."""
        self._refill(capacity, now)
        if capacity:
            refilled_in_s = self._rests_s(now) + self._used * self._window_s / capacity
            self._at = now + self._rests_s(now) + max(0.0, self._margin_s - refilled_in_s)
        self._used += amount
        return Slot(amount, now)

    def correct(self, slot: Slot, by: int, capacity: int, now: float) -> None:
        """It was more than was counted, or less: of what is given back, what was refilled since may have been used by others."""
        self._refill(capacity, now)
        refilled = (now - slot.at) * capacity / self._window_s if by < 0 else 0.0
        self._used = max(0.0, self._used + by + min(refilled, -by if by < 0 else 0.0))
        self._theirs = min(self._theirs, self._used)

    def late(self, slot: Slot, at: float) -> None:
        """Without effect: what comes later to a bucket finds it the fuller."""

    def _rests_s(self, now: float) -> float:
        """For how long nothing is refilled."""
        return 0.0 if self._at is None else max(0.0, self._at - now)

    def _refill(self, capacity: int, now: float) -> None:
        if self._at is not None:
            refilled = max(0.0, now - self._at) * capacity / self._window_s
            self._used, self._theirs = max(0.0, self._used - refilled), max(0.0, self._theirs - refilled)
        self._at = now + self._rests_s(now)
