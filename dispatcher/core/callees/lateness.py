"""How much later than others a call may have come to its callee, as far as its answer tells.

The callee counts a call when it arrives, and nobody says when that was: some time between its sending and its answer. Where calls take
about equally long, one that took longer than the shortest has been on its way for so much longer, at the most: a process stood still, a
packet was lost. Where they do not, as with models, that says little: there no more than the margin is added to the margin.
"""

from __future__ import annotations

from collections import deque

# Calls that tell what is usual, and how many of them it takes.
CALLS, CALLS_MIN = 32, 8
# They are equally long where half of them take no longer than so much of the usual time beyond the shortest one.
SPREAD = 0.25


class Lateness:
    """Owned by one limit. `margin_s`: calls that differ by less are equally long; of others no more than that is believed."""

    __slots__ = ("_margin_s", "_recent")

    def __init__(self, margin_s: float) -> None:
        self._margin_s = margin_s
        self._recent: deque[float] = deque(maxlen=CALLS)

    def late_by(self, took_s: float) -> float:
        """So many seconds may a call have been late that took so long; 0 where that cannot be told."""
        recent = sorted(self._recent)
        self._recent.append(took_s)
        if len(recent) < CALLS_MIN:
            return 0.0
        shortest_s, usual_s = recent[0], recent[len(recent) // 2]
        late_s = max(0.0, took_s - shortest_s)
        is_steady = usual_s - shortest_s <= max(self._margin_s, SPREAD * usual_s)
        return late_s if is_steady else min(late_s, self._margin_s)
