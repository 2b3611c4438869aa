"""The gate before every call: whether it may begin now, as far as the callee is concerned, and who is next where many wait.

Three things keep a call here. The circuit breaker of its upstream (`breaker`): the callee fails. What the callee has told about the
credential of the call (`retry_after`): a 429 with a hint is of everybody who uses that, so that not each lane has to be told by itself. Of
both the end is no stampede: calls begin again at the pace that was known (`Pace`). And the configured limits that it is under (`limit`):
it would be more than the callee takes at once, or in a window. What a call has of them is reserved when it is let through (`enter`), counts
from when it is made (`begin`), and is settled when it has ended (`end`).

Who may not begin stands in line: one line per upstream, credential and limits, the most urgent first; the lines of an upstream,
and of all upstreams that share a limit with it (`Family`), take turns. A driver asks (`ask`), tells (`enter`, `begin`, `end`), and wakes
who is `next` when it is time (`due_at`). No step looks at more than the lines of one family: as many as it has credentials and models with
limits of their own, however many wait.

All of it is what this worker knows: others have gates of their own, and what of the limits is this one's is found in `shares`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dispatcher.core.callees.breaker import Bearing, Breaker, State
from dispatcher.core.callees.family import Family
from dispatcher.core.callees.finding import TOO_MANY_REQUESTS, Finding, Party
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.limiter import Limiter
from dispatcher.core.callees.line import Line, Stop
from dispatcher.core.callees.reservation import SILENT, Reservation, Statement
from dispatcher.core.callees.way import Way
from dispatcher.core.messages.claim import Claim
from dispatcher.core.messages.request import PRIORITY_USUAL
from dispatcher.settings import LimitSettings, UpstreamSettings

_W = TypeVar("_W", bound=Hashable)
_BEARINGS = {Party.NOBODY: Bearing.SUCCESS, Party.CALLEE: Bearing.FAILURE}


@dataclass(frozen=True, slots=True)
class Pass:
    """A call has begun, or is about to. To be handed back when it has ended, whichever way."""

    upstream: str
    credential: str | None
    generation: int
    reservation: Reservation | None = None  # None where it is under no limit


class Crowd(NamedTuple):
    """Who waits for a limit: how many calls, how many tokens they may take, and how many the next of some line may."""

    calls: int = 0
    tokens: int = 0
    first_tokens: int = 0

    def and_of(self, other: Crowd) -> Crowd:
        """Both together."""
        return Crowd(self.calls + other.calls, self.tokens + other.tokens, max(self.first_tokens, other.first_tokens))


@dataclass(frozen=True, slots=True)
class Turned:
    """The breaker of an upstream has changed its state."""

    upstream: str
    state: State
    reopens_at: float
    waiting: int


class Gate(Generic[_W]):
    """Owned by the engine. `_W` is who waits: a lane. Of an upstream that it does not know nothing is kept.

    `limits`: by name, as they are configured.
    """

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamSettings],
        wait_max_s: float = 600.0,
        limits: Mapping[str, LimitSettings] | None = None,
    ) -> None:
        self._limiter = Limiter(limits or {}, wait_max_s)
        self._ways = {name: Way(of) for name, of in upstreams.items()}
        self._families: dict[str, Family[_W]] = {}
        for members in self._limiter.families(upstreams):
            self._families |= dict.fromkeys(members, Family(members[0]))
        self._wait_max_s = wait_max_s
        self._stands: dict[_W, tuple[Family[_W], Line[_W]]] = {}
        self._turns: dict[_W, Family[_W]] = {}  # whose turn it is, of which family
        self._aside: dict[_W, tuple[Family[_W], Line[_W]]] = {}  # who was moved aside, from where
        self._turned: list[Turned] = []

    # --- calls ----------------------------------------------------------------------------------------------------------------------

    def ask(self, waiter: _W, claim: Claim, now: float) -> Stop | None:
        """What keeps a call from beginning; None where nothing does. Those who stand in line come first."""
        way = self._ways.get(claim.upstream)
        if way is None:
            return None
        family, line = self._line(way, claim)
        if (stop := line.stop(claim.tokens, now)) is not None:
            return stop
        if waiter == family.turn or not family.precedes(line, now):
            return None
        return Stop(line.keeps(now), None)

    def enter(self, waiter: _W, claim: Claim, now: float) -> Pass | None:
        """A call that may begin is let through; None where nothing is kept of its upstream."""
        way = self._ways.get(claim.upstream)
        if way is None:
            return None
        _, line = self._line(way, claim)
        self.leave(waiter)
        self.forget(waiter)
        way.pace.take(now)
        line.pace.take(now)
        reservation = None
        if line.limits:
            line.turn(now)
            reservation = Reservation(line.limits, claim.tokens)
        if way.breaker is None:
            return Pass(claim.upstream, claim.credential, 0, reservation)
        state = way.breaker.state
        taken = Pass(claim.upstream, claim.credential, way.breaker.begin(now), reservation)
        self._note(claim.upstream, way.breaker, state)
        return taken

    def begin(self, taken: Pass, now: float) -> bool:
        """The call that was let through is made now; whether that is of any consequence for those who wait."""
        if taken.reservation is None:
            return False
        taken.reservation.begin(now)
        return True

    def may_begin(self, taken: Pass, now: float) -> bool:
        """Whether the call that was let through may be made now: what was ours of its limits then may not be so any more."""
        return taken.reservation is None or taken.reservation.may_begin(now)

    def holds(self, taken: Pass) -> bool:
        """Whether a call that is not made yet may be made with this: the breaker is as it was when it was taken."""
        breaker = self._ways[taken.upstream].breaker
        return breaker is None or breaker.generation == taken.generation

    def end(self, taken: Pass, finding: Finding | None, now: float, said: Statement = SILENT) -> bool:
        """A call has ended, None: it was cut off, and nothing is known, or not made. Whether its failure is one of the breaker's outage.

        Such a failure spends none of the request's attempts: it waits as those do whose calls were not begun.
        """
        way = self._ways[taken.upstream]
        if taken.reservation is not None:
            taken.reservation.end(finding, said, now, self._wait_max_s, is_of_credential=way.settings.hint_holds_credential)
        bearing = Bearing.NOTHING if finding is None else _BEARINGS.get(finding.fault, Bearing.NOTHING)
        if bearing is Bearing.SUCCESS:
            way.pace_of(taken.credential).succeeded(now)
        elif finding is not None:
            self._heed(way, taken.credential, finding, now)
        breaker = way.breaker
        if breaker is None:
            return False
        state = breaker.state
        is_spared = breaker.end(taken.generation, bearing, now)
        if breaker.state is State.OPEN and state is not State.OPEN:
            way.pace.stop()
        elif breaker.state is State.CLOSED and state is not State.CLOSED:
            way.pace.go(now)
        if bearing is Bearing.SUCCESS and state is State.CLOSED:
            way.pace.succeeded(now)
        self._note(taken.upstream, breaker, state)
        return is_spared

    def _heed(self, way: Way, credential: str | None, finding: Finding, now: float) -> None:
        """Keep the calls of a credential that the callee says are too many, for as long as it says; the latest answer counts.

        A 503 is about the callee, not about who calls: that is the breaker's. And a quota that is used up comes back by no waiting.
        """
        is_limit = finding.status == TOO_MANY_REQUESTS and finding.again and not finding.is_quota
        if credential is None or finding.told_s is None or not is_limit or not way.settings.hint_holds_credential:
            return
        pace = way.pace_of(credential)
        if pace.free_at(now) <= now:
            pace.stop()
        pace.go(now + min(finding.told_s, self._wait_max_s))

    def _line(self, way: Way, claim: Claim) -> tuple[Family[_W], Line[_W]]:
        family = self._families[claim.upstream]
        return family, family.line(way, claim.credential, self._limiter.of(claim))

    # --- lines ----------------------------------------------------------------------------------------------------------------------

    def family_of(self, upstream: str) -> str:
        """The upstream that stands for all that share a limit with this one: who waits for any of them is `next` under its name."""
        family = self._families.get(upstream)
        return upstream if family is None else family.name

    def families(self) -> set[str]:
        """All of those."""
        return {family.name for family in self._families.values()}

    def stand(self, waiter: _W, claim: Claim, priority: int = PRIORITY_USUAL) -> None:
        """Stand in line; who stands there already, and is as urgent as before, keeps its place."""
        family, line = self._line(self._ways[claim.upstream], claim)
        if self._stands.get(waiter) == (family, line) and line.priority_of(waiter) == priority:
            return
        self.leave(waiter)
        self.forget(waiter)
        self._stands[waiter] = family, line
        family.join(line, waiter, claim.tokens, priority)

    def leave(self, waiter: _W, *, keeps_turn: bool = False) -> None:
        """Stand in no line any more: its call begins, or its next step is no call.

        Who only has no slot yet keeps its turn: two who lost it to each other, each time that a slot was offered, would do so for ever.
        """
        if not keeps_turn and (family := self._turns.pop(waiter, None)) is not None:
            family.turn = None
        if (place := self._stands.pop(waiter, None)) is not None:
            family, line = place
            family.leave(line, waiter)

    def next(self, upstream: str, now: float) -> _W | None:
        """Whose call may begin now: it is not in line any more, and nobody comes before it until the next one is asked for."""
        family = self._families[upstream]
        for line, at in family.due(now):
            if at == now:
                waiter = line.first
                family.serve(line)
                self.leave(waiter)
                if family.turn is not None:
                    del self._turns[family.turn]
                family.turn = waiter
                self._turns[waiter] = family
                return waiter
        return None

    def due_at(self, upstream: str, now: float) -> float | None:
        """When the next of those who stand in line may begin; None where none does, or where only the end of a call tells."""
        return min((at for _, at in self._families[upstream].due(now) if at is not None), default=None)

    def why(self, waiter: _W, now: float) -> Stop | None:
        """What keeps somebody who stands in line."""
        place = self._stands.get(waiter)
        return None if place is None else place[1].stands(waiter, now)

    # --- limits ---------------------------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Mapping[str, Limit]:
        """All that are configured, by name: what of them is ours may be changed, then all families have to be looked at."""
        return self._limiter.limits

    def waiting(self) -> dict[Limit, Crowd]:
        """Who waits in the lines of each limit that anybody waits for, and elsewhere where he was moved aside."""
        crowds: dict[Limit, Crowd] = {}
        for family in dict.fromkeys(self._families.values()):
            told = [(line, Crowd(len(line), line.tokens, line.first_tokens)) for line in family.occupied()]
            told += [(line, Crowd(len(line.aside), line.aside.tokens, line.aside.first_tokens)) for line in family.aside()]
            for line, crowd in told:
                for limit in line.limits:
                    crowds[limit] = crowd.and_of(crowds.get(limit, Crowd()))
        return crowds

    # --- moved aside ----------------------------------------------------------------------------------------------------------------

    def put_aside(self, waiter: _W) -> None:
        """Who stands in line before a limit waits elsewhere, and is called back when it lets somebody through."""
        if (place := self._stands.pop(waiter, None)) is not None:
            family, line = self._aside[waiter] = place
            family.put_aside(line, waiter)
        self.leave(waiter)

    def come(self, waiter: _W) -> None:
        """Whoever was moved aside is on his way back: he came by himself."""
        if (place := self._aside.get(waiter)) is not None:
            place[1].aside.come(waiter)

    def forget(self, waiter: _W) -> str | None:
        """Nobody waits for him any more: he is here, or is to do something else. The upstream of his line where he was on his way."""
        if (place := self._aside.pop(waiter, None)) is None:
            return None
        family, line = place
        return family.name if family.forget(line, waiter) else None

    def has_aside(self, upstream: str) -> bool:
        """Whether anybody of that upstream was moved aside, or of those who share a limit with it."""
        return bool(self._aside) and bool(self._families[upstream].aside())

    def call_back(self, upstream: str, most: int, now: float) -> list[_W]:
        """Those who were moved aside and may begin now: they are on their way from now on, at most so many."""
        return self._families[upstream].call_back(most, now)

    def free_again_at(self, upstream: str, now: float) -> float | None:
        """When that may be so again, as far as it is known; None where the end of a call tells, or nobody was moved aside."""
        return self._families[upstream].free_again_at(now)

    # --- told -----------------------------------------------------------------------------------------------------------------------

    def turned(self) -> list[Turned]:
        """What breakers have done since this was asked last."""
        turned, self._turned = self._turned, []
        return turned

    def _note(self, upstream: str, breaker: Breaker, before: State) -> None:
        if breaker.state is not before:
            waiting = self._families[upstream].waiting(self._ways[upstream])
            self._turned.append(Turned(upstream, breaker.state, breaker.reopens_at, waiting))
