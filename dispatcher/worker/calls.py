"""The calls in hand: a task each, by lane; and those of assignments that are over, until they have really ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Protocol

from dispatcher.core.callees.finding import OURS
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import WITHHELD, Ambiguous, Call, CallResult, NotSent, Withheld
from dispatcher.worker.clock import Clock
from dispatcher.worker.protocols import HttpEngine, Observer

# From the decision that a call begins to its first step, where nothing holds this process up: one turn of a busy loop.
LATE_S = 0.05
LEAST_S = 0.001  # no timeout at all is what 0 means to HTTP clients


class Caller(Protocol):
    """Who wants to know how calls end: the engine."""

    def sent(self, lane: Lane, start: Start) -> None: ...
    def answered(self, partition: Partition, lane: Lane, start: Start, result: CallResult, took_s: float) -> None: ...
    def cancelled(self, partition: Partition, lane: Lane) -> None: ...
    def cut_off(self, partition: Partition, lane: Lane) -> None: ...


class Calls:
    """Owned by the engine, on its event loop."""

    def __init__(self, caller: Caller, http: HttpEngine, observer: Observer, clock: Clock) -> None:
        self._caller = caller
        self._http = http
        self._observer = observer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        # Calls of assignments that are over and that have not ended yet: by partition and key, of which there is one each; by assignment.
        self._cut: dict[tuple[int, bytes | None], asyncio.Task[None]] = {}
        self._cutting: Counter[Owner] = Counter()

    def __len__(self) -> int:
        """How many are in hand, of live assignments."""
        return len(self._tasks)

    def is_cut(self, lane: Lane) -> bool:
        """Whether a call of this key, of an earlier assignment, was cancelled and has not ended: `Caller.cut_off` comes with its end."""
        return (lane.owner.partition, lane.key) in self._cut

    def has_cut(self, owner: Owner) -> bool:
        """Whether calls of this assignment have been cancelled and not ended yet."""
        return self._cutting[owner] > 0

    def start(self, partition: Partition, lane: Lane, start: Start) -> None:
        """Make this call; `Caller.answered` comes with its end."""
        task = self._loop.create_task(self._call(partition, lane, start, self._clock.now().mono))
        task.add_done_callback(_raise)
        self._tasks[lane] = task

    def cancel(self, partition: Partition, lane: Lane) -> None:
        """Its request is to end now: cancel what is in hand. `Caller.cancelled` comes when it has ended, unless its answer was first."""
        call = self._tasks[lane]
        call.cancel()
        # Not left to the call itself: a task that is cancelled before its first step never runs a line of it.
        call.add_done_callback(partial(self._cancelled, partition, lane))

    def cut(self, partition: Partition) -> None:
        """The assignment is over: cancel what is in hand of it. `Caller.cut_off` comes for each when it has ended."""
        for lane in partition.busy():
            call = self._cut[partition.owner.partition, lane.key] = self._tasks.pop(lane)
            self._cutting[partition.owner] += 1
            if not call.cancelling():  # a second time would disturb an adapter that is closing its connection
                call.cancel()
            call.add_done_callback(partial(self._ended, partition, lane))  # as above

    async def _call(self, partition: Partition, lane: Lane, start: Start, decided: float) -> None:
        began = self._clock.now().mono
        result: CallResult
        try:
            result = await self._http.call(_in_time(start.call, began - decided), partial(self._caller.sent, lane, start))
        except Withheld:
            result = NotSent(WITHHELD, "a limit of its call is another worker's by now")
        except asyncio.CancelledError:
            return  # The assignment is over, or its request is to end; `cut` or `cancel` sees to what is left.
        except Exception as error:  # noqa: BLE001 - an adapter's bug must cost one attempt, not the lane
            self._observer.bug(error, "http")
            result = Ambiguous(OURS, type(error).__name__)
        # Where the assignment ended in this very turn, the call is among those that were cut.
        if self._tasks.pop(lane, None) is not None:
            self._caller.answered(partition, lane, start, result, self._clock.now().mono - began)

    def _cancelled(self, partition: Partition, lane: Lane, call: asyncio.Task[None]) -> None:
        # Where the assignment has ended, or an answer came all the same, it is not in hand any more.
        if self._tasks.get(lane) is call:
            del self._tasks[lane]
            self._caller.cancelled(partition, lane)

    def _ended(self, partition: Partition, lane: Lane, _: asyncio.Task[None]) -> None:
        """The call of an assignment that is over has ended: a later assignment may start a call of its key now."""
        owner = partition.owner
        del self._cut[owner.partition, lane.key]
        self._cutting[owner] -= 1
        if not self._cutting[owner]:
            del self._cutting[owner]
        self._caller.cut_off(partition, lane)


def _in_time(call: Call, late_s: float) -> Call:
    """The call with what is left of its time: a process that froze before it began must not run past the request's deadline."""
    return call if late_s < LATE_S else replace(call, timeout_s=max(call.timeout_s - late_s, LEAST_S))


def _raise(task: asyncio.Task[None]) -> None:
    """Hand a bug in a call's own steps to the event loop's handler, which ends the worker: a lane that stands silently helps nobody."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
