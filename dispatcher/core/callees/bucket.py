"""A token bucket: refilled all the time, at the pace of its capacity per window, and never fuller than that.

For providers that count so. After a rest a whole bucket may be used at once and a window's refill in the window behind it: up to twice
the capacity in one window, which a provider that counts by windows refuses.
"""

from __future__ import annotations

from dispatcher.core.callees.window import Slot

# Times are doubles: what is missing by a rounding is there.
_TINY = 1e-7


class Bucket:
    """Owned by one meter. Kept as what is used of it, so that the capacity may change. Times are monotonic seconds."""

    __slots__ = ("_at", "_used", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._used = 0.0
        self._at: float | None = None

    def free_at(self, needed: int, capacity: int, now: float) -> float | None:
        """When there is room for so much beside what is used: `now` where there is; None where it is more than there ever is."""
        self._refill(capacity, now)
        over = self._used + needed - capacity
        if over <= _TINY * capacity:
            return now
        return None if needed > capacity else now + over * self._window_s / capacity

    def count(self, amount: int, capacity: int, now: float) -> Slot:
        """So much is used now, whether there is room or not."""
        self._refill(capacity, now)
        self._used += amount
        return Slot(amount, now)

    def correct(self, slot: Slot, by: int, capacity: int, now: float) -> None:
        """It was more than was counted, or less: of what is given back, what was refilled since may have been used by others."""
        self._refill(capacity, now)
        refilled = (now - slot.at) * capacity / self._window_s if by < 0 else 0.0
        self._used = max(0.0, self._used + by + min(refilled, -by if by < 0 else 0.0))

    def late(self, slot: Slot, at: float) -> None:
        """Without effect: what comes later to a bucket finds it the fuller."""

    def _refill(self, capacity: int, now: float) -> None:
        if self._at is not None:
            self._used = max(0.0, self._used - (now - self._at) * capacity / self._window_s)
        self._at = now
