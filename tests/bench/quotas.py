"""Whether a strict quota is used up and never passed: `python -m tests.bench.quotas [SECONDS [WORKERS [kill]]]` (60, 1).

A sample upstream takes 50 calls in any second and 10 at once of a credential, and answers 429 to what is more. 40 `doc:` lanes share that
credential through the workers, which have the same limit configured and divide it among them; calls take 100 ms, and four times as many
requests come as may be called. With `kill` one worker is killed in the middle. Printed: answers 429 (none is right), the share of the quota
that was used from the first call on, and how close it was, in milliseconds: the 51st call arrived so much more than a second behind the
first one. The margin less that is what the way was uneven by.

What a killed worker had of the quota is nobody's until its lease has ended, and a window more: `used_share` leaves out those seconds.
"""

from __future__ import annotations

import json
import math
import signal
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
from dispatcher.core.callees.shares import LEASE_S, MARGIN
from dispatcher.settings import LimitSettings, Settings
from tests.e2e.stage import Process, Worker
from tests.waiting import eventually

PER_S, AT_ONCE, CALL_MS = 50, 10, 100
LANES, LOAD, PARTITIONS = 40, 4, 12
LEAD_S = 2.0  # requests are there before the first call that counts, and after the last
# From a kill until its share of the window is claimed by others, rounded up: lease and window with their margins, and three records.
NOBODYS_S = (LEASE_S + 1.0 + 0.015) * MARGIN + 1.0
# Of the quota, by one worker and by several; the margin alone costs a sixty-seventh part of it.
USED, USED_TOGETHER = 0.98, 0.95
LIMIT = {"credential": "team-a", "concurrency": AT_ONCE, "requests": PER_S, "window_s": 1}


def main() -> int:
    """Run it, and print a line of figures; exit code 1 where they are not as promised."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kills = sys.argv[3:] == ["kill"]
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        broker = ladder(Path(name))
        bootstrap = broker.up()
        try:
            figures = measured(bootstrap, Path(name), seconds, workers, kills=kills)
        finally:
            getattr(broker, "down", lambda: None)()
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if is_kept(figures) else 1


def is_kept(figures: dict[str, Any]) -> bool:
    """Whether nobody was refused, and nearly all of the quota was used: on a machine that does nothing else."""
    least = USED if figures["workers"] == 1 else USED_TOGETHER
    return bool(figures["answers_429"] == 0 and figures["used_share"] >= least)


def measured(bootstrap: str, folder: Path, seconds: float, workers: int = 1, *, kills: bool = False) -> dict[str, Any]:
    """So many workers under that load for so long; one of them is killed in the middle, or none."""
    command = ["-m", "dispatcher", "sample-upstream", "--port", "0", "--latency-ms", f"{CALL_MS}"]
    upstream = Process("upstream", [*command, "--quota-per-s", f"{PER_S}", "--quota-at-once", f"{AT_ONCE}"], folder)
    try:
        url = eventually(lambda: upstream.text().split("\n")[0] if "\n" in upstream.text() else "", 60)
        settings, config = configured(bootstrap, url, folder)
        init_topics(settings)
        started = []
        for n in range(workers):
            own = folder / f"worker-{n}.toml"
            own.write_text(config.read_text().replace(f'slot = "{settings.worker.slot}"', f'slot = "{settings.worker.slot}-{n}"'))
            started.append(Worker(f"worker-{n}", ["-m", "dispatcher", "--config", str(own), "worker"], folder))
        try:
            eventually(lambda: all(worker.ready().live() for worker in started), 60, "each worker has partitions")
            killed_at = load(settings, seconds + LEAD_S, started[-1] if kills else None)
            lines = httpx.get(f"{url}/witness", trust_env=False, timeout=60).text.splitlines()
        finally:
            for worker in started:
                worker.close()
    finally:
        upstream.close()
    events = [orjson.loads(line) for line in lines]
    return {"workers": workers, "killed": kills} | judged(events, seconds, killed_at)


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


def load(settings: Settings, seconds: float, victim: Process | None = None) -> float | None:
    """Submit so many times what may be called, evenly, for so long; kill in the middle. When that was, seconds from the start on."""
    producer, rest = clients.producer(settings, linger_ms=5), Event()
    value = orjson.dumps({"upstream": "callee", "path": "/echo", "credential": "team-a", "body": {"n": 1}})
    began, n, killed_at = time.monotonic(), 0, None
    while (now := time.monotonic()) < began + seconds:
        for _ in range(int((now - began) * PER_S * LOAD) - n):
            producer.produce(settings.topics.requests, value, f"doc:{n % LANES}", headers=[("ce_id", f"{n}")])
            n += 1
        producer.poll(0)
        rest.wait(0.02)
        if victim is not None and killed_at is None and now >= began + seconds / 2:
            victim.signal(signal.SIGKILL)
            killed_at = now - began
    assert producer.flush(60) == 0
    return killed_at


def judged(events: list[dict[str, Any]], seconds: float, killed_at: float | None = None) -> dict[str, Any]:
    """What the callee saw, from its first call on, which comes as the load begins."""
    starts = {event["call"]: event["t_s"] for event in events if event["event"] == "start"}
    statuses = {event["call"]: event["status"] for event in events if event["event"] != "start"}
    first = min(starts.values())
    taken = sorted(at for call, at in starts.items() if statuses.get(call, 200) == 200)
    gone = (math.inf, math.inf) if killed_at is None else (first + killed_at, first + killed_at + NOBODYS_S)
    used = len([at for at in taken if at < first + seconds and not gone[0] <= at < gone[1]])
    counted_s = seconds - (0.0 if killed_at is None else NOBODYS_S)
    gaps = [later - earlier - 1.0 for earlier, later in zip(taken, taken[PER_S:], strict=False)]
    margin_s = LimitSettings.model_validate(LIMIT).slack_s
    return {
        "name": "quotas",
        "seconds": seconds,
        "calls": len(taken),
        "answers_429": len([status for status in statuses.values() if status == 429]),
        "used_share": round(used / (PER_S * counted_s), 4),
        "closest_ms": round(1000 * min(gaps), 2),
        "median_ms": round(1000 * statistics.median(gaps), 2),
        "margin_ms": round(1000 * margin_s, 2),
        "uneven_ms": round(1000 * (margin_s - min(gaps)), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
