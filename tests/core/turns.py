"""How long a class of requests may wait for its turn in a lane."""

from __future__ import annotations

from collections.abc import Sequence


def turns_max(weights: Sequence[float], of: int) -> float:
    """How many turns of others it waits for at most, from when it stands, but for those that wait for its own calls to end."""
    return sum(weight / weights[of] + 1 for n, weight in enumerate(weights) if n != of)
