from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.contract.hostile import HostileCallee


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every contract on the loop of the product and on Python's own: they report broken connections in different ways."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def callee() -> AsyncIterator[HostileCallee]:
    """Listen on a free loopback port; it answers every request with 200 `{}` until told otherwise."""
    callee = HostileCallee()
    await callee.listen()
    yield callee
    await callee.stop()
