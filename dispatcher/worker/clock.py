"""Time, and waiting for it, as the threads of a worker see them; the simulator has another one."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from dispatcher.core.instant import Instant

_T = TypeVar("_T")
# What one may take of a turn of the event loop: a lane with a flood of refused records, a partition whose backlog has expired as a whole,
# an upstream for which thousands may begin at once. None of them must hold up everybody's answers.
TURN_S = 0.02


class Clock(Protocol):
    """Reads time and waits."""

    def now(self) -> Instant:
        """Both clocks, now."""

    def take(self, queue: SimpleQueue[_T], wait_s: float) -> _T | None:
        """The next item of `queue`, None where none came within `wait_s`."""

    def pause(self, wait_s: float) -> None:
        """Let `wait_s` pass."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Instant:
        """Both clocks, now."""
        return Instant(time.monotonic(), time.time())

    def take(self, queue: SimpleQueue[_T], wait_s: float) -> _T | None:
        """The next item of `queue`, None where none came within `wait_s`."""
        try:
            return queue.get(timeout=wait_s) if wait_s > 0 else queue.get_nowait()
        except Empty:
            return None

    def pause(self, wait_s: float) -> None:
        """Let `wait_s` pass."""
        time.sleep(wait_s)
