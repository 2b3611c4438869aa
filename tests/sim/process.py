"""A simulated process: an event loop and a few threads (greenlets) in virtual time, which can be frozen, stalled and killed.

Everything that happens *in* the process goes through `Process.after`; what happens elsewhere (a broker, a callee, the network) goes
through the schedule and does not stop with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from queue import Empty, SimpleQueue
from random import Random
from typing import Any, TypeVar, TypeVarTuple, Unpack

from greenlet import GreenletExit, getcurrent, greenlet

from dispatcher.core.instant import Instant
from tests.sim.schedule import Action, Schedule

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
# A wall clock of 2026-11-29T10:00:00Z at the world's beginning.
WALL = 1795946400.0
# How long it takes until a thread runs, or a loop turns, that has a reason to: at most.
LATENCY_S = 0.002


class Killed(GreenletExit):
    """The process is no more; unwinds its threads, and nothing of what they still do counts."""


class Thread:
    """One blocking thread. It runs until it waits, and goes on when what it waits for is there or its time is up."""

    def __init__(self, process: Process, name: str, body: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        self.name = name
        self.stalled_until = 0.0
        self.ready: Callable[[], bool] | None = None
        self._process = process
        self._body = body
        self._ended = ended
        self._turn = 0
        self._greenlet = greenlet(self._run, process.hub)
        process.after(process.latency(), self.resume, 0)

    def wait(self, wait_s: float, ready: Callable[[], bool] | None = None) -> None:
        """From inside: let time pass, at most until `ready`."""
        self._turn += 1
        self.ready = ready
        self._process.after(wait_s, self.resume, self._turn)
        self._process.hub.switch()
        if not self._process.alive:
            raise Killed

    def wake(self) -> None:
        """What it waits for is there."""
        self.ready = None
        self._process.after(self._process.latency(), self.resume, self._turn)

    def resume(self, turn: int) -> None:
        """Run on, unless it has run since."""
        if turn != self._turn or self._greenlet.dead:
            return
        late_s = self.stalled_until - self._process.now
        if late_s > 0:
            self._process.after(late_s, self.resume, turn)
            return
        self._turn += 1
        self.ready = None
        self._process.running = self
        self._greenlet.switch()

    def kill(self) -> None:
        """Unwind."""
        if self._greenlet and not self._greenlet.dead:
            self._process.running = self
            self._greenlet.throw(Killed)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._body()
        except Killed:
            return
        except BaseException as caught:  # noqa: BLE001 - judged by the process's owner, whatever it is
            error = caught
        if self._process.alive:
            self._ended(error)


class Loop(asyncio.AbstractEventLoop):
    """As much of an event loop as real tasks need."""

    def __init__(self, process: Process, failed: Callable[[BaseException], None]) -> None:
        self.stalled_until = 0.0
        self._process = process
        self._failed = failed
        self._ready: deque[asyncio.Handle] = deque()
        self._turning = False
        self._coroutines: list[Any] = []

    def time(self) -> float:
        """Give virtual seconds."""
        return self._process.now

    def get_debug(self) -> bool:
        """Never."""
        return False

    def call_soon(self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None) -> asyncio.Handle:
        """Run in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run in the first turn after `delay` seconds."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._process.after(delay, self._add, handle)
        return handle

    def create_task(self, coro: Coroutine[Any, Any, _T], **_: Any) -> asyncio.Task[_T]:  # type: ignore[override] # no generators
        """Make a real task."""
        self._coroutines = [one for one in self._coroutines if one.cr_frame is not None]
        self._coroutines.append(coro)
        return asyncio.Task(coro, loop=self)

    def close(self) -> None:
        """Let go of the tasks that will never run on."""
        for coroutine in self._coroutines:
            coroutine.close()

    def create_future(self) -> asyncio.Future[Any]:
        """Make a real future."""
        return asyncio.Future(loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback raised, or a task's exception was never seen."""
        error = context.get("exception")
        if self._process.alive and error is not None:
            self._failed(error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled handles stay on the heap and do nothing."""

    def _add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        if not self._turning:
            self._turning = True
            self._process.after(self._process.latency(), self._turn)

    def _turn(self) -> None:
        late_s = self.stalled_until - self._process.now
        if late_s > 0:
            self._process.after(late_s, self._turn)
            return
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
        self._turning = bool(self._ready)
        if self._turning:
            self._process.after(self._process.latency(), self._turn)


class Process:
    """Alive, frozen or dead. `hub` is the greenlet that runs the schedule."""

    def __init__(self, schedule: Schedule, chance: Random, name: str, failed: Callable[[BaseException], None]) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.hub = getcurrent()
        self.schedule = schedule
        self.chance = chance
        self.loop = Loop(self, failed)  # type: ignore[abstract] # what a task needs of a loop, and no more
        self.threads: list[Thread] = []
        self.running: Thread | None = None
        self.troubled_until = 0.0  # when it last was frozen, or a part of it stalled
        self._held: list[tuple[Action, tuple[Any, ...]]] = []
        self._started = chance.uniform(0, 10_000)  # no two processes have the same monotonic clock

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.schedule.now

    @property
    def thread(self) -> Thread:
        """The thread that runs now."""
        assert self.running is not None
        return self.running

    def latency(self) -> float:
        """Give some time until something runs that may run."""
        return self.chance.random() * LATENCY_S

    def after(self, delay_s: float, action: Action, *args: Any) -> None:
        """Let `action` happen in this process in `delay_s`: later if it is frozen then, never if it is dead."""
        self.schedule.after(delay_s, self._do, action, args)

    def start(self, name: str, body: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Start a thread."""
        self.threads.append(Thread(self, name, body, ended))

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run `function` on the event loop, from any thread."""
        if self.alive:
            self.loop.call_soon(function, *args)

    def freeze(self) -> None:
        """Stop it (SIGSTOP)."""
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on (SIGCONT): everything that was due happens now."""
        self.frozen = False
        self.troubled_until = self.now
        held, self._held = self._held, []
        for action, args in held:
            self.after(self.latency(), action, *args)

    def stall(self, name: str, until: float) -> None:
        """Keep one thread, or the loop, from running until then."""
        self.troubled_until = until
        for part in (self.loop,) if name == "loop" else [thread for thread in self.threads if thread.name == name]:
            part.stalled_until = until

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.alive = False
        if getcurrent() is not self.hub:
            # From inside: the other threads are unwound by the hub.
            self.schedule.after(0, self.kill)
            raise Killed
        for thread in self.threads:
            thread.kill()
        self.loop.close()

    # --- the clock of the worker's threads ------------------------------------------------------------------------------------------

    def instant(self) -> Instant:
        """Read both clocks."""
        return Instant(self._started + self.now, WALL + self.now)

    def take(self, queue: SimpleQueue[_T], wait_s: float) -> _T | None:
        """The next item of `queue`, None where none came within `wait_s`."""
        if not self.alive:
            raise Killed
        if queue.empty() and wait_s > 0:
            self.thread.wait(wait_s, lambda: not queue.empty())
        try:
            return queue.get_nowait()
        except Empty:
            return None

    def pause(self, wait_s: float) -> None:
        """Let `wait_s` pass."""
        if not self.alive:
            raise Killed
        self.thread.wait(wait_s)

    def _do(self, action: Action, args: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.frozen:
            self._held.append((action, args))
            return
        action(*args)
        for thread in self.threads:
            if thread.ready is not None and thread.ready():
                thread.wake()


class ProcessClock:
    """The process's clock as `dispatcher.worker.clock.Clock`."""

    def __init__(self, process: Process) -> None:
        self.now = process.instant
        self.take = process.take
        self.pause = process.pause
