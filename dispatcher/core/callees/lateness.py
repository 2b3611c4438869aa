"""How much later than usual a call has come to its callee, as far as its answer tells.

The callee counts a call when it arrives, and nobody says when that was: some time between its sending and its answer. Where calls take
about equally long, one that took longer has been on its way for so much longer, at the most: a process stood still, a packet was lost.
Where they do not, as with models, that says nothing.
"""

from __future__ import annotations

from collections import deque

# Calls that tell what is usual, and how many of them it takes.
CALLS, CALLS_MIN = 32, 8


class Lateness:
    """Owned by one limit. `steady_s`: calls of which half take no longer than that beyond the shortest one are equally long."""

    __slots__ = ("_recent", "_steady_s")

    def __init__(self, steady_s: float) -> None:
        self._steady_s = steady_s
        self._recent: deque[float] = deque(maxlen=CALLS)

    def late_by(self, took_s: float) -> float:
        """So many seconds may a call have been late that took so long; 0 where that cannot be told."""
        recent = sorted(self._recent)
        self._recent.append(took_s)
        if len(recent) < CALLS_MIN:
            return 0.0
        usual_s = recent[len(recent) // 2]
        return max(0.0, took_s - usual_s) if usual_s - recent[0] <= self._steady_s else 0.0
