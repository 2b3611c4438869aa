"""The engine: owns every partition and lane, on the event loop. It asks lanes what to do, does it, and tells them how it went.

Nothing here awaits but the call itself: `_advance` runs a lane until it waits for something, and whatever it waits for (an answer, a
time, a slot, a record) calls `_advance` again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from dispatcher.core.call import Ambiguous, Call, CallResult
from dispatcher.core.lane import Settle, Start, Wait
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.partition import Flow, Partition, Room
from dispatcher.core.record import Record
from dispatcher.core.request import Decoder
from dispatcher.core.verdict import Dead, Retry, Settled
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Command, Cut, Drained, Pause, Resume

# One lane's share of a turn of the event loop: a flood of refused records must not hold up everybody's answers.
TURN_S = 0.02


class HttpEngine(Protocol):
    """Makes calls; never raises for how they end."""

    async def call(self, call: Call) -> CallResult: ...


class Observer(Protocol):
    """Hears what happens; metrics and logs. It cannot stop the core: the implementation guards itself."""

    def started(self, start: Start) -> None: ...
    def answered(self, start: Start, result: CallResult, verdict: Retry | Settled | Dead, seconds: float) -> None: ...
    def settled(self, outcome: Outcome, *, misplaced: bool) -> None: ...
    def acknowledged(self, outcome: Outcome) -> None: ...
    def assigned(self, partition: Partition) -> None: ...
    def measured(self, partition: Partition, end: int, now: float) -> None: ...
    def gone(self, owner: Owner) -> None: ...
    def bug(self, error: BaseException, where: str) -> None: ...


class Engine:
    """`partitions` holds one object per live assignment. All methods run on the event loop."""

    def __init__(
        self,
        decoder: Decoder,
        http: HttpEngine,
        poller: SimpleQueue[Command],
        publisher: SimpleQueue[object],
        observer: Observer,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        worker = decoder.settings.worker
        self._decoder = decoder
        self._http = http
        self._poller = poller
        self._publisher = publisher
        self._observer = observer
        self._clock = clock
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._room = Room(worker.lane_buffer_max_records, worker.lane_buffer_max_bytes, worker.transaction_timeout_s)
        self._slots = worker.inflight_max
        self._ready: deque[Partition] = deque()  # runnable lanes that wait for a slot
        self._calls: dict[Owner, asyncio.Task[None]] = {}
        self._cut: set[Owner] = set()  # assignments that are over and whose call has not ended yet
        self._timers: dict[Owner, asyncio.TimerHandle] = {}
        self.partitions: dict[int, Partition] = {}

    # --- from the poller ------------------------------------------------------------------------------------------------------------

    def assigned(self, owner: Owner, position: int) -> None:
        """A partition came; records follow."""
        partition = Partition(owner, position, self._decoder, self._room)
        self.partitions[owner.partition] = partition
        self._observer.assigned(partition)

    def delivered(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None:
        """Records came, and ends of partitions were seen behind them."""
        now = self._clock.now().mono
        for owner, batch in records.items():
            partition = self._of(owner)
            if partition is not None:
                self._tell_flow(partition, partition.accept(batch, now))
                self._advance(partition)
        for owner, end in ends.items():
            partition = self._of(owner)
            outcome = None if partition is None else partition.reach_end(end, now)
            if outcome is not None:
                self._publisher.put(outcome)

    def revoke(self, owners: Iterable[Owner]) -> None:
        """Start nothing more in these partitions; says Drained for each once nothing of it is in flight."""
        for owner in owners:
            partition = self._of(owner)
            if partition is not None:
                partition.close()
                self._tell_drained(partition)

    def abandon(self, owners: Iterable[Owner]) -> None:
        """These assignments are over: cut off the calls in hand and forget them; says Cut for each once its call has ended."""
        for owner in owners:
            partition = self._of(owner)
            if partition is not None:
                partition.close()
                del self.partitions[owner.partition]
                self._observer.gone(owner)
                if (timer := self._timers.pop(owner, None)) is not None:
                    timer.cancel()
            call = self._calls.get(owner)
            if call is None:
                self._poller.put(Cut(owner))
            elif owner not in self._cut:
                self._cut.add(owner)
                call.cancel()
                # Not left to the call itself: a task that is cancelled before its first step never runs a line of it.
                call.add_done_callback(partial(self._call_cut, owner))

    def measured(self, ends: dict[Owner, int]) -> None:
        """The logs of these partitions end there."""
        now = self._clock.now().mono
        for owner, end in ends.items():
            if (partition := self._of(owner)) is not None:
                self._observer.measured(partition, end, now)

    # --- from the publisher ---------------------------------------------------------------------------------------------------------

    def acknowledged(self, outcomes: list[Outcome]) -> None:
        """These are published and their positions committed."""
        now = self._clock.now().mono
        for outcome in outcomes:
            self._observer.acknowledged(outcome)
            partition = self._of(outcome.owner)
            if partition is None:
                continue
            was_held_back = partition.is_held_back(now)
            flow = partition.acknowledge(outcome)
            self._tell_flow(partition, flow)
            if was_held_back and not partition.is_held_back(now):
                self._advance(partition)
            self._tell_drained(partition)

    # --- lanes ----------------------------------------------------------------------------------------------------------------------

    def _of(self, owner: Owner) -> Partition | None:
        partition = self.partitions.get(owner.partition)
        return partition if partition is not None and partition.owner == owner else None

    def _advance(self, partition: Partition) -> None:
        """Run the partition's lane until it waits for something."""
        end = self._clock.now().mono + TURN_S
        while (instant := self._clock.now()).mono < end:
            if self._is_blocked(partition):
                return
            step = partition.lane.next(instant)
            match step:
                case Settle(outcome):
                    self._settle(partition, outcome, instant.mono)
                case Start():
                    self._start(partition, step)
                    return
                case Wait(until, _):
                    self._wait(partition, until)
                    return
                case _:
                    return
        self._loop.call_soon(self._advance, partition)

    def _is_blocked(self, partition: Partition) -> bool:
        """Whether a call may not start now, although the lane might want one."""
        if partition.lane.is_calling or partition.closed:
            return False
        if partition.is_held_back(self._clock.now().mono):
            # An acknowledgement calls `_advance`.
            return True
        if any(owner.partition == partition.owner.partition for owner in self._cut):
            # An earlier assignment's call has been cancelled and not ended yet: its end calls `_advance`.
            return True
        if len(self._calls) < self._slots:
            return False
        if partition not in self._ready:
            self._ready.append(partition)
        return True

    def _settle(self, partition: Partition, outcome: Outcome, now: float) -> None:
        planned = partition.settle(outcome, now)
        misplaced = outcome.record is not None and not self._decoder.on_right_partition(outcome.record)
        self._observer.settled(planned, misplaced=misplaced)
        self._publisher.put(planned)

    def _wait(self, partition: Partition, until: float) -> None:
        if partition.owner not in self._timers:
            delay_s = max(0.0, until - self._clock.now().mono)
            self._timers[partition.owner] = self._loop.call_later(delay_s, self._wake, partition)

    def _wake(self, partition: Partition) -> None:
        self._timers.pop(partition.owner, None)
        self._advance(partition)

    def _start(self, partition: Partition, start: Start) -> None:
        self._observer.started(start)
        task = self._loop.create_task(self._call(partition, start))
        task.add_done_callback(_raise)
        self._calls[partition.owner] = task

    async def _call(self, partition: Partition, start: Start) -> None:
        began = self._clock.now().mono
        result: CallResult
        try:
            result = await self._http.call(start.call)
        except asyncio.CancelledError:
            return  # The assignment is over, and `abandon` sees to what is left.
        except Exception as error:  # noqa: BLE001 - an adapter's bug must cost one attempt, not the lane
            self._observer.bug(error, "http")
            result = Ambiguous("internal", type(error).__name__)
        if self._of(partition.owner) is partition:
            del self._calls[partition.owner]
            instant = self._clock.now()
            verdict = partition.lane.answered(result, instant, self._chance())
            self._observer.answered(start, result, verdict, instant.mono - began)
            self._advance(partition)
            self._tell_drained(partition)
            self._fill_slots()

    def _call_cut(self, owner: Owner, _: asyncio.Task[None]) -> None:
        """The call of an assignment that is over has ended: a later assignment of its partition may start now."""
        del self._calls[owner]
        self._cut.remove(owner)
        self._poller.put(Cut(owner))
        successor = self.partitions.get(owner.partition)
        if successor is not None:
            self._advance(successor)
        self._fill_slots()

    def _fill_slots(self) -> None:
        """A call has ended: its slot goes to the lane that waited longest."""
        while self._ready and len(self._calls) < self._slots:
            self._advance(self._ready.popleft())

    def _tell_flow(self, partition: Partition, flow: Flow | None) -> None:
        if flow is Flow.PAUSE:
            self._poller.put(Pause(partition.owner))
        elif flow is Flow.RESUME:
            self._poller.put(Resume(partition.owner))

    def _tell_drained(self, partition: Partition) -> None:
        if partition.is_drained:
            self._poller.put(Drained(partition.owner))


def _raise(task: asyncio.Task[None]) -> None:
    """Hand a bug in a call's own steps to the event loop's handler, which ends the worker: a lane that stands silently helps nobody."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
