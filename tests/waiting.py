"""Waiting for a condition, with a deadline: the only place in the tests that may sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

# Short enough not to be felt, long enough not to keep a two-core machine busy.
_PAUSE_S = 0.05


def eventually(condition: Callable[[], T], within_s: float = 60, what: str = "the condition") -> T:
    """Ask until the answer is truthy, and give it. AssertionError with the last answer once `within_s` seconds have passed."""
    end = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < end, f"{what} did not come true within {within_s:g} s; last seen: {answer!r}"
        time.sleep(_PAUSE_S)
    return answer


def let_pass(seconds: float, why: str, *, since: float | None = None) -> None:
    """Let time pass, where what is tested *is* time and there is nothing to look for: `why` says what has passed then.

    `since`, on the clock of `time.monotonic`, is when it began; now, by default.
    """
    end = (time.monotonic() if since is None else since) + seconds
    eventually(lambda: time.monotonic() > end, seconds + 60, why)


async def eventually_async(condition: Callable[[], T | Awaitable[T]], within_s: float = 60, what: str = "the condition") -> T:
    """Do what `eventually` does without stopping the event loop; the condition may be a coroutine function."""
    end = time.monotonic() + within_s
    while True:
        asked = condition()
        answer = await asked if isinstance(asked, Awaitable) else asked
        if answer:
            return answer
        assert time.monotonic() < end, f"{what} did not come true within {within_s:g} s; last seen: {answer!r}"
        await asyncio.sleep(_PAUSE_S)
