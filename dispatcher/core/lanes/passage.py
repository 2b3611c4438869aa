"""A lane's way to a call: what the budgets say that pay for it, what it asks at the gate, its pass, and what it hands back in the end."""

from __future__ import annotations

from typing import Generic, TypeVar

from dispatcher.core.callees.charge import cost_of_call
from dispatcher.core.callees.finding import Finding
from dispatcher.core.callees.gate import Gate, Pass
from dispatcher.core.callees.line import LIMIT
from dispatcher.core.callees.reservation import SILENT, Statement, statement_of
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.ending import Endings
from dispatcher.core.lanes.lane_queue import Waiting
from dispatcher.core.lanes.ledger import BUDGET, Lacking, Ledger, Spent
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Gated, Wait
from dispatcher.core.messages.call import Answered, CallResult
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Request
from dispatcher.core.messages.usage import Usage

_W = TypeVar("_W")
# One that is parked while nobody knows when its call may begin comes back after so long; where it is known, then.
GATED_PARKED_S = 5.0
# When a limit lets somebody through is guessed from how turns came of late; they may come faster, and nobody stays away for longer.
GUESSED_PARKED_S = 30.0
# Who waits for what other partitions have of a budget is told when that has come; and asks by himself each so often.
LACKING_S = 5.0
# A call that its deadline cuts off ends by a timer, which may be a little early.
TIMER_S = 0.05


class Passage(Generic[_W]):
    """Owned by one lane, `who` waits at the gate. `ledger`: what keys of its partition have spent.

    `limited_s`: how long the call that was let through last waited for limits.
    """

    __slots__ = ("_endings", "_gate", "_lacks", "_limited_since", "_pass", "_put_off", "_who", "ledger", "limited_s")

    def __init__(self, who: _W, gate: Gate[_W] | None, ledger: Ledger | None, endings: Endings) -> None:
        self._who = who
        decoder = endings.decoder
        self.ledger = Ledger(decoder.settings, decoder.book, endings.owner.partition) if ledger is None else ledger
        self._endings = endings
        self._gate: Gate[_W] = Gate({}) if gate is None else gate
        self._lacks = False  # it waits for what other partitions have of a budget
        self._pass: Pass | None = None  # of the call in flight
        self._put_off: tuple[Waiting, float, str] | None = None  # who is to be parked, and how long and why it waited before
        self._limited_since: float | None = None
        self.limited_s: float | None = None  # None where it is under none

    def ask(self, request: Request, waiting: Waiting, instant: Instant, *, may_call: bool = True) -> Gated | Wait | Outcome | None:
        """Where to stand in line, or how long to wait, or how it ends, if its call may not begin. `may_call`: as in `Lane.next`.

        One that was let through is asked for anew once its breaker has turned.
        """
        now = instant.mono
        spent = self.ledger.ask(request, instant.wall, may_call=may_call)
        self._lacks = isinstance(spent, Lacking)
        if spent is not None:
            return self._refused(request, waiting, spent, instant)
        if self._pass is not None:
            if self._gate.holds(self._pass):
                return None
            self._hand_back(None, now)
        stop = self._gate.ask(self._who, request.claim, now)
        if stop is None:
            return None
        if stop.why == LIMIT and self._limited_since is None:
            self._limited_since = now
        return Gated(request.claim)

    def _refused(self, request: Request, waiting: Waiting, spent: Spent | Lacking, instant: Instant) -> Wait | Outcome:
        """What becomes of a request whose budget does not pay for a call."""
        if isinstance(spent, Lacking):
            return Wait(instant.mono + LACKING_S, BUDGET)
        if not spent.waits:
            return self._endings.spent(request, spent, waiting.tries.calls, instant)
        waiting.not_before, waiting.why = instant.mono + max(0.0, spent.until - instant.wall), BUDGET
        return Wait(waiting.not_before, waiting.why)

    def let(self, request: Request, now: float) -> None:
        """Its call is let through, or its intent is on its way: from there on it is one in flight for the gate."""
        if self._pass is None:
            taken = self._pass = self._gate.enter(self._who, request.claim, now)
            since = now if self._limited_since is None else self._limited_since
            self.limited_s = None if taken is None or taken.reservation is None else now - since

    def may_begin(self, now: float) -> bool:
        """Whether the call that was let through may still be made: what was ours of its limits may be another worker's by now."""
        return self._pass is None or self._gate.may_begin(self._pass, now)

    def begin(self, now: float) -> bool:
        """It is made now; whether that is of any consequence for others who wait."""
        return self._pass is not None and self._gate.begin(self._pass, now)

    def answered(self, request: Request, result: CallResult, finding: Finding, instant: Instant, used: Usage | None = None) -> bool:
        """The call has ended so, and was billed so; whether its failure is an outage of its upstream's, and not one of the request's own.

        One that its request's deadline has cut off says nothing of the callee, who might have answered soon.
        """
        self.ledger.settle(request.record, cost_of_call(result, used))
        is_late = request.deadline is not None and instant.wall >= request.deadline - TIMER_S
        is_limited = self._pass is not None and self._pass.reservation is not None
        said = statement_of(result, used, instant.wall) if is_limited else SILENT
        return self._hand_back(None if is_late and not isinstance(result, Answered) else finding, instant.mono, said)

    def cancelled(self, record: Record, now: float) -> None:
        """The call was cut off, since somebody wants its request ended: nobody knows what it has cost."""
        self.ledger.settle(record, None)
        self.cut_off(now)

    def cut_off(self, now: float) -> str | None:
        """The call was cancelled and has ended, or is not made: nothing is known of it. Returns its upstream, None where there was none."""
        upstream = None if self._pass is None else self._pass.upstream
        self._hand_back(None, now)
        return upstream

    def why(self, now: float) -> tuple[str, float | None] | None:
        """What keeps the lane, and until when, while it stands in line."""
        if self._lacks:
            return BUDGET, now  # soon, one way or the other: it is not worth while to move it aside
        stop = self._gate.why(self._who, now)
        return None if stop is None else (stop.why, stop.until)

    def put_off(self, waiting: Waiting, now: float) -> None:
        """Its head is to be parked. Where that stands in line it comes back when its turn may be near, and stands in line anew."""
        self._put_off = waiting, waiting.not_before, waiting.why
        if (stop := self._gate.why(self._who, now)) is not None:
            until = stop.until or now + GATED_PARKED_S
            waiting.not_before, waiting.why = min(until, now + GUESSED_PARKED_S) if stop.why == LIMIT else until, stop.why

    def put_aside(self, *, goes: bool) -> None:
        """Its head was parked, or could not be and waits here on. Before a limit, it is called back when that lets it through."""
        if self._put_off is None:
            return
        (waiting, not_before, why), self._put_off = self._put_off, None
        if not goes:
            waiting.not_before, waiting.why = not_before, why
            return
        self._lacks = False
        if waiting.why == LIMIT:
            self._gate.put_aside(self._who)

    def _hand_back(self, finding: Finding | None, now: float, said: Statement = SILENT) -> bool:
        taken, self._pass, self._limited_since, self._lacks = self._pass, None, None, False
        return taken is not None and self._gate.end(taken, finding, now, said)
