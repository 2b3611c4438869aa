"""Many requests at once, as another program writes them, and a callee that counts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from dispatcher.adapters.kafka import clients
from dispatcher.settings import Settings
from tests import loopback

ROOT = Path(__file__).parents[2]


class Counting:
    """The callee of `tests/bench/callee.py` as others see it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def figures(self) -> dict[str, Any]:
        """What it has seen so far."""
        found: dict[str, Any] = loopback.get(f"{self.url}/figures", timeout_s=60).json()
        return found


@contextmanager
def counting() -> Iterator[Counting]:
    """Run a callee for as long as the block takes."""
    with subprocess.Popen([sys.executable, "-m", "tests.bench.callee"], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield Counting(process.stdout.readline().strip())
        finally:
            process.kill()


def write(settings: Settings, requests: Iterable[tuple[str, str]], *, upstream: str = "sample", pad: int = 0) -> int:
    """Write a request of each key and path, in batches as large as they become, without ids of their own; returns how many."""
    producer = clients.producer(settings, linger_ms=100)
    count = 0
    for key, path in requests:
        value = _value(upstream, path, pad)
        count += 1
        while True:
            try:
                producer.produce(settings.topics.requests, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    assert 0 == producer.flush(60)
    return count


@cache
def _value(upstream: str, path: str, pad: int) -> bytes:
    return orjson.dumps({"upstream": upstream, "path": path} | ({"body": {"pad": "x" * pad}} if pad else {}))
