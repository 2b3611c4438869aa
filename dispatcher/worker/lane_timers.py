"""When lanes go on that wait for a time: one timer for each, at most."""

from __future__ import annotations

import asyncio

from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.partition import Partition
from dispatcher.worker.admission import Driver
from dispatcher.worker.clock import Clock


class LaneTimers:
    """Owned by the engine, on its event loop. Times are monotonic seconds."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Lane, tuple[float, asyncio.TimerHandle]] = {}

    def wait(self, partition: Partition, lane: Lane, until: float) -> None:
        """Let it go on then, or before."""
        known = self._timers.get(lane)
        if known is not None:
            if known[0] <= until:
                return
            # What it waited for before has gone: this comes earlier.
            known[1].cancel()
        delay_s = max(0.0, until - self._clock.now().mono)
        self._timers[lane] = until, self._loop.call_later(delay_s, self._wake, partition, lane)

    def forget(self, lane: Lane) -> None:
        """It waits no more."""
        if (timer := self._timers.pop(lane, None)) is not None:
            timer[1].cancel()

    def _wake(self, partition: Partition, lane: Lane) -> None:
        self._timers.pop(lane, None)
        self._driver.advance(partition, lane)
