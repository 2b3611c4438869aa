"""How fast calls begin again after a stop: as fast as the callee was known to take them, and then faster and faster until it is not felt.

Thousands may have waited. All at once they would bring down what has just come up, or be told once more that they are too many.
"""

from __future__ import annotations

from math import exp2

# Over so many seconds, before the last success, the known rate is an average.
WINDOW_S = 10
# As fast as this at least, calls a second: who never succeeded, or rarely, has to begin somewhere.
RATE_MIN = 1.0
# Doubled every second for so long: a thousand times what is known. Then nothing is held back any more.
RAMP_S = 10.0
# A timer comes late; what it has missed in this time may begin with it, and no more: no stampede after a stall.
CREDIT_S = 0.01


class Pace:
    """Owned by the gate. Times are monotonic seconds; each thing that is told costs the same, however many wait."""

    __slots__ = ("_counts", "_known", "_last", "_next_at", "_ramps_from", "_since")

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S  # successes, by second
        self._last: float | None = None  # the last one
        self._since = 0.0  # the first one of this measurement
        self._known = 0.0  # successes a second, as it was before the last stop
        self._ramps_from: float | None = None
        self._next_at = 0.0

    def succeeded(self, now: float) -> None:
        """A call has gone well."""
        second, last = int(now), self._last
        if last is None:
            self._since = now
        elif second > int(last):
            for skipped in range(max(int(last) + 1, second - WINDOW_S + 1), second + 1):
                self._counts[skipped % WINDOW_S] = 0
        self._counts[second % WINDOW_S] += 1
        self._last = now

    def stop(self) -> None:
        """Calls stop: what was measured until the last success is what is known. Of less than a window it halves what was known before."""
        if self._last is not None:
            lasted_s = self._last - max(self._since, int(self._last) - WINDOW_S + 1)
            is_whole = self._last - self._since >= WINDOW_S - 1
            # Of a short measurement it counts that between so many successes lies one time less.
            count = sum(self._counts) - (not is_whole)
            measured = count / max(1.0, lasted_s)
            self._known = measured if is_whole else max(measured, self._known / 2)

    def go(self, at: float) -> None:
        """Calls may begin again from that time on, and are measured anew."""
        self._ramps_from = self._next_at = at
        self._counts = [0] * WINDOW_S
        self._last = None

    def rate(self, now: float) -> float | None:
        """Calls a second that may begin; None where nothing is held back."""
        if self._ramps_from is None or now - self._ramps_from >= RAMP_S:
            return None
        return max(RATE_MIN, self._known) * exp2(max(0.0, now - self._ramps_from))

    def free_at(self, now: float) -> float:
        """When the next call may begin: `now` where it may."""
        return now if self.rate(now) is None else max(now, self._next_at)

    def take(self, now: float) -> None:
        """A call begins."""
        rate = self.rate(now)
        if rate is None:
            self._ramps_from = None
        else:
            self._next_at = max(self._next_at, now - CREDIT_S) + 1 / rate
