"""The clocks of one call, on an event loop whose time the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dispatcher.adapters.http.call_clock import CallClock
from dispatcher.adapters.http.target import Target, make_target
from dispatcher.core.messages.call import Ambiguous, NotSent
from dispatcher.settings import Settings

TOTAL_S, FIRST_BYTE_S, IDLE_S = 100_000.0, 10_000.0, 1_000.0


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    async def pass_s(self, seconds: float) -> None:
        """Let so much time pass, and what was due in it happen."""
        self.ahead_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def target(**clocks: float) -> Target:
    """Make a target with these clocks."""
    upstream = {"base_url": "http://up.test", "call_timeout_s": TOTAL_S} | clocks
    return make_target("up", Settings.model_validate({"upstreams": {"up": upstream}}), {})


BOTH = {"first_byte_timeout_s": FIRST_BYTE_S, "idle_timeout_s": IDLE_S}
SEND, HEAR = CallClock.sending, CallClock.receiving
Steps = list[float | Callable[[CallClock], None]]


def parts(count: int) -> Steps:
    """So many parts of a body, each just in time."""
    steps: Steps = [HEAR, IDLE_S * 0.9]
    return steps * count


# What happens, in order: times that pass, and what the transport tells; and how that ends.
ROWS: list[tuple[str, dict[str, float], Steps, str]] = [
    ("nothing tells of the connection", BOTH, [TOTAL_S + 1], "connect_timeout: no connection to upstream up"),
    ("an address after another", BOTH, [TOTAL_S * 0.6, TOTAL_S * 0.6], "connect_timeout: no connection to upstream up"),
    ("no head", BOTH, [SEND, FIRST_BYTE_S + 1], "first_byte_timeout: upstream up did not begin to answer within 10000 s"),
    (
        "a connection late, and no head",
        BOTH,
        [TOTAL_S - FIRST_BYTE_S - 100, SEND, FIRST_BYTE_S + 1],
        "first_byte_timeout: upstream up did not begin to answer within 10000 s",
    ),
    (
        "a connection too late for the head",
        BOTH,
        [TOTAL_S - 100, SEND, 101],
        "timeout: upstream up did not answer in full within 100000 s",
    ),
    ("no body", BOTH, [SEND, HEAR, IDLE_S + 1], "idle_timeout: upstream up stopped in the middle of its answer for 1000 s"),
    (
        "parts of a body, and then none",
        BOTH,
        [SEND, FIRST_BYTE_S * 0.9, *parts(20), HEAR, IDLE_S + 1],
        "idle_timeout: upstream up stopped in the middle of its answer for 1000 s",
    ),
    (
        "parts of a body for ever",
        BOTH,
        [SEND, *parts(112)],
        "timeout: upstream up did not answer in full within 100000 s",
    ),
    (
        "only the whole counts",
        {},
        [SEND, TOTAL_S * 0.9, HEAR, TOTAL_S * 0.2],
        "timeout: upstream up did not answer in full within 100000 s",
    ),
    ("the head may take its time", {"idle_timeout_s": IDLE_S}, [SEND, TOTAL_S * 0.9, HEAR, IDLE_S + 1], "idle_timeout: "),
    ("the body may take its time", {"first_byte_timeout_s": FIRST_BYTE_S}, [SEND, HEAR, FIRST_BYTE_S * 8, TOTAL_S * 0.3], "timeout: "),
    ("all of it in time", BOTH, [TOTAL_S * 0.5, SEND, FIRST_BYTE_S * 0.9, *parts(20)], ""),
    ("all of it in time, with the whole alone", {}, [TOTAL_S * 0.4, SEND, TOTAL_S * 0.4, HEAR, TOTAL_S * 0.1], ""),
]


@pytest.mark.parametrize(("clocks", "steps", "said"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_part_of_a_call_that_takes_too_long_is_named(clocks: dict[str, float], steps: Steps, said: str) -> None:
    """Each part has its own time and kind, none goes beyond the whole call, and one that ends in time takes nothing from the next."""

    async def call() -> NotSent | Ambiguous | None:
        clock = CallClock(target(**clocks), TOTAL_S)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        try:
            async with clock:
                for step in steps:
                    if isinstance(step, float | int):
                        await loop.pass_s(step)
                    else:
                        step(clock)
        except TimeoutError:
            assert clock.has_run_out
            return clock.ran_out()
        assert not clock.has_run_out
        return None

    with asyncio.Runner(loop_factory=Loop) as runner:
        ended = runner.run(call())
    found = "" if ended is None else f"{ended.kind}: {ended.message}"
    assert found.startswith(said) if said else not found


def test_it_tells_when_the_request_goes_out() -> None:
    """Not while it connects; once for each connection that it is written to."""

    async def call() -> list[str]:
        told: list[str] = []
        clock = CallClock(target(), TOTAL_S, lambda: told.append("sent"))
        async with clock:
            assert [] == told
            clock.sending()
            clock.receiving()
        return told

    assert ["sent"] == asyncio.run(call())


def test_a_timeout_of_something_else_is_not_ours() -> None:
    """The operating system's own (ETIMEDOUT) is a TimeoutError too: the clock says that no time of its own is over."""

    async def call() -> bool:
        clock = CallClock(target(), TOTAL_S)
        with pytest.raises(TimeoutError):
            async with clock:
                raise TimeoutError
        return clock.has_run_out

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert not runner.run(call())
