"""The workers of one group in a chaos run: real processes in slots, of which every other one reaches Kafka through the proxies."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from threading import Event

from tests.chaos.plan import Fault
from tests.chaos.scene import Fate, Finding
from tests.e2e.history import at_of
from tests.e2e.stage import READY_S, Stage, Worker

# Longest time from SIGTERM to the end: its grace (10 s), what publishing may take (20 s), leaving (20 s), and a loaded machine.
END_S = 120
LOOK_S = 0.2
# Whoever runs workers starts one again that has ended by itself; so soon.
AGAIN_S = 1.0
SIZE = 3
CANNOT_GO_ON = 3  # the exit code of a worker that says so


Hire = Callable[[Stage, str, str], Worker]  # on a stage, for a slot, with an address of Kafka


def ours(stage: Stage, slot: str, broker: str) -> Worker:
    """Start a worker of the product."""
    return stage.worker(slot=slot, broker=broker)


class Crew:
    """Owned by the thread that calls `play`. `fates` and `workers` of all processes there were, by name; `findings`: what must not be."""

    def __init__(self, stage: Stage, direct: str, proxied: str, over: Event, hire: Hire = ours) -> None:
        self.stage = stage
        self.fates: dict[str, Fate] = {}
        self.workers: dict[str, Worker] = {}
        self.findings: list[Finding] = []
        self._ways = (direct, proxied)
        self._over = over
        self._hire = hire
        self._slots: dict[int, Worker] = {}

    def up(self) -> None:
        """Start the workers, and wait until they are ready."""
        for slot in range(SIZE):
            self._start(slot)
        for worker in self._slots.values():
            worker.ready()

    def play(self, faults: list[Fault], began: float) -> None:
        """Let the faults happen, each at its time after `began` (monotonic); then see that all workers are there."""
        for fault in faults:
            if self._pass(began + fault.at_s - time.monotonic()):
                break
            self._strike(fault)
        self.mind()

    def mind(self) -> None:
        """Start again what has ended by itself, and see what it had to say."""
        for slot, worker in list(self._slots.items()):
            if (code := worker.popen.poll()) is None:
                continue
            self.fates[worker.name].ended_at = time.time()
            if code != CANNOT_GO_ON:
                self._find(worker, f"ended by itself with exit code {code}")
            self._over.wait(AGAIN_S)
            self._start(slot)

    def dismiss(self) -> None:
        """End the workers in order, as the end of the run."""
        for slot in list(self._slots):
            self._end(slot)

    def close(self) -> None:
        """Let nobody run."""
        for worker in self.workers.values():
            worker.close()

    def _strike(self, fault: Fault) -> None:
        slots = sorted(self._slots)
        first = slots[min(len(slots) - 1, int(fault.choice * len(slots)))]
        match fault.kind:
            case "kill" | "kill two":
                doomed = [first] if fault.kind == "kill" else [slot for slot in slots if slot != first][:2]
                self._kill(doomed)
                self._pass(fault.lasts_s)
                for slot in doomed:
                    self._start(slot)
            case "freeze":
                self._freeze(first, fault.lasts_s)
            case "terminate":
                self._terminate(first)
                self._pass(fault.lasts_s)
                self._start(first)
            case "add":
                self._start(SIZE)
                self._pass(fault.lasts_s)
                self._terminate(SIZE)
            case kind:
                raise AssertionError(kind)

    def _start(self, slot: int) -> None:
        name = f"{self.stage.settings.topics.prefix}-{slot}"
        worker = self._hire(self.stage, name, self._ways[slot % 2])
        self._slots[slot] = self.workers[worker.name] = worker
        self.fates[worker.name] = Fate(worker.name, is_proxied=slot % 2 == 1)

    def _kill(self, slots: list[int]) -> None:
        for slot in slots:
            worker = self._slots.pop(slot)
            self.fates[worker.name].killed_at = time.time()
            worker.signal(signal.SIGKILL)
            worker.wait()

    def _freeze(self, slot: int, seconds: float) -> None:
        worker = self._slots[slot]
        froze = time.time()
        worker.signal(signal.SIGSTOP)
        self._pass(seconds)
        worker.signal(signal.SIGCONT)
        self.fates[worker.name].frozen.append((froze, time.time()))

    def _terminate(self, slot: int) -> None:
        self.fates[self._slots[slot].name].terminated_at = time.time()
        self._end(slot)

    def _end(self, slot: int) -> None:
        worker = self._slots.pop(slot)
        worker.signal(signal.SIGTERM)
        try:
            code = worker.wait(END_S)
        except subprocess.TimeoutExpired:
            self._find(worker, f"did not end within {END_S} s of SIGTERM")
            self._kill_stuck(worker)
            return
        if code == CANNOT_GO_ON:
            self.fates[worker.name].ended_at = time.time()
        elif code != 0:
            self._find(worker, f"ended with exit code {code} after SIGTERM")

    def _kill_stuck(self, worker: Worker) -> None:
        self.fates[worker.name].killed_at = time.time()
        worker.signal(signal.SIGKILL)
        worker.wait(READY_S)

    def _pass(self, seconds: float) -> bool:
        """Let time pass, and mind the workers meanwhile; tells whether the run is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._over.is_set():
            self.mind()
            self._over.wait(min(LOOK_S, left))
        return self._over.is_set()

    def _find(self, worker: Worker, text: str) -> None:
        self.findings.append(Finding("worker", time.time(), "", f"{worker.name} {text}: {worker.text()[-500:]}"))

    def read_logs(self) -> None:
        """Take in what the workers' logs tell of their fates, and of bugs."""
        for name, worker in self.workers.items():
            self.fates[name].overstayed = [at_of(event) for event in worker.events("drain_expired")]
            for event in worker.events("bug") + worker.events("thread_died"):
                self.findings.append(Finding("bug", at_of(event), "", f"{name}: {event}"))
