"""How fast a person wants something done: `5/s`, `300/m`, `10/h`. Pure: `now` is monotonic and an argument."""

from __future__ import annotations

import re

_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)/(s|m|h)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
# What goes out together: a tenth of a second's worth. Less would spend the time on transactions, more would be felt as bursts.
_GROUP_S = 0.1


def parse_rate(text: str) -> float:
    """Read a rate, as so many a second; ValueError when it is none, or nothing would ever happen."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError("not a rate such as 5/s, 300/m or 10/h")
    return float(match[1]) / _SECONDS[match[2]]


class Pace:
    """Spreads what is done over time: time that was lost is not made up for, so that no burst follows a pause. One owner."""

    def __init__(self, per_s: float | None) -> None:
        """None: as fast as it goes."""
        self._per_s = per_s
        self._next = 0.0

    def group_max(self, at_most: int) -> int:
        """Tell how many go together."""
        return at_most if self._per_s is None else max(1, min(at_most, int(self._per_s * _GROUP_S)))

    def wait_s(self, now: float) -> float:
        """Tell how long to wait before the next group, seconds."""
        return 0.0 if self._per_s is None else max(0.0, self._next - now)

    def went(self, count: int, now: float) -> None:
        """Note that so many went out."""
        if self._per_s is not None:
            self._next = max(self._next, now) + count / self._per_s
