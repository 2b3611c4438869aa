"""What lane keys spend: never more in a day than their budget, whoever makes the calls."""

from __future__ import annotations

import math
from collections import Counter

from tests.guarantees.events import CallEnded, CallStarted, Event

# What a key may spend in a day, and the most that one call costs; in cents.
DAY_CENTS, CALL_CENTS = 60, 30
# A call goes out some moments behind the look at the clock.
MOMENT_S = 0.05


class DayBudget:
    """What a key's calls of a day have really cost, and those in flight will, is within its budget, whoever dies with what in his hands.

    A call that nobody has heard the end of has cost what it does: a callee charges those who are gone, too. Holds where calls have a price.
    It is of the day in which it began. A new one begins at `midnight`; what begins from then to `blurred_until` is not judged, since
    somebody stood still between his look at the clock and the call.

    >>> judge = DayBudget()
    >>> for event in (CallStarted(1, 0, 1, 1, key="a", price=30), CallStarted(2, 0, 2, 1, key="a", price=30), CallEnded(1, charged=0)):
    ...     judge.see(event)
    >>> judge.see(CallStarted(3, 0, 1, 2, key="a", price=30))
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(4, 0, 3, 2, key="a", price=1))
    >>> judge.findings()
    ['a has spent 61 cents of 60 with call 4']
    >>> judge = DayBudget(midnight=9.0)
    >>> for event in (CallStarted(1, 0, 1, 1, key="a", at=8.9, price=60), CallStarted(2, 0, 2, 1, key="a", at=9.1, price=60)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    """

    def __init__(self, midnight: float = math.inf, blurred_until: float = 0.0) -> None:
        self._midnight = midnight
        self._blurred_until = max(blurred_until, midnight) + MOMENT_S
        self._spent: Counter[tuple[str, bool]] = Counter()
        self._open: dict[int, tuple[tuple[str, bool], int]] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in calls and what they cost."""
        match event:
            case CallStarted(call, key=key, price=price, at=at) if price and not self._midnight <= at < self._blurred_until:
                of = key, at >= self._midnight
                self._open[call] = of, price
                self._spent[of] += price
                if self._spent[of] > DAY_CENTS:
                    self._found.append(f"{key} has spent {self._spent[of]} cents of {DAY_CENTS} with call {call}")
            case CallEnded(call, charged=charged) if call in self._open:
                of, price = self._open.pop(call)
                self._spent[of] -= price - charged
            case _:
                pass

    def findings(self) -> list[str]:
        """Say who has spent too much."""
        return self._found
