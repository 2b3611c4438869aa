"""A deep backlog: what is fetched is fetched once, and memory does not grow with what waits in the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.source import Source
from dispatcher.core.lanes.buffer import Amount, Flow, Tap
from dispatcher.settings import KafkaSettings, Settings
from dispatcher.worker.brakes import Brakes
from tests.e2e.backlog import write
from tests.e2e.stage import Worker, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

KIB, MIB = 1024, 1024 * 1024
PARTITIONS = 2
# Bytes fetched per byte in the log.
FETCHED_MAX = 1.2
# Pace of the executing side where there is none, of each partition.
EXECUTED_PER_S = 60
# Of a worker: the process (60 MB), 100,000 records of some 1.5 KB, and what the client library holds.
MEMORY_MAX = 450 * MIB
# The same with requests of 1 MB that take some 210 bytes of the log each: 64 KiB are 310 MB of them; beside two buffers of 28 MB, copies
# for a few calls, and what the allocator keeps of all that.
COMPRESSED_MEMORY_MAX = 900 * MIB
# Key, framing and share of a batch's head.
RECORD_BYTES = 30


class Reader:
    """A worker's consumer with its brakes, and partitions whose records are executed at a pace: all that decides what is fetched."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: Amount) -> None:
        self.received = 0
        self.pauses = 0
        self.records = 0
        self._limit = limit
        self._consumer = self._made(settings, monkeypatch)
        self._source = Source(self._consumer, settings.topics.requests, incremental=True)
        self._brakes = Brakes(self._source)
        self._taps = {n: Tap() for n in range(PARTITIONS)}
        self._held: dict[int, list[int]] = {n: [] for n in self._taps}
        self._source.assign(dict.fromkeys(self._taps, 0))
        self._began = time.monotonic()
        self._executed = 0  # of each partition

    def has_read(self, count: int) -> bool:
        """Go on for a while; whether so many have come by now."""
        for _ in range(20):
            self._step()
        return self.records >= count

    def has_told(self, received: int) -> bool:
        """Whether figures have come that are later than these."""
        self._step()
        return self.received > received

    def _step(self) -> None:
        """Execute what is due, and poll if that may be now, as the poller does."""
        due = int((time.monotonic() - self._began) * EXECUTED_PER_S)
        for n, held in self._held.items():
            del held[: due - self._executed]
            self._turn(n)
        self._executed = due
        if self._brakes.wait_s(time.monotonic()) > 0:
            return
        batch = self._source.poll(0.001)
        self._brakes.took(batch)
        for record in batch.records:
            self._held[record.partition].append(record.size_bytes)
        self.records += len(batch.records)
        for n in self._taps:
            self._turn(n)

    def close(self) -> None:
        self._consumer.close()

    def _turn(self, partition: int) -> None:
        held = self._held[partition]
        match self._taps[partition].turn(self._limit, Amount(len(held), sum(held))):
            case Flow.PAUSE:
                self.pauses += 1
                self._brakes.pause(partition, time.monotonic())
            case Flow.RESUME:
                self._brakes.resume(partition)
            case None:
                pass

    def _made(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Consumer:
        def heard(text: str) -> None:
            self.received = json.loads(text)["rx_bytes"]

        def counted(properties: dict[str, Any], **keywords: Any) -> Consumer:
            return Consumer(properties | {"statistics.interval.ms": 50, "stats_cb": heard}, **keywords)

        monkeypatch.setattr(clients, "Consumer", counted)
        return clients.consumer(settings, group=settings.worker.group, protocol="cooperative")


def test_pauses_fetch_nothing_twice(settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that are full all the time pause their partitions again and again, and the log is fetched once."""
    count, size = 400, 64 * KIB
    made = settings(partitions=PARTITIONS)
    fill(made, count, size)
    reader = Reader(made, monkeypatch, Amount(4000, 2 * MIB))
    try:
        eventually(lambda: reader.has_read(count), what="the whole log")
        eventually(partial(reader.has_told, reader.received), what="the last figures")
    finally:
        reader.close()
    fetched = reader.received / (count * size)
    print(f"{fetched:.2f} bytes fetched per byte in the log, {reader.pauses} pauses")
    assert count == reader.records
    assert reader.pauses >= PARTITIONS * 2
    assert fetched < FETCHED_MAX


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_worker_whose_buffers_are_full_all_the_time_fetches_the_log_once(
    settings: SettingsFactory, tmp_path: Path, publishing: str, ordering: str
) -> None:
    """The log holds many times what the buffers may; what the worker itself receives is little more than the log."""
    count, size = 2000, 32 * KIB
    worker = {"publishing": publishing, "ordering": ordering, "lane_buffer_max_bytes": 6 * MIB}
    with stage(settings, tmp_path, partitions=PARTITIONS, worker=worker) as set_up:
        fill(set_up.settings, count, size)
        replies = set_up.replies()
        counted = set_up.worker(counted=True)
        replies.await_count(count)
        seen = len(counted.events("received"))
        eventually(lambda: len(counted.events("received")) > seen, what="the last figures")
        received = counted.events("received")[-1]["bytes"]
    print(f"{received / (count * size):.2f} bytes fetched per byte in the log, {publishing}, {ordering}")
    assert received < FETCHED_MAX * count * size


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("publishing", "ordering"), [("exactly_once", "key"), ("at_least_once", "key"), ("exactly_once", "partition")])
def test_memory_is_flat_with_two_million_records_in_the_log(
    settings: SettingsFactory, tmp_path: Path, publishing: str, ordering: str
) -> None:
    """What a worker holds is decided by its bounds; not by what waits, nor by how much has passed. What is fetched is the log, once."""
    waits, passes, size = 2_000_000, 240_000, 250
    # What the journal remembers is bounded, too, in entries: so many that it is full in the first half.
    worker = {"publishing": publishing, "ordering": ordering, "dedup_max_entries": 5000}
    with stage(settings, tmp_path, partitions=12, worker=worker) as set_up:
        fill(set_up.settings, waits, size, keys=2000)
        counted = set_up.worker(counted=True).ready()
        peaks = [peak(counted, lambda: sum(set_up.positions()[0].values()), passes * part // 4, 600) for part in (1, 2, 3, 4)]
        received, done = counted.events("received")[-1]["bytes"], sum(set_up.positions()[0].values())
        # In memory, beside what is done: its bounds, and what a fetch or two bring.
        held = set_up.settings.worker.buffer_max_records
    print(f"MB at each quarter {[round(one / MIB) for one in peaks]}; {received / MIB:.0f} MB fetched, {done * size / MIB:.0f} MB done")
    # Buffers fill and the allocator settles in the first quarters: seen 201, 250, 280, 280.
    assert peaks[3] < 1.05 * peaks[2]
    assert max(peaks) < MEMORY_MAX
    assert received < FETCHED_MAX * (done + held) * (size + RECORD_BYTES)


@pytest.mark.parametrize("count", [6000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("ordering", ["key", pytest.param("partition", marks=pytest.mark.soak)])
def test_memory_is_bounded_while_every_key_is_refused(settings: SettingsFactory, tmp_path: Path, ordering: str, count: int) -> None:
    """Every call is told to come again: what is queued, parked and to be tried again has its bounds, and then the log waits."""
    size, waits = 10 * KIB, 300
    worker = {"ordering": ordering, "lane_buffer_max_bytes": 4 * MIB, "parked_max_records": waits}
    with stage(settings, tmp_path, partitions=PARTITIONS, worker=worker) as set_up:
        running = set_up.worker(counted=True).ready()
        before = psutil.Process(running.popen.pid).memory_info().rss
        fill(set_up.settings, count, size, path="/fault/429?retry_after=600")
        eventually(lambda: stands(running), what="nothing more is read")
        grown = psutil.Process(running.popen.pid).memory_info().rss - before
        received = running.events("received")[-1]["bytes"]
    print(f"{received / MIB:.0f} MB of {count * size / MIB:.0f} read, {grown / MIB:.0f} MB of memory")
    # The buffer, what was parked to make room in it, and two fetches.
    assert received < PARTITIONS * (4 * MIB + waits * size + 3 * 2 * MIB)
    # And less than the log: seen 13 to 47 MB where that has 59.
    assert grown < min(80 * MIB, count * size)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_memory_is_bounded_where_requests_compress_a_thousandfold(settings: SettingsFactory, tmp_path: Path) -> None:
    """The client unpacks whole what it fetches, and nobody can count that before: one fetch brings so little that it is no matter.

    The whole log is smaller than one fetch of the client's own choice.
    """
    count, size = 1500, 1_000_000
    with stage(settings, tmp_path, partitions=PARTITIONS, worker={"ordering": "key"}) as set_up:
        compressing = {"bootstrap_servers": set_up.settings.kafka.bootstrap_servers, "properties": {"compression.type": "zstd"}}
        fill(set_up.settings.model_copy(update={"kafka": KafkaSettings.model_validate(compressing)}), count, size, keys=4)
        running = set_up.worker(counted=True).ready()
        replies = set_up.replies()
        highest = peak(running, lambda: len(replies.read()), 60, 600)
        received = running.events("received")[-1]["bytes"]
    print(f"{highest / MIB:.0f} MB of memory, {received / 1000:.0f} kB received, for {count * size / MIB:.0f} MB of requests")
    assert highest < COMPRESSED_MEMORY_MAX


def stands(worker: Worker) -> bool:
    """Whether its consumer has received something, and nothing more for three seconds but heartbeats."""
    last = [event["bytes"] for event in worker.events("received")][-15:]
    return len(last) == 15 and last[0] > MIB and last[-1] - last[0] < 64 * KIB


def peak(worker: Worker, done: Callable[[], int], until: int, within_s: float) -> int:
    """The most memory that it has had until so many requests were done, in bytes."""
    process, highest = psutil.Process(worker.popen.pid), 0

    def is_done() -> bool:
        nonlocal highest
        highest = max(highest, process.memory_info().rss)
        return done() >= until

    eventually(is_done, within_s, f"{until} requests are done")
    return highest


def fill(settings: Settings, count: int, size: int, keys: int = 600, path: str = "/status/200") -> None:
    """Write requests of so many bytes, in batches as large as they become."""
    write(settings, ((f"doc:{n % keys}", path) for n in range(count)), pad=size - 80)
