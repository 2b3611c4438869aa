"""How often a request is called: no more often than it may cost, and never twice where that was asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.guarantees.events import Attempted, CallEnded, CallStarted, Event, Parked, Submitted

Position = tuple[int, int]


class AtMostOnce:
    """A request that must not be called twice is called again only where every call before is known not to have been done.

    >>> judge = AtMostOnce()
    >>> for event in (Submitted(0, 1, once=True), CallStarted(1, 0, 1, 1), CallEnded(1, undone=True), CallStarted(2, 0, 1, 2)):
    ...     judge.see(event)
    >>> for event in (Submitted(0, 2), CallStarted(3, 0, 2, 2), CallEnded(3), CallStarted(4, 0, 2, 2)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(5, 0, 1, 3))
    >>> judge.findings()
    ['(0, 1) was called again in epoch 3, though call 2 may have been done']
    """

    def __init__(self) -> None:
        self._once: set[Position] = set()
        self._open: dict[int, Position] = {}  # calls that may have been done
        self._of: dict[Position, int] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests and calls."""
        match event:
            case Submitted(partition, offset, once=True):
                self._once.add((partition, offset))
            case CallStarted(call, partition, offset, epoch) if (partition, offset) in self._once:
                if (before := self._of.get((partition, offset))) is not None:
                    self._found.append(f"{(partition, offset)} was called again in epoch {epoch}, though call {before} may have been done")
                self._of[partition, offset] = call
                self._open[call] = partition, offset
            case CallEnded(call, undone=True) if (position := self._open.pop(call, None)) is not None and self._of[position] == call:
                del self._of[position]
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was called twice."""
        return self._found


@dataclass(slots=True)
class _Tally:
    """Of one request: what it may cost, what it has cost, how much of that is noted, and how much was lost with its owners.

    `is_open`: what its last try has cost is told by its note alone. `trusts`: there was such a one.
    """

    most: float
    spent: int = 0
    noted: int = 0
    lost: int = 0
    epoch: int = -1
    is_open: bool = False
    trusts: bool = False

    @property
    def known(self) -> int:
        """What its owner knows that it has cost."""
        return self.spent - self.lost

    def begin(self, epoch: int) -> bool:
        """A call begins; whether all that the owner knows is noted."""
        is_noted = self.known == self.noted and not self.is_open
        if epoch != self.epoch:
            self.epoch, self.lost, is_noted = epoch, self.lost + self.known - self.noted, True
        self.is_open = False
        return is_noted

    def fail(self, *, may_be_spared: bool) -> None:
        """A call has ended that costs an attempt, or may."""
        if may_be_spared:
            self.is_open = self.trusts = True
        else:
            self.spent += 1

    def note(self, failures: int) -> None:
        """So many are noted."""
        self.noted, self.is_open = failures, False
        if self.trusts:
            self.spent = failures + self.lost

    def park(self) -> None:
        """What its owner knows has moved with it."""
        self.noted, self.is_open = self.known, False


class Budget:
    """A request costs as many attempts as it may, whoever makes them: what an owner has noted of its tries, the next one counts.

    And the next attempt begins only when the one before is noted: so an owner that dies takes one with it at most. Looks at requests that
    say what they may cost. Exact, but for failures that a circuit breaker may have counted as an outage's: of those the note is trusted.

    >>> judge = Budget()
    >>> judge.see(Submitted(0, 1, attempts_max=2))
    >>> for call, epoch in enumerate((1, 2, 2)):
    ...     for event in (CallStarted(call, 0, 1, epoch), CallEnded(call, spent=True)):
    ...         judge.see(event)
    ...     if call:
    ...         judge.see(Attempted(0, 1, failures=call))
    >>> for event in (Submitted(0, 2, attempts_max=2), Submitted(0, 3, attempts_max=2)):
    ...     judge.see(event)
    >>> for event in (CallStarted(6, 0, 2, 1), CallEnded(6, spent=True, may_be_spared=True), Attempted(0, 2), CallStarted(7, 0, 2, 1)):
    ...     judge.see(event)
    >>> for event in (CallStarted(6, 0, 3, 1), CallStarted(7, 0, 3, 2), CallEnded(6, spent=True), CallEnded(7, spent=True)):
    ...     judge.see(event)
    >>> for event in (Attempted(0, 3, failures=1), CallStarted(8, 0, 3, 2)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (CallStarted(8, 0, 1, 3), CallEnded(8, spent=True), CallStarted(9, 0, 1, 3)):
    ...     judge.see(event)
    >>> for finding in judge.findings():
    ...     print(finding)
    (0, 1) has cost 3 attempts, and may cost 2
    (0, 1) was called again in epoch 3 before its last try was noted
    """

    def __init__(self) -> None:
        self._of: dict[Position, _Tally] = {}
        self._calls: dict[int, tuple[Position, int]] = {}  # of which request, under which epoch
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests, calls, and what is noted of them."""
        match event:
            case Submitted(partition, offset, attempts_max=most) if most < math.inf:
                self._of[partition, offset] = _Tally(most)
            case CallStarted(call, partition, offset, epoch) if (tally := self._of.get((partition, offset))) is not None:
                self._calls[call] = (partition, offset), epoch
                if epoch >= tally.epoch and not tally.begin(epoch):
                    self._found.append(f"{(partition, offset)} was called again in epoch {epoch} before its last try was noted")
            case CallEnded(call, spent=True, may_be_spared=may_be_spared) if call in self._calls:
                position, epoch = self._calls[call]
                tally = self._of[position]
                if epoch == tally.epoch:  # else nobody hears of it who calls again
                    tally.fail(may_be_spared=may_be_spared)
                    self._weigh(*position, tally)
            case Attempted(partition, offset, failures) if (tally := self._of.get((partition, offset))) is not None:
                tally.note(failures)
                self._weigh(partition, offset, tally)
            case Parked(partition, offset) if (tally := self._of.get((partition, offset))) is not None:
                tally.park()
            case _:
                pass

    def _weigh(self, partition: int, offset: int, tally: _Tally) -> None:
        if tally.known > tally.most:
            self._found.append(f"{(partition, offset)} has cost {tally.known} attempts, and may cost {tally.most}")

    def findings(self) -> list[str]:
        """Say what has cost too much."""
        return self._found
