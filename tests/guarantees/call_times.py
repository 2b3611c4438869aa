"""When a call may begin, and how long it may take: by its request's deadline, and by what its upstream allows."""

from __future__ import annotations

import math

from tests.guarantees.events import CallStarted, Event, Submitted
from tests.guarantees.lanes import TURN_S

# Of the upstream of simulated worlds: what it allows, and the least that the first call of a request has.
CAP_S, FLOOR_S = 60.0, 1.0


class NothingLate:
    """No call begins after the deadline of its request.

    >>> judge = NothingLate()
    >>> for event in (Submitted(0, 1, deadline=5.0), CallStarted(1, 0, 1, 1, at=4.9), CallStarted(2, 0, 2, 1, at=99.0)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(3, 0, 1, 2, at=5.5))
    >>> judge.findings()
    ['partition 0: offset 1 was called 0.5 s after its deadline']
    """

    def __init__(self) -> None:
        self._deadlines: dict[tuple[int, int], float] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests and starts."""
        match event:
            case Submitted(partition, offset, deadline=deadline) if deadline != float("inf"):
                self._deadlines[partition, offset] = deadline
            case CallStarted(partition=partition, offset=offset, at=at):
                late_s = at - self._deadlines.get((partition, offset), float("inf"))
                if late_s > TURN_S:
                    self._found.append(f"partition {partition}: offset {offset} was called {late_s:.3g} s after its deadline")
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was called too late."""
        return self._found


class EnoughTime:
    """A call has all the time that its upstream and its deadline leave; only the first of a request may have less, and that not too little.

    >>> judge = EnoughTime()
    >>> for event in (Submitted(0, 1, deadline=30.0), CallStarted(1, 0, 1, 1, at=5.0, timeout_s=25.0), CallStarted(2, 0, 2, 1)):
    ...     judge.see(event)
    >>> for event in (CallStarted(3, 0, 2, 1, timeout_s=1.0), CallStarted(4, 0, 2, 1, attempt=2, timeout_s=60.0)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (CallStarted(5, 0, 3, 1, timeout_s=0.5), CallStarted(6, 0, 3, 1, attempt=2, timeout_s=2.0)):
    ...     judge.see(event)
    >>> judge.see(CallStarted(7, 0, 1, 1, at=5.0, timeout_s=60.0))
    >>> for finding in judge.findings():
    ...     print(finding)
    partition 0: offset 3 had 0.5 s for call 1, and not 1 to 60 s
    partition 0: offset 3 had 2 s for call 2, and not 60 to 60 s
    partition 0: offset 1 had 60 s for call 1, and not 1 to 25 s
    """

    def __init__(self) -> None:
        self._deadlines: dict[tuple[int, int], float] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests and starts."""
        match event:
            case Submitted(partition, offset, deadline=deadline):
                self._deadlines[partition, offset] = deadline
            case CallStarted(partition=partition, offset=offset, attempt=attempt, at=at, timeout_s=float(timeout_s)):
                most_s = min(CAP_S, self._deadlines.get((partition, offset), math.inf) - at)
                least_s = min(most_s, FLOOR_S) if attempt == 1 else most_s
                if not least_s - TURN_S <= timeout_s <= most_s + TURN_S:
                    had = f"offset {offset} had {timeout_s:.3g} s for call {attempt}"
                    self._found.append(f"partition {partition}: {had}, and not {least_s:.3g} to {most_s:.3g} s")
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which calls had too little time, or too much."""
        return self._found
