"""How long calls take, by what is asked of whom; and from that, how long one more may take. Pure: durations are arguments.

A call that was cut off says only that it would have taken longer: it is a *censored* sample. Left out, or counted as if it had ended, it
would pull the estimate down, and each timeout would make the next one likelier. The quantile is therefore that of the product-limit
estimator (E. L. Kaplan and P. Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53, 1958), in which a censored sample
counts among those that take longer until its own time, and then no more. Without censored samples that is the nearest-rank quantile.
Where more is censored at the upper end than the quantile leaves over, it is unknown, and the call has all the time that there is.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from dispatcher.core.messages.series import Series

# What is looked back on, and of how many that ended well an estimate is made. With fewer, the quantile is the slowest of a handful.
WINDOW = 100
WHOLE_MIN = 20
QUANTILE = 0.99
# Models are named by senders: of so many series the samples are kept (a few kilobytes each), those used least recently go.
SERIES_MAX = 256
# Of a product of a hundred factors, far more than its rounding error.
_EPSILON = 1e-9


class Sample(NamedTuple):
    """One call: how long it took; or, where it was cut off then, how long it would at least have taken.

    In their own order: where one was cut off in the moment in which another ended, it would have taken longer.
    """

    seconds: float
    was_cut: bool = False


def quantile_s(samples: Iterable[Sample], quantile: float = QUANTILE) -> float | None:
    """The time, seconds, within which that part of the calls ends; None where too many were cut off before it to know.

    >>> quantile_s([Sample(1.0)] * 99 + [Sample(60.0)])
    1.0
    """
    ordered = sorted(samples)
    at_risk, longer = len(ordered), 1.0
    for seconds, was_cut in ordered:
        if not was_cut:
            longer *= 1 - 1 / at_risk
            if longer <= 1 - quantile + _EPSILON:
                return seconds
        at_risk -= 1
    return None


class _Window:
    """The last calls of a series: by age, and by how long they took."""

    __slots__ = ("_by_age", "_cut", "_ordered")

    def __init__(self) -> None:
        self._by_age: deque[Sample] = deque()
        self._ordered: list[Sample] = []
        self._cut = 0

    def add(self, sample: Sample) -> None:
        if len(self._by_age) == WINDOW:
            oldest = self._by_age.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
            self._cut -= oldest.was_cut
        self._by_age.append(sample)
        insort(self._ordered, sample)
        self._cut += sample.was_cut

    def quantile_s(self) -> float | None:
        count = len(self._ordered)
        if count - self._cut < WHOLE_MIN:
            return None
        # The second is the same without the steps, for what is asked before each call.
        return quantile_s(self._ordered) if self._cut else self._ordered[math.ceil(count * QUANTILE) - 1].seconds


class Latencies:
    """The last calls of each series. One owner; of one worker, and forgotten with it."""

    def __init__(self) -> None:
        self._windows: dict[Series, _Window] = {}  # the least recently used first

    def __len__(self) -> int:
        """Of how many series something is known."""
        return len(self._windows)

    def note(self, series: Series, sample: Sample) -> None:
        """A call of a series ended well, or was cut off."""
        window = self._windows.pop(series, None)
        if window is None:
            window = _Window()
            if len(self._windows) >= SERIES_MAX:
                del self._windows[next(iter(self._windows))]
        self._windows[series] = window
        window.add(sample)

    def quantile_s(self, series: Series) -> float | None:
        """The time, seconds, within which nearly all calls of a series end; None where that is not known, or not yet."""
        window = self._windows.get(series)
        return None if window is None else window.quantile_s()
