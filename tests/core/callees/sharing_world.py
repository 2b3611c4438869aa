"""Workers that share limits over one log, in virtual time: clocks of their own, late records, freezes, deaths; and who uses too much.

No lanes, no Kafka: what `Shares` promises depends on the order of the log alone, and here everything else is as bad as it may be.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dispatcher.core.callees.finding import Finding, Known, Party
from dispatcher.core.callees.gate import Crowd
from dispatcher.core.callees.lending import TURN_S, TURN_WINDOWS, Lending
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.reservation import SILENT, Reservation
from dispatcher.core.callees.stakes import Stakes
from dispatcher.core.internal.stakes_record import message as message_of
from dispatcher.core.internal.stakes_record import read
from dispatcher.core.messages.record import Record
from dispatcher.settings import LimitSettings

TICK_S, TIMEOUT_S = 0.1, 6.0
OK = Finding(Known.ANSWERED, Party.NOBODY)
# Clocks run by so much too fast or too slow: they differ by 1 % at most.
SKEW = 0.005


@dataclass(frozen=True, slots=True)
class Habits:
    """How a world is. `load`: how many calls each worker wants to have waiting; `swings`: whether that changes."""

    limit: LimitSettings
    workers: int = 3
    load: int = 30
    swings: bool = False
    late: float = 0.02  # of the records, some take seconds
    faults: int = 4
    span_s: float = 25.0
    call_s: float = 0.1
    far: float = 0.05  # of the calls, some take seconds to connect
    is_calm_at_last: bool = True
    tokens: tuple[int, ...] = (0,)


@dataclass(eq=False, slots=True)
class Worker:
    """One process. Its clock reads `offset + rate * time`."""

    name: str
    rate: float
    offset: float
    lending: Lending
    limit: Limit
    waiting: deque[int] = field(default_factory=deque)
    position: int = 0
    is_sending: bool = False
    is_frozen: bool = False
    is_dead: bool = False
    is_current: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)


class World:
    """`begun`: real times at which calls went out, with their worker and tokens; `findings`: what was too much."""

    def __init__(self, seed: int, habits: Habits) -> None:
        self.habits = habits
        self.chance = Random(seed)
        self.now = 0.0
        self.late = habits.late
        self.log: list[Record] = []
        self.workers: list[Worker] = []
        self.begun: list[tuple[float, str, int]] = []
        self.findings: list[str] = []
        self.served: Counter[str] = Counter()  # of each worker, in the calm at the end, which is so long:
        self.measured_s = 0.0
        self._open: dict[object, tuple[str, float]] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    # --- time -----------------------------------------------------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let it happen."""
        self._number += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._number, action))

    def _in(self, worker: Worker, delay_s: float, action: Callable[[], None]) -> None:
        """Let it happen in a worker, in so much time of its clock; later if it stands still then, never if it is dead."""

        def act() -> None:
            if worker.is_frozen:
                worker.held.append(act)
            elif not worker.is_dead:
                action()

        self.after(delay_s / worker.rate, act)

    def clock(self, worker: Worker) -> float:
        """What its clock reads."""
        return worker.offset + worker.rate * self.now

    def run(self) -> World:
        """Run it: faults, then a calm time, of which the second half tells whether everybody is served."""
        for _ in range(self.habits.workers):
            self.after(self.chance.uniform(0, 3), self.join)
        for _ in range(self.habits.faults):
            self.after(self.chance.uniform(2, self.habits.span_s), self._strike)
        self._until(self.habits.span_s + 8)
        if not self.habits.is_calm_at_last:
            return self
        for worker in [worker for worker in self.workers if worker.is_frozen]:
            self._thaw(worker)
        self.late = 0.0
        calm_s = 2 * (TIMEOUT_S + 7 + 4 * (self.habits.limit.window_s or 0.0))
        self._until(self.now + calm_s)
        self.served.clear()
        window_s = self.habits.limit.window_s or 0.0
        self.measured_s = 10 + len(self.alive) * (TURN_S + 3 + (TURN_WINDOWS + 2) * window_s)
        self._until(self.now + self.measured_s)
        return self

    def _until(self, end: float) -> None:
        while self._heap and self._heap[0][0] <= end and not self.findings:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end

    # --- workers --------------------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Worker]:
        """Those that are there."""
        return [worker for worker in self.workers if not worker.is_dead]

    def join(self) -> None:
        """One more."""
        limit = Limit(self.habits.limit)
        name = f"w{len(self.workers)}"
        lending = Lending(name, {"l": limit}, {"l": TIMEOUT_S})
        worker = Worker(name, 1 + self.chance.uniform(-SKEW, SKEW), self.chance.uniform(0, 1e4), lending, limit)
        self.workers.append(worker)
        self._in(worker, 0, lambda: self._read(worker))
        self._in(worker, 0.01, lambda: self._tick(worker))

    def _delay(self) -> float:
        return self.chance.uniform(0.5, 9) if self.chance.random() < self.late else self.chance.uniform(0, 0.03)

    def _tick(self, worker: Worker) -> None:
        self._in(worker, TICK_S, lambda: self._tick(worker))
        if self.habits.swings and self.chance.random() < 0.02:
            worker.waiting = deque(self._tokens() for _ in range(self.chance.choice((0, 0, 1, self.habits.load))))
        while not self.habits.swings and len(worker.waiting) < self.habits.load:
            worker.waiting.append(self._tokens())
        self._look(worker)

    def _tokens(self) -> int:
        return self.chance.choice(self.habits.tokens)

    def _look(self, worker: Worker) -> None:
        now = self.clock(worker)
        self._begin_all(worker)
        crowd = Crowd(len(worker.waiting), sum(worker.waiting), worker.waiting[0]) if worker.waiting else None
        if not worker.is_current or worker.is_sending:
            worker.lending.look({worker.limit: crowd} if crowd else {}, now) if worker.is_current else None
            return
        _, told = worker.lending.look({worker.limit: crowd} if crowd else {}, now)
        if told is not None:
            self._send(worker, told)
        for who in worker.lending.shares.over(now):
            self.log.append(Record("workers", 0, len(self.log), f"limits/{who}".encode(), None))

    def _send(self, worker: Worker, told: Stakes) -> None:
        worker.is_sending = True
        message = message_of(told, "workers")

        def arrive() -> None:
            self.log.append(Record("workers", 0, len(self.log), message.key, message.value))
            self._in(worker, self._delay(), sent)

        def sent() -> None:
            worker.is_sending = False

        # It is on its way, whatever becomes of who has sent it.
        self.after(self._delay(), arrive)

    def _read(self, worker: Worker) -> None:
        """Some of what is there, in order."""
        late_s = self.chance.uniform(0.5, 9) if self.chance.random() < self.late / 20 else 0.0
        self._in(worker, self.chance.uniform(0, 0.1) + late_s, lambda: self._read(worker))
        end = len(self.log) if not worker.is_current else min(len(self.log), worker.position + self.chance.randint(1, 5))
        for record in self.log[worker.position : end]:
            told = read(record)
            assert told is not None
            worker.lending.read(told, self.clock(worker))
        is_new, worker.position, worker.is_current = worker.position < end, end, True
        if is_new:
            self._look(worker)

    # --- calls ----------------------------------------------------------------------------------------------------------------------

    def _begin_all(self, worker: Worker) -> None:
        while worker.waiting and worker.limit.free_at(worker.waiting[0], self.clock(worker)) == self.clock(worker):
            tokens = worker.waiting.popleft()
            reservation = Reservation([worker.limit], tokens)
            # It takes a while to connect.
            connect_s = self.chance.uniform(0, 3) if self.chance.random() < self.habits.far else self.chance.uniform(0, 0.01)
            self._in(worker, connect_s, lambda reservation=reservation, tokens=tokens: self._call(worker, reservation, tokens))  # type: ignore[misc]

    def _call(self, worker: Worker, reservation: Reservation, tokens: int) -> None:
        if not reservation.may_begin(self.clock(worker)):
            reservation.end(None, SILENT, self.clock(worker), 600.0)
            worker.waiting.appendleft(tokens)
            return
        reservation.begin(self.clock(worker))
        self._began(worker, reservation, tokens)
        lasts_s = self.chance.uniform(0, TIMEOUT_S * 0.99) if self.chance.random() < 0.02 else self.habits.call_s

        def ended() -> None:
            self._open.pop(reservation, None)
            reservation.end(OK, SILENT, self.clock(worker), 600.0)
            self._begin_all(worker)

        self._in(worker, lasts_s, ended)

    def _began(self, worker: Worker, call: object, tokens: int) -> None:
        """Judge it."""
        of, now = self.habits.limit, self.now
        self.served[worker.name] += 1
        self._open = {one: (name, at) for one, (name, at) in self._open.items() if at + TIMEOUT_S > now}
        self._open[call] = worker.name, now
        self.begun.append((now, worker.name, tokens))
        if of.concurrency is not None and len(self._open) > of.concurrency:
            self.findings.append(f"{now:.3f}: {len(self._open)} open, by {sorted(name for name, _ in self._open.values())}")
        if of.window_s is None:
            return
        # As a clock reads it that is as slow as the others are at the most; the margin is for the way.
        window_s = of.window_s * (1 - 2 * SKEW)
        recent = [one for one in self.begun if one[0] > now - window_s + 1e-9]
        self.begun = [one for one in self.begun if one[0] > now - 2 * of.window_s]
        lasted_s = now - recent[0][0]
        for most, used in ((of.requests, len(recent)), (of.tokens, sum(tokens for _, _, tokens in recent))):
            allowed = None if most is None else most * (1 + lasted_s / window_s) if of.counting == "bucket" else most
            if allowed is not None and used > allowed + 1e-6:
                self.findings.append(f"{now:.3f}: {used} of {allowed:g}, by {Counter(name for _, name, _ in recent)}")

    # --- faults ---------------------------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        alive = self.alive
        if not alive:
            return
        worker = self.chance.choice(alive)
        match self.chance.choice(("kill", "freeze", "freeze", "leave", "join")):
            case "kill":
                worker.is_dead = True
                self.after(self.chance.uniform(0, 8), self.join)
            case "freeze":
                worker.is_frozen = True
                self.after(self.chance.choice((0.5, 3, 5.2, 7, 20)), lambda: self._thaw(worker))
            case "leave" if not worker.is_frozen:
                self._send(worker, worker.lending.leave(self.clock(worker)))
                worker.is_dead = True
                self.after(self.chance.uniform(0, 8), self.join)
            case _:
                self.join()

    def _thaw(self, worker: Worker) -> None:
        worker.is_frozen = False
        held, worker.held = worker.held, []
        self.chance.shuffle(held)
        for act in held:
            self.after(self.chance.uniform(0, 0.01), act)


def world(seed: int, **fields: Any) -> World:
    """Run the world of a seed, with habits drawn from it where they are not given."""
    chance = Random(f"sharing {seed}")
    requests = chance.choice((None, 1, 4, 50))
    concurrency = chance.choice((1, 2, 10)) if requests is None else chance.choice((None, None, 3, 10))
    limit: dict[str, Any] = {"upstream": "u", "concurrency": concurrency, "counting": chance.choice(("window", "window", "bucket"))}
    tokens: tuple[int, ...] = (0,)
    if requests is not None:
        limit |= {"requests": requests, "window_s": chance.choice((0.5, 1.0, 4.0)), "margin_s": chance.choice((0.0, 0.1))}
        if chance.random() < 0.3:
            limit["tokens"] = 100
            tokens = chance.choice(((10,), (1, 70), (5, 20, 90)))
    drawn: dict[str, Any] = {
        "workers": chance.choice((1, 2, 3, 3, 5)),
        "load": chance.choice((1, 30)),
        "swings": chance.random() < 0.4,
        "late": chance.choice((0.0, 0.02, 0.1)),
        "faults": chance.choice((0, 2, 6)),
        "tokens": tokens,
    }
    of = fields.pop("limit", limit)
    return World(seed, Habits(LimitSettings.model_validate(of), **drawn | fields)).run()
