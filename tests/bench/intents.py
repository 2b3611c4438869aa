"""What the intent of a call that must not be made twice costs: `python -m tests.bench.intents [ASKS]` (300).

A program asks, and its callee answers at once: from the call of `Dispatcher.ask` to its reply, through Kafka and a worker process. Requests
that may be repeated and such that must not be take turns, `alone` one after another, `twenty` with as many keys at once: their intents
share transactions. `added` is the difference of the medians, and of the 99th percentiles.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import uvloop

from dispatcher import Call, Dispatcher
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.client.call import Repeat
from dispatcher.settings import Settings
from tests.e2e.stage import Worker

WITHIN_S = 60.0
KINDS: tuple[Repeat, Repeat] = ("allowed", "never")
WARMING = 20


async def ask(client: Dispatcher, key: str, repeat: Repeat) -> float:
    """One request; how long until its reply is here, in seconds."""
    began = time.monotonic()
    reply = await client.ask(Call.http("callee", "POST", "/", content=b"x"), key=key, repeat=repeat, timeout=WITHIN_S)
    took_s = time.monotonic() - began
    assert "ok" == reply.status
    return took_s


async def measured(client: Dispatcher, count: int, at_once: int) -> dict[Repeat, list[float]]:
    """So many asks of each kind, of which some are under way at once, each with a key of its own."""
    took: dict[Repeat, list[float]] = {kind: [] for kind in KINDS}
    while len(took["never"]) < count:
        for kind in KINDS:
            took[kind] += await asyncio.gather(*(ask(client, f"key-{n}", kind) for n in range(at_once)))
    return took


def tell(name: str, took: dict[Repeat, list[float]]) -> None:
    """Print one line of figures, in milliseconds."""
    ms = {kind: sorted(1000 * one for one in of) for kind, of in took.items()}
    middle = {kind: statistics.median(of) for kind, of in ms.items()}
    late = {kind: of[int(len(of) * 0.99)] for kind, of in ms.items()}
    figures: dict[str, float | str] = {"name": name, "asks": len(ms["never"])}
    for what, by_kind in (("p50_ms", middle), ("p99_ms", late)):
        figures |= {f"{kind} {what}": round(by_kind[kind], 2) for kind in KINDS}
        figures[f"added {what}"] = round(by_kind["never"] - by_kind["allowed"], 2)
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


async def through_kafka(count: int, bootstrap: str, url: str, folder: Path) -> None:
    """A worker with a lane per key."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    config = folder / "worker.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[topics]\nprefix = "{prefix}"\npartitions = 4\n'
        f'[worker]\ngroup = "{prefix}"\nordering = "key"\nhttp_port = 0\n[upstreams.callee]\nbase_url = "{url}"\nallow_private = true\n'
    )
    topics = {"prefix": prefix, "partitions": 4}
    upstreams = {"callee": {"base_url": url, "allow_private": True}}
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": bootstrap}, "topics": topics, "upstreams": upstreams})
    init_topics(settings.model_copy(update={"worker": settings.worker.model_copy(update={"group": prefix})}))
    worker = Worker("worker", ["-m", "dispatcher", "--config", str(config), "worker"], folder).ready()
    try:
        async with Dispatcher(settings) as client:
            await measured(client, WARMING, 1)
            tell("alone", await measured(client, count, 1))
            tell("twenty", await measured(client, count, 20))
    finally:
        worker.close()


def main() -> None:
    """Measure both."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        broker = ladder(Path(name))
        with subprocess.Popen([sys.executable, "-m", "tests.bench.callee"], stdout=subprocess.PIPE, text=True) as callee:
            try:
                assert callee.stdout is not None
                url = callee.stdout.readline().strip()
                uvloop.run(through_kafka(count, broker.up(), url, Path(name)))
            finally:
                callee.terminate()
                getattr(broker, "down", lambda: None)()


if __name__ == "__main__":
    main()
