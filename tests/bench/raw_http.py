"""The raw limit of the HTTP client: aiohttp on uvloop, 12 lanes, one call after another in each. Prints one JSON object."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiohttp
import orjson
import uvloop

LANES, SECONDS = 12, 4.0
BODY = orjson.dumps({"prompt": "y" * 120, "n": 1})


async def main(url: str) -> None:
    """Call for some seconds."""
    done = 0

    async def lane(session: aiohttp.ClientSession, until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            async with session.post(f"{url}/echo", data=BODY, headers={"content-type": "application/json"}) as response:
                await response.read()
            done += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=LANES)) as session:
        await asyncio.gather(*(lane(session, time.perf_counter() + 1) for _ in range(LANES)))
        done = 0
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(lane(session, began + SECONDS) for _ in range(LANES)))
        took, cpu = time.perf_counter() - began, time.process_time() - used
    sys.stdout.write(json.dumps({"per_s": round(done / took), "cpu_s_per_1000": round(cpu / done * 1000, 4)}))


uvloop.run(main(sys.argv[1]))
