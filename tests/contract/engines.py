"""What the tests of the HTTP engines share: one call with a canary credential, and engines that may be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dispatcher.adapters.http import HttpEngine
from dispatcher.core.messages.call import Answered, Call
from dispatcher.settings import Settings

CANARY = "Bearer sk-canary-5b1f"
LONG_S = 30.0  # a call that must not time out, on a machine however loaded
SHORT_S = 0.3  # one that must

CALL = Call("up", "POST", "/v1/x", (("content-type", "application/json"),), b'{"n":1}', "team-a", LONG_S)

Opener = Callable[..., HttpEngine]


def make_settings(engine: str, base_url: str, *, inflight_max: int = 50, **upstream: Any) -> Settings:
    """Make settings with one upstream `up`, private addresses and the canary credential allowed unless told otherwise."""
    up = {"base_url": base_url, "credentials": ["team-a"], "methods": ["GET", "POST", "HEAD"], "allow_private": True} | upstream
    return Settings.model_validate(
        {
            "worker": {"http_engine": engine, "inflight_max": inflight_max},
            "credentials": {"team-a": {"value": CANARY}},
            "upstreams": {"up": up},
        }
    )


async def answered_next(engine: HttpEngine, call: Call = CALL) -> None:
    """Claim of every hostile case: the next call on the same engine works."""
    assert isinstance(await engine.call(replace(call, timeout_s=LONG_S)), Answered)
