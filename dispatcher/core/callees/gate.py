"""The gate before every call: whether it may begin now, as far as the callee is concerned, and who is next where many wait.

Two things keep a call here. The circuit breaker of its upstream (`breaker`): the callee fails. And what the callee has told about the
credential of the call (`retry_after`): a 429 with a hint is of everybody who uses that, so that not each lane has to be told by itself. Of
both the end is no stampede: calls begin again at the pace that was known (`Pace`).

Who may not begin stands in line: one line per upstream and credential, in the order in which they came; the lines of an upstream that
their credentials do not keep take turns. A driver asks (`ask`), tells (`enter`, `end`), and wakes who is `next` when it is time (`due_at`).
No step looks at more than the lines of one upstream: as many as it has credentials, however many wait.

All of it is what this worker knows: others have gates of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dispatcher.core.callees.breaker import Bearing, Breaker, Policy, State
from dispatcher.core.callees.finding import TOO_MANY_REQUESTS, Finding, Party
from dispatcher.core.callees.pace import Pace
from dispatcher.settings import UpstreamSettings

_W = TypeVar("_W", bound=Hashable)
# Why a call may not begin.
BREAKER, RETRY_AFTER = "breaker", "retry_after"
_BEARINGS = {Party.NOBODY: Bearing.SUCCESS, Party.CALLEE: Bearing.FAILURE}


@dataclass(frozen=True, slots=True)
class Stop:
    """A call may not begin. `until`, monotonic seconds: when that ends, None where it is not known."""

    why: str
    until: float | None


@dataclass(frozen=True, slots=True)
class Pass:
    """A call has begun. To be handed back when it has ended, whichever way."""

    upstream: str
    credential: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Turned:
    """The breaker of an upstream has changed its state."""

    upstream: str
    state: State
    reopens_at: float
    waiting: int


class _Line(Generic[_W]):
    """Those who wait for calls with one credential."""

    __slots__ = ("credential", "pace", "waiting")

    def __init__(self, credential: str | None) -> None:
        self.credential = credential
        self.pace = Pace()
        self.waiting: OrderedDict[_W, None] = OrderedDict()


class _Way(Generic[_W]):
    """The way to one upstream."""

    __slots__ = ("breaker", "lines", "occupied", "pace", "settings")

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        policy = Policy(
            settings.breaker_failures,
            settings.breaker_open_s,
            settings.breaker_rate,
            settings.breaker_window_s,
            settings.breaker_min_calls,
        )
        self.breaker = Breaker(policy) if settings.has_breaker else None
        self.pace = Pace()
        self.lines: dict[str | None, _Line[_W]] = {}
        self.occupied: OrderedDict[_Line[_W], None] = OrderedDict()

    def line(self, credential: str | None) -> _Line[_W]:
        line = self.lines.get(credential)
        if line is None:
            line = self.lines[credential] = _Line(credential)
        return line

    def free_at(self, now: float) -> float | None:
        """When the upstream takes a call; None: when its probe has ended."""
        at = now if self.breaker is None else self.breaker.free_at(now)
        return None if at is None else max(at, self.pace.free_at(now))

    def stop(self, line: _Line[_W], now: float) -> Stop | None:
        """What keeps a call of that line, whoever came before it."""
        if (at := line.pace.free_at(now)) > now:
            return Stop(RETRY_AFTER, at)
        if (free_at := self.free_at(now)) is None or free_at > now:
            return Stop(BREAKER, free_at)
        return None

    def keeps(self, now: float) -> str:
        """What those wait for whom nothing stops at this moment, but others who came before them."""
        is_felt = self.breaker is not None and (self.breaker.state is not State.CLOSED or self.pace.rate(now) is not None)
        return BREAKER if is_felt else RETRY_AFTER

    def is_awaited(self, now: float) -> bool:
        """Whether somebody stands in a line that the upstream alone keeps."""
        return any(line.pace.free_at(now) <= now for line in self.occupied)


class Gate(Generic[_W]):
    """Owned by the engine. `_W` is who waits: a lane. Of an upstream that it does not know nothing is kept."""

    def __init__(self, upstreams: Mapping[str, UpstreamSettings], wait_max_s: float = 600.0) -> None:
        self._ways: dict[str, _Way[_W]] = {name: _Way(of) for name, of in upstreams.items()}
        self._wait_max_s = wait_max_s
        self._stands: dict[_W, tuple[_Way[_W], _Line[_W]]] = {}
        self._turn: _W | None = None  # whose it is: who was next last
        self._turned: list[Turned] = []

    # --- calls ----------------------------------------------------------------------------------------------------------------------

    def ask(self, waiter: _W, upstream: str, credential: str | None, now: float) -> Stop | None:
        """What keeps a call from beginning; None where nothing does. Those who stand in line come first."""
        way = self._ways.get(upstream)
        if way is None:
            return None
        line = way.line(credential)
        if (stop := way.stop(line, now)) is not None:
            return stop
        if not way.occupied or waiter == self._turn or not way.is_awaited(now):
            return None
        return Stop(way.keeps(now), None)

    def enter(self, waiter: _W, upstream: str, credential: str | None, now: float) -> Pass | None:
        """A call begins that may; None where nothing is kept of its upstream."""
        way = self._ways.get(upstream)
        if way is None:
            return None
        self.leave(waiter)
        way.pace.take(now)
        way.line(credential).pace.take(now)
        if way.breaker is None:
            return Pass(upstream, credential, 0)
        state = way.breaker.state
        taken = Pass(upstream, credential, way.breaker.begin(now))
        self._note(upstream, way.breaker, state)
        return taken

    def holds(self, taken: Pass) -> bool:
        """Whether a call that is not made yet may be made with this: the breaker is as it was when it was taken."""
        breaker = self._ways[taken.upstream].breaker
        return breaker is None or breaker.generation == taken.generation

    def end(self, taken: Pass, finding: Finding | None, now: float) -> bool:
        """A call has ended, None: it was cut off, and nothing is known. Whether its failure is one of the breaker's outage.

        Such a failure spends none of the request's attempts: it waits as those do whose calls were not begun.
        """
        way = self._ways[taken.upstream]
        bearing = Bearing.NOTHING if finding is None else _BEARINGS.get(finding.fault, Bearing.NOTHING)
        if bearing is Bearing.SUCCESS:
            way.line(taken.credential).pace.succeeded(now)
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

    def _heed(self, way: _Way[_W], credential: str | None, finding: Finding, now: float) -> None:
        """Keep the calls of a credential that the callee says are too many, for as long as it says; the latest answer counts.

        A 503 is about the callee, not about who calls: that is the breaker's. And a quota that is used up comes back by no waiting.
        """
        is_limit = finding.status == TOO_MANY_REQUESTS and finding.again and not finding.is_quota
        if credential is None or finding.told_s is None or not is_limit or not way.settings.hint_holds_credential:
            return
        pace = way.line(credential).pace
        if pace.free_at(now) <= now:
            pace.stop()
        pace.go(now + min(finding.told_s, self._wait_max_s))

    # --- lines ----------------------------------------------------------------------------------------------------------------------

    def stand(self, waiter: _W, upstream: str, credential: str | None) -> None:
        """Stand in line; who stands there already keeps its place."""
        way = self._ways[upstream]
        line = way.line(credential)
        if self._stands.get(waiter) == (way, line):
            return
        self.leave(waiter)
        self._stands[waiter] = way, line
        line.waiting[waiter] = None
        way.occupied[line] = None

    def leave(self, waiter: _W, *, keeps_turn: bool = False) -> None:
        """Stand in no line any more: its call begins, or its next step is no call.

        Who only has no slot yet keeps its turn: two who lost it to each other, each time that a slot was offered, would do so for ever.
        """
        if self._turn == waiter and not keeps_turn:
            self._turn = None
        if (place := self._stands.pop(waiter, None)) is not None:
            way, line = place
            del line.waiting[waiter]
            if not line.waiting:
                del way.occupied[line]

    def next(self, upstream: str, now: float) -> _W | None:
        """Whose call may begin now: it is not in line any more, and nobody comes before it until the next one is asked for."""
        way = self._ways[upstream]
        if way.free_at(now) != now:
            return None
        for line in way.occupied:
            if line.pace.free_at(now) <= now:
                waiter = next(iter(line.waiting))
                way.occupied.move_to_end(line)
                self.leave(waiter)
                self._turn = waiter
                return waiter
        return None

    def due_at(self, upstream: str, now: float) -> float | None:
        """When the next of those who stand in line may begin; None where none does, or where the end of the probe is waited for."""
        way = self._ways[upstream]
        if not way.occupied or (free_at := way.free_at(now)) is None:
            return None
        return max(free_at, min(line.pace.free_at(now) for line in way.occupied))

    def why(self, waiter: _W, now: float) -> Stop | None:
        """What keeps somebody who stands in line."""
        place = self._stands.get(waiter)
        return None if place is None else place[0].stop(place[1], now) or Stop(place[0].keeps(now), None)

    # --- told -----------------------------------------------------------------------------------------------------------------------

    def turned(self) -> list[Turned]:
        """What breakers have done since this was asked last."""
        turned, self._turned = self._turned, []
        return turned

    def _note(self, upstream: str, breaker: Breaker, before: State) -> None:
        if breaker.state is not before:
            waiting = sum(len(line.waiting) for line in self._ways[upstream].lines.values())
            self._turned.append(Turned(upstream, breaker.state, breaker.reopens_at, waiting))
