"""What a lane for each key is worth, in figures: `python -m tests.bench.key_lanes [SCALE] [many|hot|past|deep ...]`.

    many   10,000 keys, 5,000 calls of 5 s in flight in one process: share of the ideal rate (1,000 calls a second), and memory per call
           in flight, per parked key and per idle key
    hot    one key has half of all requests, and calls of 30 s: how long the others wait, with and without it
    past   300,000 requests of other keys past a key that is paused all the while, across a kill
    deep   memory of a worker that works for ten minutes at the head of two million queued requests, one key of ten thousand paused

SCALE divides the times and numbers of all but `past` (1: as said above; 10: to see that it runs). On two cores broker, callee and driver
share them with the worker: use a machine that does nothing else. The broker is the one of DISPATCHER_KAFKA__BOOTSTRAP_SERVERS, if set.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import psutil
from confluent_kafka import TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.core.internal import control
from dispatcher.settings import Settings
from tests.bench.__main__ import _await_ready as await_ready
from tests.e2e.backlog import Counting, counting, write
from tests.waiting import eventually

PARTITIONS = 12
KEYS, INFLIGHT, CALL_S, ROUNDS = 10_000, 5_000, 5.0, 6
HOT_CALL_S, OTHERS_PER_S, OTHERS_S, OTHER_KEYS, OTHER_MS = 30.0, 50, 60.0, 500, 20
DEEP, DEEP_S = 2_000_000, 600.0
PAST = "tests/e2e/test_long_pause.py::test_others_flow_past_a_key_that_is_paused_all_the_while[300000]"


def main() -> None:
    """Run what is asked for, or all, and print a line of figures for each."""
    names = [name for name in sys.argv[1:] if not name.isdigit()] or ["many", "hot", "past", "deep"]
    scale = float(next((name for name in sys.argv[1:] if name.isdigit()), "1"))
    with tempfile.TemporaryDirectory(prefix="dispatcher-bench-") as name:
        broker = ladder(Path(name))
        bootstrap = broker.up()
        try:
            with counting() as callee:
                bench = Bench(bootstrap, callee, Path(name), scale)
                for one in names:
                    tell(one, getattr(bench, one)())
        finally:
            getattr(broker, "down", lambda: None)()


def tell(name: str, figures: dict[str, Any]) -> None:
    """Print them."""
    sys.stdout.write(json.dumps({"name": name} | figures) + "\n")
    sys.stdout.flush()


class Bench:
    """One broker, one callee; each part has its own topics and worker."""

    def __init__(self, bootstrap: str, callee: Counting, folder: Path, scale: float) -> None:
        self._bootstrap = bootstrap
        self._callee = callee
        self._folder = folder
        self._scale = scale

    def many(self) -> dict[str, Any]:
        """10,000 keys: the rate, and what each thing costs in memory."""
        keys, inflight, call_s = (round(KEYS / self._scale), round(INFLIGHT / self._scale), CALL_S)
        ideal = inflight / call_s
        names = [f"doc:{n}" for n in range(keys)]
        limits = {"inflight_max": inflight, "partition_inflight_max": inflight}
        first = self._callee.figures()["answered"]
        with self._worker(limits) as (settings, worker):
            began_with = self._size_after(settings, worker, names[:100])
            # Nothing is queued meanwhile: what memory grows by are calls.
            write(settings, ((key, f"/x?ms={4000 * call_s:.0f}") for key in names[:inflight]), upstream="callee")
            eventually(lambda: self._callee.figures()["open"] == inflight, 120, "so many calls are open")
            flying = worker.memory_info().rss
            eventually(lambda: not self._callee.figures()["open"], 120, "they have ended")
            sizes = [self._size_after(settings, worker, [f"doc:{batch}-{n}" for n in range(keys)]) for batch in range(3)]
            done = self._callee.figures()["answered"]
            write(settings, ((key, f"/x?ms={1000 * call_s:.0f}") for _ in range(ROUNDS) for key in names), upstream="callee")
            eventually(lambda: self._callee.figures()["open"] >= inflight * 0.98, 120, "so many calls are open again")
            before, at = self._callee.figures()["answered"], time.monotonic()
            eventually(lambda: self._callee.figures()["answered"] >= done + keys * (ROUNDS - 1.5), 600, "most are answered")
            rate = (self._callee.figures()["answered"] - before) / (time.monotonic() - at)
            largest = worker.memory_info().rss
            eventually(lambda: self._callee.figures()["answered"] >= first + 100 + inflight + keys * (3 + ROUNDS), 600, "all are answered")
        parked = self._parked(names)
        return {
            "per_s": round(rate),
            "of_ideal": round(rate / ideal, 3),
            "open_max": self._callee.figures()["peak"],
            "kb_per_call": round((flying - began_with) / inflight / 1024, 1),
            "bytes_per_idle_key": round((sizes[-1] - sizes[0]) / keys / 2),
            "bytes_per_parked_key": round(parked),
            "rss_mb": largest >> 20,
        }

    def hot(self) -> dict[str, Any]:
        """Milliseconds from a request's submission to its reply in a reader's hands, of all keys but the hot one."""
        found: dict[str, Any] = {}
        for name, share in (("without", 0.0), ("with", 0.5)):
            times = self._others(share)
            found |= {f"{name}_p50_ms": _at(times, 0.5), f"{name}_p99_ms": _at(times, 0.99)}
        return found

    def past(self) -> dict[str, Any]:
        """The soak test prints its own figures."""
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "soak", PAST]
        out = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in out.stdout.splitlines() if "key" in line or "called again" in line]
        return {"passed": out.returncode == 0, "figures": lines}

    def deep(self) -> dict[str, Any]:
        """A backlog of two million: megabytes of memory while it is worked on, every fifth second."""
        count, seconds = round(DEEP / self._scale), DEEP_S / self._scale
        with self._worker({}) as (settings, worker):
            producer = clients.producer(settings)
            command = control.Command("bench", control.key_target(b"doc:0"), control.PAUSED, "", "bench")
            held = control.message(command, settings.topics.control)
            producer.produce(held.topic, held.value, held.key)
            assert producer.flush(30) == 0
            write(settings, ((f"doc:{n % KEYS}", f"/x?ms={OTHER_MS}") for n in range(count)), upstream="callee")
            done, sizes, rest = self._callee.figures()["answered"], list[int](), Event()
            for _ in range(round(seconds / 5)):
                rest.wait(5)
                sizes.append(worker.memory_info().rss >> 20)
            answered = self._callee.figures()["answered"] - done
            return {"rss_mb": sizes, "answered": answered, "per_s": round(answered / seconds), "left": sum(self._open(settings))}

    def _parked(self, names: list[str]) -> float:
        """Bytes of memory for a key that waits, with nothing of it but its place in the parked topic."""
        with self._worker({"lane_buffer_max_records": 100}) as (settings, worker):
            before = self._size_after(settings, worker, [f"doc:before-{n}" for n in range(len(names))])
            write(settings, ((key, "/x?refuse=600") for key in names), upstream="callee")
            # The last ones stay in memory, where there is room for them.
            eventually(lambda: sum(self._open(settings)) <= 100 * PARTITIONS, 300, "nearly everything is committed past")
            return float(worker.memory_info().rss - before) / len(names)

    def _open(self, settings: Settings) -> list[int]:
        """How far the commits are from the ends, by partition."""
        consumer = clients.consumer(settings, group=settings.worker.group, protocol="cooperative")
        try:
            parts = [TopicPartition(settings.topics.requests, n) for n in range(PARTITIONS)]
            committed = consumer.committed(parts, timeout=10)
            return [consumer.get_watermark_offsets(part, timeout=10)[1] - part.offset for part in committed]
        finally:
            consumer.close()

    def _size_after(self, settings: Settings, worker: psutil.Popen, names: list[str]) -> int:
        """Memory once each of these keys had a request, which has been answered."""
        count = self._callee.figures()["answered"] + len(names)
        write(settings, ((key, "/x?ms=0") for key in names), upstream="callee")
        eventually(lambda: self._callee.figures()["answered"] >= count and sum(self._open(settings)) == 0, 120, "all is committed")
        return int(worker.memory_info().rss)

    def _others(self, hot: float) -> list[float]:
        """Submit at a steady pace, with that share of requests of the hot key beside; how long the others took, sorted."""
        seconds = OTHERS_S / self._scale
        with self._worker({}) as (settings, _):
            producer = clients.producer(settings)
            reader = clients.consumer(settings)
            reader.assign([TopicPartition(settings.topics.replies, n, 0) for n in range(PARTITIONS)])
            sent: dict[str, float] = {}
            took: list[float] = []
            slow = _request(f"/x?ms={HOT_CALL_S * 1000 / self._scale:.0f}")
            quick, rest = _request(f"/x?ms={OTHER_MS}"), Event()
            count = round(OTHERS_PER_S * seconds)
            began = time.monotonic()
            for n in range(count):
                if hot:
                    producer.produce(settings.topics.requests, slow, "doc:hot", headers=[("ce_id", b"hot-%d" % n)])
                sent[f"o-{n}"] = time.monotonic()
                producer.produce(settings.topics.requests, quick, f"doc:{n % OTHER_KEYS}", headers=[("ce_id", b"o-%d" % n)])
                producer.poll(0)
                _read(reader, sent, took)
                rest.wait(max(0.0, began + (n + 1) / OTHERS_PER_S - time.monotonic()))
            eventually(lambda: _read(reader, sent, took) == count, 120, "the others are answered")
            reader.close()
        return sorted(took)

    @contextmanager
    def _worker(self, limits: dict[str, Any]) -> Iterator[tuple[Settings, psutil.Popen]]:
        """Run a worker with topics of its own."""
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        worker = {"group": prefix, "slot": prefix, "http_port": 0, "ordering": "key", "drain_s": 1} | limits
        tables: dict[str, dict[str, Any]] = {
            "kafka": {"bootstrap_servers": self._bootstrap},
            "topics": {"prefix": prefix, "partitions": PARTITIONS},
            "worker": worker,
            "upstreams.callee": {"base_url": self._callee.url, "allow_private": True},
        }
        # JSON's spelling of strings, numbers and booleans is TOML's too.
        text = "".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()) for name, table in tables.items()
        )
        config, log = self._folder / f"{prefix}.toml", self._folder / f"{prefix}.log"
        config.write_text(text)
        upstreams = {"upstreams": {"callee": tables["upstreams.callee"]}}
        settings = Settings.model_validate({name: table for name, table in tables.items() if "." not in name} | upstreams)
        init_topics(settings)
        with log.open("wb") as err:
            process = psutil.Popen([sys.executable, "-m", "dispatcher", "--config", str(config), "worker"], stderr=err)
        try:
            await_ready(log)
            yield settings, process
        finally:
            process.terminate()
            process.wait(60)


def _request(path: str) -> bytes:
    return orjson.dumps({"upstream": "callee", "path": path})


def _read(reader: Any, sent: dict[str, float], took: list[float]) -> int:
    """Note what has come by now; how many have come in all."""
    now = time.monotonic()
    for message in reader.consume(500, 0.001):
        if message.error() is None:
            name = dict(message.headers() or ()).get("ce_causationid", b"").decode()
            if name in sent:
                took.append(now - sent.pop(name))
    return len(took)


def _at(times: list[float], quantile: float) -> float:
    return round(times[min(len(times) - 1, int(len(times) * quantile))] * 1000, 1)


if __name__ == "__main__":
    main()
