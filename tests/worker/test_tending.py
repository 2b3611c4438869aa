"""The engine looks for room in a partition again and again, for as long as it needs some."""

from __future__ import annotations

from dispatcher.core.instant import Instant
from dispatcher.core.lanes.room import Room
from dispatcher.worker.clock import SystemClock
from tests.worker.engine_stage import Stage


class Standing(SystemClock):
    """Shows the same time for ever."""

    def __init__(self) -> None:
        self._at = super().now()

    def now(self) -> Instant:
        """As ever."""
        return self._at


async def test_each_time_that_a_map_is_full_is_told_and_so_is_its_end() -> None:
    """Four ranges at most, twice: each time the call at the mark ends, and with it all of the map at once."""
    stage = Stage(room=Room(records=1000, size_bytes=1 << 20, unpublished_s=1000, ranges=4))
    owner = stage.assign()
    await stage.play()
    for first in (0, 10):
        stage.deliver(owner, *[(first + n, b"k%d" % n) for n in range(9)])
        await stage.play()
        stage.answer_all(range(first + 1, first + 9, 2))
        await stage.play()
        stage.deliver(owner, (first + 9, b"above"))
        await stage.until(lambda: stage.ear.full[-1:] == [(owner, True)])
        stage.answer_all()
        await stage.play()
        stage.answer_all()
        await stage.until(lambda: stage.ear.full[-1] == (owner, False))
    assert [True, False] * 2 == [is_full for _, is_full in stage.ear.full]


async def test_room_is_looked_for_again_whatever_the_clock_says() -> None:
    """Timers of a busy uvloop come up to a millisecond early. Here no time passes at all: what began to wait is parked all the same."""
    stage = Stage(room=Room(records=10, size_bytes=1 << 20, unpublished_s=1000), clock=Standing())
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, *[(n, b"a") for n in range(6)])
    await stage.play()
    stage.callee.answer(0, 429, retry_after_s=100)
    await stage.until(lambda: stage.parked() == [*range(6)])
