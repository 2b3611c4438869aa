"""How soon a callee sees that its call was cancelled, in milliseconds: `python -m tests.bench.cancels [CANCELS]` (200).

    learned    from the moment at which a worker's engine is told of the command to the end of the connection, for both HTTP engines
    written    from handing the command to a producer that is connected to the end of the connection, through Kafka and a worker process
    client     the same from the call of `Dispatcher.cancel`, which looks the request up first

Each call hangs: the callee never answers. Every figure is over all cancels, one after another.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from dispatcher import Call, Dispatcher
from dispatcher.adapters.http import open_engine
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.client import control
from dispatcher.core.internal.control import CANCEL, message, request_target
from dispatcher.settings import Settings
from tests.e2e.stage import Worker
from tests.waiting import eventually_async
from tests.worker.engine_stage import Stage

WITHIN_S = 60.0


class Silent:
    """A callee on a raw socket that answers nobody. `came` and `left` by Idempotency-Key, monotonic seconds; in a thread of its own."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        self.left: dict[str, float] = {}
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        assert self._ready.wait(WITHIN_S)

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        name = head.partition("idempotency-key: ")[2].partition("\r\n")[0]
        self.came[name] = time.monotonic()
        try:
            while await reader.read(65536):
                pass
        except OSError:
            pass
        self.left[name] = time.monotonic()
        writer.close()


@contextmanager
def silent() -> Iterator[Silent]:
    """Have one."""
    callee = Silent()
    try:
        yield callee
    finally:
        callee.stop()


def tell(name: str, took_s: list[float]) -> None:
    """Print one line of figures."""
    ms = sorted(1000 * one for one in took_s)
    figures = {"cancels": len(ms), "median_ms": round(statistics.median(ms), 2), "p99_ms": round(ms[int(len(ms) * 0.99)], 2)}
    sys.stdout.write(json.dumps({"name": name} | figures | {"max_ms": round(ms[-1], 2)}) + "\n")
    sys.stdout.flush()


async def learned(count: int, engine: str) -> None:
    """An engine in this process, over the real transport."""
    with silent() as callee:
        settings = Settings.model_validate(
            {
                "worker": {"http_engine": engine, "on_wrong_partition": "warn"},
                "upstreams": {"openai": {"base_url": f"http://127.0.0.1:{callee.port}", "allow_private": True}},
            }
        )
        stage, http, took = Stage(settings), open_engine(settings, {}), []
        stage.callee.call = http.call  # type: ignore[method-assign]
        owner = stage.assign()
        await stage.play()
        for offset in range(count):
            stage.deliver(owner, (offset, b"a"))
            await eventually_async(lambda offset=offset: len(callee.came) > offset)  # type: ignore[misc]
            began = time.monotonic()
            stage.cancel(offset, "a")
            await eventually_async(lambda offset=offset: len(callee.left) > offset)  # type: ignore[misc]
            took.append(max(callee.left.values()) - began)
            await stage.play()
        await http.close()
    tell(f"learned, {engine}", took)


async def through_kafka(count: int, bootstrap: str, folder: Path) -> None:
    """A worker process and a broker."""
    with silent() as callee:
        upstream = {"base_url": f"http://127.0.0.1:{callee.port}", "allow_private": True}
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        tables: dict[str, Any] = {"kafka": {"bootstrap_servers": bootstrap}, "topics": {"prefix": prefix, "partitions": 1}}
        settings = Settings.model_validate(tables | {"worker": {"group": prefix}, "upstreams": {"silent": upstream}})
        init_topics(settings)
        config = folder / "worker.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[topics]\nprefix = "{prefix}"\npartitions = 1\n'
            f'[worker]\ngroup = "{prefix}"\nhttp_port = 0\n'
            f'[upstreams.silent]\nbase_url = "{upstream["base_url"]}"\nallow_private = true\n'
        )
        worker = Worker("worker", ["-m", "dispatcher", "--config", str(config), "worker"], folder).ready()
        try:
            async with Dispatcher(settings) as client:
                await _written(count, settings, client, callee)
                await _asked(count, client, callee)
        finally:
            worker.close()


async def _written(count: int, settings: Settings, client: Dispatcher, callee: Silent) -> None:
    producer = clients.producer(settings)
    producer.list_topics(timeout=WITHIN_S)  # connected, as a client is that has submitted
    topic_id = await client._connection.topic_id(settings.topics.requests)

    async def write(request: str, place: tuple[str, int, int]) -> None:
        del request
        name = f"{place[0]}/{place[1]}/{place[2]}@{topic_id}"
        written = message(control.command(request_target(name), CANCEL, key=b"a"), settings.topics.control)
        producer.produce(written.topic, written.value, written.key, 0, headers=list(written.headers))
        producer.poll(0)

    tell("written", await _each(count, client, callee, write))


async def _asked(count: int, client: Dispatcher, callee: Silent) -> None:
    async def cancel(request: str, _: tuple[str, int, int]) -> None:
        await client.cancel(request, timeout=WITHIN_S)

    tell("client", await _each(count, client, callee, cancel))


async def _each(
    count: int, client: Dispatcher, callee: Silent, cancel: Callable[[str, tuple[str, int, int]], Awaitable[None]]
) -> list[float]:
    took = []
    for _ in range(count):
        receipt = await client.submit(Call.http("silent", "POST", "/", content=b"x"), key="a")
        name = receipt.request_id
        await eventually_async(lambda name=name: name in callee.came)  # type: ignore[misc]
        began = time.monotonic()
        await cancel(name, (receipt.topic, receipt.partition, receipt.offset))
        await eventually_async(lambda name=name: name in callee.left)  # type: ignore[misc]
        took.append(callee.left[name] - began)
    return took


def main() -> None:
    """Measure all."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for engine in ("aiohttp", "httpx"):
        uvloop.run(learned(count, engine))
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        broker = ladder(Path(name))
        try:
            uvloop.run(through_kafka(count, broker.up(), Path(name)))
        finally:
            getattr(broker, "down", lambda: None)()


if __name__ == "__main__":
    main()
