"""A program that asks, for tests with many of them: `python -m tests.e2e.asker SETTINGS NAME ASKS [cold]` prints one JSON line per reply.

The ids are `NAME-<number>`. Cold: a new client for each ask. Otherwise all are open at once, in one client.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dispatcher import Call, Dispatcher, Settings

KEYS = 7
TIMEOUT_S = 120


async def main(settings: Settings, name: str, asks: int, *, cold: bool) -> None:
    """Ask so often, and print who got what."""
    if cold:
        for number in range(asks):
            async with Dispatcher(settings) as client:
                await ask(client, name, number)
        return
    async with Dispatcher(settings) as client:
        await asyncio.gather(*(ask(client, name, number) for number in range(asks)))


async def ask(client: Dispatcher, name: str, number: int) -> None:
    """Ask for an echo of who asks."""
    mine = {"asker": name, "number": number}
    call, key = Call.http("sample", "POST", "/echo", json=mine), f"doc:{number % KEYS}"
    reply = await client.ask(call, key=key, request_id=f"{name}-{number}", timeout=TIMEOUT_S, metadata=mine)
    found: dict[str, Any] = {"asked": mine, "got": reply.json(), "metadata": reply.metadata, "ok": reply.ok}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(
        main(Settings.model_validate_json(Path(sys.argv[1]).read_text()), sys.argv[2], int(sys.argv[3]), cold=sys.argv[4:] == ["cold"])
    )
