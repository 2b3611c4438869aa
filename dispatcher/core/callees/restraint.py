"""How much of a limit is used after its callee has said that it was too much: less at once, and slowly more again.

Additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in
Computer Networks", 1989): the one rule by which many who do not know of each other come to share a limit evenly.
"""

from __future__ import annotations

# Of what was used before; as gentle as CUBIC (RFC 9438, 4.6), since a 429 is heeded by itself, too: its hint holds the credential.
DECREASE = 0.7
LEAST = 0.05
# Of the configured limit, in each window and in no less than so many seconds: from seven tenths to the whole takes six of them.
INCREASE, WINDOW_MIN_S = 0.05, 5.0


class Restraint:
    """Owned by one limit. Times are monotonic seconds."""

    __slots__ = ("_at", "_from", "_per_s")

    def __init__(self, window_s: float | None) -> None:
        self._per_s = INCREASE / max(WINDOW_MIN_S, window_s or 0.0)
        self._from = 1.0
        self._at: float | None = None

    def factor(self, now: float) -> float:
        """The share of the limit that may be used: 1.0 where the callee has not complained for long."""
        return 1.0 if self._at is None else min(1.0, self._from + (now - self._at) * self._per_s)

    def refuse(self, began: float, now: float) -> None:
        """The callee says that it is too much, to a call that began then. Those of before the last decrease say nothing new."""
        if self._at is not None and began <= self._at:
            return
        self._from, self._at = max(LEAST, self.factor(now) * DECREASE), now
