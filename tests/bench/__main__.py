"""What the worker costs, as ratios to raw loops measured in the same run: `python -m tests.bench [ROUNDS]`.

Rounds are interleaved; every figure is printed as median [min-max]. The process that is measured has CPU 0 to itself, broker,
upstream and this driver share CPU 1, so use a machine that does nothing else.

    echo        consume -> produce in transactions, batches of 1,000: what Kafka allows
    http        aiohttp alone, 12 lanes, a 0 ms upstream: what the HTTP client allows
    exactly     the worker, exactly_once, 12 partitions, a 0 ms upstream
    no-journal  the same without dedup window: what it costs that a request which is sent again is known
    at-least    the worker, at_least_once
    latency     20 requests a second, each alone: reply in the reader's hands, less the upstream's 20 ms
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Event

import httpx
import orjson
import psutil
from confluent_kafka import Consumer, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.settings import Settings
from tests.waiting import eventually

REQUESTS, KEYS, PARTITIONS = 20_000, 200, 12
LATENCY_REQUESTS, LATENCY_GAP_S, SERVICE_MS = 200, 0.05, 20
WORKER_CPU, OTHERS_CPU = "0", "1"
MODES: dict[str, dict[str, object]] = {
    "exactly": {"publishing": "exactly_once"},
    "no-journal": {"publishing": "exactly_once", "dedup_window_s": 0},
    "at-least": {"publishing": "at_least_once"},
}


def main() -> None:
    """Run everything, print one JSON line per measurement and a table at the end."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    os.sched_setaffinity(0, {int(OTHERS_CPU)})  # children inherit it; the measured one is moved
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        folder = Path(name)
        broker = ladder(folder)
        bootstrap = broker.up()
        upstream = _upstream(os.environ.get("BENCH_UPSTREAM"))
        try:
            rows = [row for _ in range(rounds) for row in _round(bootstrap, upstream.url, folder)]
        finally:
            upstream.close()
            getattr(broker, "down", lambda: None)()
    _table(rows)


class _Served:
    """An upstream that answers `POST /call` at once, or after `ms` with `?ms=`."""

    def __init__(self, url: str, process: subprocess.Popen[str] | None) -> None:
        self.url = url
        self._process = process

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _upstream(given: str | None) -> _Served:
    """Use the one that BENCH_UPSTREAM names (a faster one than ours), or start the sample upstream."""
    if given:
        return _Served(given, None)
    command = [sys.executable, "-m", "dispatcher", "sample-upstream", "--port", "0", "--latency-ms", "0", "--witness-events", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return _Served(process.stdout.readline().strip(), process)


def _round(bootstrap: str, url: str, folder: Path) -> list[dict[str, object]]:
    rows = [_raw("echo", bootstrap, url), _raw("http", bootstrap, url)]
    for mode, of in MODES.items():
        rows += _worker(mode, of, bootstrap, url, folder)
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    return rows


def _raw(name: str, bootstrap: str, url: str) -> dict[str, object]:
    command = ["taskset", "-c", WORKER_CPU, sys.executable, "-m", f"tests.bench.raw_{name}", bootstrap if name == "echo" else url]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row: dict[str, object] = json.loads(out)
    return {"name": name} | row


def _settings(bootstrap: str, url: str, of: dict[str, object]) -> Settings:
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "topics": {"prefix": prefix, "partitions": PARTITIONS},
            "worker": {"group": prefix, "slot": prefix, "http_port": 0} | of,
            "upstreams": {"up": {"base_url": url, "allow_private": True}},
        }
    )


def _worker(name: str, of: dict[str, object], bootstrap: str, url: str, folder: Path) -> list[dict[str, object]]:
    """Throughput and latency of one worker; the CPU and memory are its own."""
    settings = _settings(bootstrap, url, of)
    init_topics(settings)
    config = folder / f"{settings.topics.prefix}.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[topics]\nprefix = "{settings.topics.prefix}"\n'
        f'[worker]\ngroup = "{settings.worker.group}"\nslot = "{settings.worker.slot}"\nhttp_port = 0\n'
        + "".join(f"{field} = {json.dumps(value)}\n" for field, value in of.items())
        + f'[upstreams.up]\nbase_url = "{url}"\nallow_private = true\n[logs]\nlevel = "info"\n'
    )
    log = folder / f"{settings.topics.prefix}.log"
    with log.open("wb") as err:
        process = psutil.Popen(
            ["taskset", "-c", WORKER_CPU, sys.executable, "-m", "dispatcher", "--config", str(config), "worker"], stderr=err
        )
    try:
        _await_ready(log)
        replies = _Reader(settings)
        _throughput(settings, replies, 2_000)  # warm
        before, rate = process.cpu_times(), _throughput(settings, replies, REQUESTS)
        after = process.cpu_times()
        cpu = (after.user + after.system - before.user - before.system) / REQUESTS * 1000
        times = _latencies(settings, replies)
        rss = process.memory_info().rss // 1024 // 1024
    finally:
        process.terminate()
        process.wait(60)
    throughput = {"name": name, "per_s": round(rate), "cpu_s_per_1000": round(cpu, 3), "rss_mb": rss}
    p50, p99 = (round(times[int(len(times) * q)] * 1000, 1) for q in (0.5, 0.99))
    return [throughput, {"name": f"latency {name}", "p50_ms": p50, "p99_ms": p99}]


def _await_ready(log: Path) -> None:
    def ready() -> bool:
        ports = [json.loads(line)["http_port"] for line in log.read_text().splitlines() if '"started"' in line]
        return bool(ports) and httpx.get(f"http://127.0.0.1:{ports[0]}/readyz", trust_env=False).is_success

    eventually(ready, 60, f"the worker is not ready, see {log}")


class _Reader:
    """Counts replies, read_committed, from now on."""

    def __init__(self, settings: Settings) -> None:
        self._consumer: Consumer = clients.consumer(settings)
        topic = settings.topics.replies
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])

    def wait(self, count: int, seen: Callable[[bytes], None] | None = None) -> None:
        """Take `count` replies."""
        left = count
        while left:
            messages = self._consumer.consume(1000 if seen is None else 1, 1)
            for message in messages:
                if message.error() is None:
                    left -= 1
                    if seen is not None:
                        seen(message.value() or b"")


def _throughput(settings: Settings, replies: _Reader, count: int) -> float:
    """Requests per second, from the first produce to the last reply."""
    producer = clients.producer(settings, linger_ms=5)
    value = orjson.dumps({"upstream": "up", "path": "/echo", "body": {"prompt": "y" * 120, "n": 1}})
    began = time.perf_counter()
    for n in range(count):
        while True:
            try:
                producer.produce(settings.topics.requests, value, f"doc:{n % KEYS}", headers=[("ce_id", f"{began}-{n}")])
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    replies.wait(count)
    return count / (time.perf_counter() - began)


def _latencies(settings: Settings, replies: _Reader) -> list[float]:
    """Seconds from produce to the reply in hand, less the service time, sorted; one request each 50 ms, slower than any lane."""
    producer = clients.producer(settings)
    value = orjson.dumps({"upstream": "up", "path": f"/echo?latency_ms={SERVICE_MS}", "body": {"n": 1}})
    times: list[float] = []
    rest = Event()
    for n in range(LATENCY_REQUESTS):
        began = time.perf_counter()
        producer.produce(settings.topics.requests, value, f"doc:{n % KEYS}", headers=[("ce_id", f"l{n}")])
        producer.poll(0)
        replies.wait(1, lambda _: None)
        took = time.perf_counter() - began
        times.append(took - SERVICE_MS / 1000)
        rest.wait(max(0.0, LATENCY_GAP_S - took))
    return sorted(times[20:])


def _table(rows: list[dict[str, object]]) -> None:
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    for name in names:
        of = [row for row in rows if row["name"] == name]
        figures = []
        for field in (field for field in of[0] if field != "name"):
            values = [float(str(row[field])) for row in of]
            figures.append(f"{field} {statistics.median(values):g} [{min(values):g}-{max(values):g}]")
        sys.stdout.write(f"{name:18} {'   '.join(figures)}\n")


if __name__ == "__main__":
    main()
