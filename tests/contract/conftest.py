from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from dispatcher.adapters.http import HttpEngine, open_engine
from tests.contract.engines import CANARY, Opener, make_settings
from tests.contract.hostile import HostileCallee, listening


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every contract on the loop of the product and on Python's own: they report broken connections in different ways."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def callee() -> AsyncIterator[HostileCallee]:
    """Listen on a free loopback port; it answers every request with 200 `{}` until told otherwise."""
    async with listening() as callee:
        yield callee


@pytest.fixture(params=["aiohttp", "httpx"])
def engine_name(request: pytest.FixtureRequest) -> str:
    """Name each engine of the product in turn."""
    return str(request.param)


@pytest.fixture
async def opened(engine_name: str) -> AsyncIterator[Opener]:
    """Open engines, and close them and see that they left nothing to complain about."""
    engines: list[HttpEngine] = []

    def open_one(base_url: str, **options: Any) -> HttpEngine:
        engine = open_engine(make_settings(engine_name, base_url, **options), {"team-a": CANARY})
        engines.append(engine)
        return engine

    yield open_one
    for engine in engines:
        await engine.close()
    gc.collect()  # an unclosed connection or session warns here, and warnings are errors


@pytest.fixture
async def engine(opened: Opener, callee: HostileCallee) -> HttpEngine:
    """Open an engine on the callee. Async, since an engine is made on its loop."""
    return opened(callee.url)
