"""Whether a strict quota is used up and never passed: `python -m tests.bench.quotas [SECONDS]` (60).

A sample upstream takes 50 calls in any second and 10 at once of a credential, and answers 429 to what is more. 40 `doc:` lanes share that
credential through one worker, which has the same limit configured; calls take 100 ms, and four times as many requests come as may be
called. Printed: answers 429 (none is right), the share of the quota that was used from the first call on, and how close it was, in
milliseconds: the 51st call arrived so much more than a second behind the first one. The margin less that is what the way was uneven by.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import orjson

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.settings import LimitSettings, Settings
from tests.e2e.stage import Process, Worker
from tests.waiting import eventually

PER_S, AT_ONCE, CALL_MS = 50, 10, 100
LANES, LOAD, PARTITIONS = 40, 4, 12
LEAD_S = 2.0  # requests are there before the first call that counts, and after the last
LIMIT = {"credential": "team-a", "concurrency": AT_ONCE, "requests": PER_S, "window_s": 1}


def main() -> None:
    """Run it, and print a line of figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        broker = ladder(Path(name))
        bootstrap = broker.up()
        try:
            figures = measured(bootstrap, Path(name), seconds)
        finally:
            getattr(broker, "down", lambda: None)()
    sys.stdout.write(json.dumps(figures) + "\n")


def measured(bootstrap: str, folder: Path, seconds: float) -> dict[str, Any]:
    """One worker under that load for so long."""
    command = ["-m", "dispatcher", "sample-upstream", "--port", "0", "--latency-ms", f"{CALL_MS}"]
    upstream = Process("upstream", [*command, "--quota-per-s", f"{PER_S}", "--quota-at-once", f"{AT_ONCE}"], folder)
    try:
        url = eventually(lambda: upstream.text().split("\n")[0] if "\n" in upstream.text() else "", 60)
        settings, config = configured(bootstrap, url, folder)
        init_topics(settings)
        worker = Worker("worker", ["-m", "dispatcher", "--config", str(config), "worker"], folder).ready()
        try:
            load(settings, seconds + LEAD_S)
            lines = httpx.get(f"{url}/witness", trust_env=False, timeout=60).text.splitlines()
        finally:
            worker.close()
    finally:
        upstream.close()
    return judged([orjson.loads(line) for line in lines], seconds)


def configured(bootstrap: str, url: str, folder: Path) -> tuple[Settings, Path]:
    """The settings, and a file that holds them."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    tables: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap_servers": bootstrap},
        "topics": {"prefix": prefix, "partitions": PARTITIONS},
        "worker": {"group": prefix, "slot": prefix, "http_port": 0, "ordering": "key"},
        "credentials": {"team-a": {"value": "Bearer team-a"}},
        "upstreams": {"callee": {"base_url": url, "allow_private": True, "credentials": ["team-a"]}},
        "limits": {"team-a": LIMIT},
    }
    rows = {"credentials", "upstreams", "limits"}
    plain = [(name, table) for name, table in tables.items() if name not in rows]
    plain += [(f"{name}.{row}", table) for name in sorted(rows) for row, table in tables[name].items()]
    # JSON's spelling of strings, numbers and booleans is TOML's too.
    texts = [f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()) for name, table in plain]
    config = folder / "worker.toml"
    config.write_text("".join(texts))
    return Settings.model_validate(tables), config


def load(settings: Settings, seconds: float) -> None:
    """Submit so many times what may be called, evenly, for so long."""
    producer, rest = clients.producer(settings, linger_ms=5), Event()
    value = orjson.dumps({"upstream": "callee", "path": "/echo", "credential": "team-a", "body": {"n": 1}})
    began, n = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        for _ in range(int((now - began) * PER_S * LOAD) - n):
            producer.produce(settings.topics.requests, value, f"doc:{n % LANES}", headers=[("ce_id", f"{n}")])
            n += 1
        producer.poll(0)
        rest.wait(0.02)
    assert producer.flush(60) == 0


def judged(events: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What the callee saw, from its first call on."""
    starts = {event["call"]: event["t_s"] for event in events if event["event"] == "start"}
    statuses = {event["call"]: event["status"] for event in events if event["event"] != "start"}
    first = min(starts.values())
    taken = sorted(at for call, at in starts.items() if statuses.get(call, 200) == 200)
    used = len([at for at in taken if at < first + seconds])
    gaps = [later - earlier - 1.0 for earlier, later in zip(taken, taken[PER_S:], strict=False)]
    margin_s = LimitSettings.model_validate(LIMIT).slack_s
    return {
        "name": "quotas",
        "seconds": seconds,
        "calls": len(taken),
        "answers_429": len([status for status in statuses.values() if status == 429]),
        "used_share": round(used / (PER_S * seconds), 4),
        "closest_ms": round(1000 * min(gaps), 2),
        "median_ms": round(1000 * statistics.median(gaps), 2),
        "margin_ms": round(1000 * margin_s, 2),
        "uneven_ms": round(1000 * (margin_s - min(gaps)), 2),
    }


if __name__ == "__main__":
    main()
