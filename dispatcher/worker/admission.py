"""The gate in time: wakes the lanes that stand in its lines, one after another, when their calls may begin; and says what breakers do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.line import LIMIT
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import Busy, Fetch, Gated, Ready, Step, Wait
from dispatcher.worker.clock import TURN_S, Clock
from dispatcher.worker.protocols import Observer
from dispatcher.worker.turns import Turns

# The sum of a time and what is left until another may fall short of that one by a rounding: a timer of no length at all would then set
# itself again and again, without an end where time stands still meanwhile.
MOMENT_S = 1e-6


class Driver(Protocol):
    """Who moves lanes: the engine."""

    def advance(self, partition: Partition, lane: Lane) -> None: ...


class Admission:
    """Owned by the engine, on its event loop. One timer per upstream, or for all that share a limit, however many lanes wait for it."""

    def __init__(
        self,
        driver: Driver,
        gate: Gate[Lane],
        turns: Turns,
        partition_of: Callable[[Owner], Partition | None],
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._gate = gate
        self._turns = turns
        self._partition_of = partition_of
        self._observer = observer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._calling_back: set[str] = set()  # upstreams of which those are called back who were moved aside, in the loop's next turn
        self._returns: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # when some of them may begin
        self._short_of_slots: dict[str, None] = {}  # upstreams whose turn has come, while no slot was free

    def stand(self, lane: Lane, gated: Gated) -> None:
        """A lane stands in line until it is woken."""
        self._gate.stand(lane, gated.claim, lane.priority)
        self._await(self._gate.family_of(gated.claim.upstream))

    def moved(self, lane: Lane, step: Step, *, keeps_turn: bool = False) -> None:
        """This is next for a lane: it may not stand in line any more, or not be waited for where it was moved aside."""
        if isinstance(step, Gated):
            return
        self._gate.leave(lane, keeps_turn=keeps_turn)
        match step:
            case Wait(_, why) if why == LIMIT:
                pass
            case Busy() | Fetch() | Ready():
                self._gate.come(lane)
            case _:
                self._forget(lane)

    def gone(self, lane: Lane) -> None:
        """A lane is closed."""
        self._gate.leave(lane)
        self._forget(lane)

    def _forget(self, lane: Lane) -> None:
        if (upstream := self._gate.forget(lane)) is not None:
            self._await(upstream)

    def look(self, upstream: str) -> None:
        """A call has begun or ended: its breaker and its limits may have changed, and somebody else may be next."""
        for turned in self._gate.turned():
            self._observer.breaker_turned(turned)
        self._await(self._gate.family_of(upstream))

    def look_at_all(self) -> None:
        """What is ours of limits has changed."""
        for upstream in self._gate.families():
            self._await(upstream)

    def resume(self) -> None:
        """There may be slots again."""
        for upstream in list(self._short_of_slots):
            del self._short_of_slots[upstream]
            self._wake(upstream)

    def _await(self, upstream: str) -> None:
        """Wake when the next one may begin; where that is not known it is told by the end of a call."""
        now = self._clock.now().mono
        self._await_aside(upstream)
        due, known = self._gate.due_at(upstream, now), self._timers.get(upstream)
        if known is not None:
            if known[0] == due:
                return
            known[1].cancel()
            del self._timers[upstream]
        if due is not None and upstream not in self._short_of_slots:
            self._timers[upstream] = due, self._loop.call_later(max(due - now, MOMENT_S), self._wake_in_time, upstream)

    def _wake_in_time(self, upstream: str) -> None:
        self._timers.pop(upstream, None)
        self._wake(upstream)

    def _wake(self, upstream: str) -> None:
        """Let those begin who may, while there are slots; where there are none, one of them stands in line for the next."""
        began = now = self._clock.now().mono
        while now < began + TURN_S:
            has_slots = self._turns.has_spare
            lane = self._gate.next(upstream, now)
            if lane is None:
                break
            partition = self._partition_of(lane.owner)
            if partition is not None:
                self._driver.advance(partition, lane)
            if not has_slots:
                self._short_of_slots[upstream] = None
                return
            now = self._clock.now().mono
        self._await(upstream)

    # --- moved aside ----------------------------------------------------------------------------------------------------------------

    def _await_aside(self, upstream: str) -> None:
        """Something has changed: those who were moved aside may be called back, once this turn of the loop is over."""
        if upstream not in self._calling_back and self._gate.has_aside(upstream):
            self._calling_back.add(upstream)
            self._loop.call_soon(self._call_back, upstream)

    def _call_back(self, upstream: str) -> None:
        """Call as many back as may begin; the others when some may, or when there are slots."""
        self._calling_back.discard(upstream)
        instant = self._clock.now()
        spare = self._turns.spare
        for lane in self._gate.call_back(upstream, spare, instant.mono):
            lane.parking.hasten(instant)
            if (partition := self._partition_of(lane.owner)) is not None:
                self._driver.advance(partition, lane)
        if not spare:
            self._short_of_slots[upstream] = None
        due, known = self._gate.free_again_at(upstream, instant.mono), self._returns.get(upstream)
        if due is not None and (known is None or due < known[0]):
            if known is not None:
                known[1].cancel()
            delay_s = max(due - instant.mono, MOMENT_S)
            self._returns[upstream] = due, self._loop.call_later(delay_s, self._return_in_time, upstream)

    def _return_in_time(self, upstream: str) -> None:
        self._returns.pop(upstream, None)
        self._await_aside(upstream)
