"""What a worker keeps of requests that are over: nothing. Engine, lanes, publisher and metrics as they are, with a callee at hand."""

from __future__ import annotations

import gc
import resource
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.metrics import Metrics
from dispatcher.core.messages import partitioner
from dispatcher.core.messages.call import Answered, Call, CallResult
from dispatcher.core.messages.record import Message
from dispatcher.settings import Settings
from dispatcher.worker import observer
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.engine import Engine
from dispatcher.worker.letters import Command, Snapshot
from dispatcher.worker.observer import WorkerObserver
from dispatcher.worker.publisher import Publisher
from tests.specimens import OWNER, alone, decoder, record, settings
from tests.waiting import eventually_async

BATCH = 500
OK = Answered(200, (("content-type", "application/json"),), b'{"ok":true}')
FAILED = Answered(500, (), b"")
# Allocations come and go; a key that is remembered costs more than a hundred bytes.
PER_RECORD_MAX_BYTES = 20


class Callee:
    """Answers at once; every tenth request fails."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, _: Call, __: Callable[[], None]) -> CallResult:
        self.calls += 1
        return FAILED if self.calls % 10 == 0 else OK


class Sink:
    """Takes everything, and counts the replies."""

    undelivered: tuple[()] = ()

    def __init__(self) -> None:
        self.messages = 0

    def produce(self, messages: list[Message]) -> None:
        self.messages += len(messages)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


class Mute:
    """A log that nobody reads."""

    def is_enabled_for(self, _: int) -> bool:
        return False

    def info(self, event: str, **_: object) -> None:
        del event

    warning = debug = error = info


class Pipeline:
    """One partition of a worker, from record to acknowledgement."""

    def __init__(self, made: Settings) -> None:
        clock = SystemClock()
        self.offset = 0
        self._letters: tuple[SimpleQueue[Any], ...] = (SimpleQueue(), SimpleQueue(), SimpleQueue())
        self._poller: SimpleQueue[Command] = self._letters[0]
        ear = WorkerObserver(Metrics(made.worker.ordering, made.worker.publishing), clock)
        self.engine = Engine([decoder(made)], Callee(), *self._letters, ear, clock, lambda: 0.0)
        sink: Any = Sink()
        snapshot = Snapshot(1, object(), frozenset({OWNER}))
        self._publisher = Publisher(
            *(
                made,
                alone(bytes(16), 1),
                {},
                sink,
                self.engine,
                lambda function, *args: function(*args),
                self._letters[1],
                self._poller,
            ),
            *(lambda: snapshot, ear, clock),
        )
        self.engine.assigned(OWNER, 0)
        self.engine.restored(OWNER, [])

    async def run(self, records: int) -> None:
        """Take so many records of as many keys through, in batches."""
        for _ in range(records // BATCH):
            batch = [record(key=b"doc:%d" % n, offset=n) for n in range(self.offset, self.offset + BATCH)]
            self.offset += BATCH
            self.engine.delivered({OWNER: batch}, {})
            del batch
            await eventually_async(self._is_done, what="all are acknowledged")

    def _is_done(self) -> bool:
        while not self._letters[1].empty():
            self._publisher.step()
        for queue in (self._letters[0], self._letters[2]):
            while not queue.empty():
                queue.get_nowait()
        return self.engine.partitions[0].progress.acknowledged == self.offset


def taken() -> int:
    """Bytes that Python holds, garbage and the partitioner's bounded memory apart."""
    partitioner.murmur2.cache_clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("ordering", ["partition", "key"])
async def test_memory_is_flat_over_any_number_of_keys_and_failures(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another 1,500 of ever new keys, every tenth a dead letter, leave behind no more than what allocations come and go with."""
    monkeypatch.setattr(observer, "logger", Mute)
    pipeline = Pipeline(settings({"attempts_max": 1}, worker={"ordering": ordering, "commit_interval_ms": 0}))
    await pipeline.run(500)
    tracemalloc.start()
    try:
        await pipeline.run(500)
        before = taken()
        await pipeline.run(1_500)
        grown = taken() - before
    finally:
        tracemalloc.stop()
    assert grown < PER_RECORD_MAX_BYTES * 1_500
    assert 0 == pipeline.engine.partitions[0].held_records


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ordering", ["partition", "key"])
async def test_a_million_requests_take_no_more_memory_than_the_first(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process has in memory after 100,000 is what it has after a million, but for what fragments."""
    monkeypatch.setattr(observer, "logger", Mute)
    pipeline = Pipeline(settings({"attempts_max": 1}, worker={"ordering": ordering, "commit_interval_ms": 0}))
    await pipeline.run(100_000)
    before = resident_bytes()
    await pipeline.run(900_000)
    assert resident_bytes() - before < 900_000 * PER_RECORD_MAX_BYTES


def test_a_full_queue_costs_no_memory() -> None:
    """A message that the client's full queue refuses takes its headers with it, however often it is tried again."""
    full = {"bootstrap_servers": "127.0.0.1:1", "properties": {"queue.buffering.max.messages": "10"}}
    producer = clients.producer(Settings.model_validate({"kafka": full}))
    headers: list[tuple[str, str | bytes | None]] = [("x", b"x" * 1000)] * 20
    refused, grown = 0, []
    for _ in range(2):
        before = resident_bytes()
        for _ in range(20_000):
            try:
                producer.produce("t", b"v", headers=headers)
            except BufferError:
                refused += 1
        grown.append(resident_bytes() - before)
    assert 40_000 - 10 == refused
    assert grown[1] < 20_000_000, "20,000 times 20 kB would be 400 MB"
    producer.purge()


def resident_bytes() -> int:
    """What this process has in memory, Python's and everybody else's."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
