"""What lane keys and agents spend: never more in a day than their budget, whoever makes the calls."""

from __future__ import annotations

import math
from collections import Counter

from tests.guarantees.events import CallEnded, CallStarted, Event, Submitted

# What a key may spend in a day, and the most that one call costs; what an agent may, in all partitions together; in cents.
DAY_CENTS, CALL_CENTS = 60, 30
AGENT_CENTS = 150
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

    most = DAY_CENTS

    def __init__(self, midnight: float = math.inf, blurred_until: float = 0.0) -> None:
        self._midnight = midnight
        self._blurred_until = max(blurred_until, midnight) + MOMENT_S
        self._spent: Counter[tuple[str, bool]] = Counter()
        self._open: dict[int, tuple[tuple[str, bool], int]] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in calls and what they cost."""
        match event:
            case CallStarted(call, price=price, at=at) if price and not self._midnight <= at < self._blurred_until:
                of = self.whose(event), at >= self._midnight
                self._open[call] = of, price
                self._spent[of] += price
                if self._spent[of] > self.most:
                    self._found.append(f"{of[0]} has spent {self._spent[of]} cents of {self.most} with call {call}")
            case CallEnded(call, charged=charged) if call in self._open:
                of, price = self._open.pop(call)
                self._spent[of] -= price - charged
            case _:
                pass

    def whose(self, started: CallStarted) -> str:
        """Who pays for a call."""
        return started.key

    def findings(self) -> list[str]:
        """Say who has spent too much."""
        return self._found


class SharedBudget(DayBudget):
    """The same of agents, whose requests stand in many partitions: all that these spend together is within the budget of the agent.

    >>> judge = SharedBudget()
    >>> for event in (Submitted(0, 5, agent="a"), Submitted(1, 5, agent="a"), Submitted(1, 6)):
    ...     judge.see(event)
    >>> for event in (CallStarted(1, 0, 5, 1, price=100), CallStarted(2, 1, 6, 1, price=100), CallStarted(3, 1, 5, 1, price=51)):
    ...     judge.see(event)
    >>> judge.findings()
    ['agent a has spent 151 cents of 150 with call 3']
    """

    most = AGENT_CENTS

    def __init__(self, midnight: float = math.inf, blurred_until: float = 0.0) -> None:
        super().__init__(midnight, blurred_until)
        self._agents: dict[tuple[int, int], str] = {}

    def see(self, event: Event) -> None:
        """Take in who asks, and calls."""
        if isinstance(event, Submitted):
            self._agents[event.partition, event.offset] = event.agent
        super().see(event)

    def whose(self, started: CallStarted) -> str:
        """Who asks for it."""
        return f"agent {self._agents.get((started.partition, started.offset), '')}"
