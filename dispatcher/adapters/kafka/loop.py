"""Word for an event loop from other threads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


def tell(future: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Fill a future from another thread than its loop's; an exception is raised by it. The loop may be gone."""
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(fill, future, outcome)


def fill(future: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Fill a future of this thread's loop, unless it is done: whoever waited has given up."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        future.exception()  # whoever awaits it still gets it; if nobody does, that is no accident to be told
    else:
        future.set_result(outcome)
