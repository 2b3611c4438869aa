"""A reader of compacted topics as the worker's restorer uses it, over the simulated cluster: `CompactedReader` without a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from dispatcher.adapters.kafka.compacted import QUESTION_S, QUIET_S, Ended, Items, Question
from dispatcher.core.messages.record import Record
from dispatcher.errors import BrokerAway, PartitionAway, TopicAway
from tests.sim.cluster import Cluster, Wire
from tests.sim.faults import Refused, plain
from tests.sim.logs import Entry, Log
from tests.sim.process import WALL, Process

T = TypeVar("T")
# What one answer holds at most, and what a reading waits for one before it says that nothing came.
FETCH_MAX, POLL_S = 8, 0.1
# An idle restorer looks up late: what wakes a real thread every few milliseconds is only worth a step here if there is something to do.
IDLE_S = 1.0


class Reader:
    """Owned by the restorer's thread."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._process = process
        self._cluster = cluster
        self._asking = Wire(cluster, process)
        self._idle: list[Wire] = []
        self._tail: _Tail | None = None

    @property
    def has_news(self) -> bool:
        """Whether `news` would give something."""
        return self._tail is not None and bool(self._tail.found)

    def ends(self, topic: str, partitions: Collection[int]) -> Question:
        """As `CompactedReader.ends`."""
        logs = self._cluster.logs
        return (yield from self._asked(topic, partitions, lambda: {n: logs[topic, n].end for n in partitions}))

    def since(self, topic: str, times_ms: Mapping[int, int]) -> Question:
        """As `CompactedReader.since`."""
        logs = self._cluster.logs
        times = {n: ms / 1000 - WALL for n, ms in times_ms.items()}
        return (yield from self._asked(topic, times, lambda: {n: logs[topic, n].since(at) for n, at in times.items()}))

    def _asked(self, topic: str, partitions: Collection[int], look: Callable[[], dict[int, int]]) -> Question:
        logs = self._cluster.logs

        def request() -> dict[int, int] | BrokerAway:
            if all((topic, n) in logs for n in partitions):
                return look()
            is_there = any(name == topic for name, _ in logs)
            return PartitionAway(f"{topic} has no such partition") if is_there else TopicAway(f"there is no topic {topic}")

        answer, end = _Answer(self._asking, request), self._process.now + QUESTION_S
        while not answer.is_there and self._process.now < end:
            self._process.thread.wait(POLL_S, lambda: answer.is_there)
            if not answer.is_there:
                yield True
        answer.is_wanted = False
        if not answer.is_there:
            raise BrokerAway(f"Kafka does not answer: places in {topic}", "simulated")
        found: dict[int, int] | BrokerAway = answer.content
        if isinstance(found, BrokerAway):
            raise found
        return found

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Items:
        """As `CompactedReader.read`."""
        wire = self._idle.pop() if self._idle else Wire(self._cluster, self._process)
        left: dict[int, Generator[Record | None, None, None]] = {}
        for n, (start, stop) in ranges.items():
            if start < stop:
                left[n] = self._stretch(wire, self._cluster.logs[topic, n], start, stop)
            else:
                yield Ended(n)
        try:
            while left:
                number = self._process.chance.choice(sorted(left))
                try:
                    yield next(left[number])
                except StopIteration:
                    del left[number]
                    yield Ended(number)
        finally:
            self._idle.append(wire)

    def follow(self, topic: str, offset: int) -> None:
        """As `CompactedReader.follow`."""
        self._tail = _Tail(self._process, Wire(self._cluster, self._process), self._cluster.logs[topic, 0], offset)

    def news(self, timeout_s: float) -> list[Record]:
        """As `CompactedReader.news`."""
        tail = self._tail
        if tail is None:
            return []
        tail.ask()
        if not tail.found and timeout_s > 0:
            self._process.thread.wait(timeout_s, lambda: bool(tail.found))
        records = list(tail.found)
        tail.found.clear()
        return records

    def close(self) -> None:
        """As `CompactedReader.close`."""
        self._tail = None

    def _stretch(self, wire: Wire, log: Log, position: int, stop: int) -> Generator[Record | None, None, None]:
        """Yield the records of one partition up to `stop`; what an open transaction holds there is waited for."""
        quiet_since = self._process.now
        while position < stop:
            start = max(position, log.start)
            answer = _Answer(wire, lambda start=start: log.read(start, FETCH_MAX))  # type: ignore[misc] # no annotation in a lambda
            while not answer.is_there:
                self._process.thread.wait(POLL_S, lambda: answer.is_there)  # noqa: B023 - waited for here
                if not answer.is_there:
                    yield None
                    if self._process.now - quiet_since > QUIET_S:
                        quiet_since = self._process.now
                        yield from (None for _ in self.ends(log.name.rpartition("-")[0], [log.partition]))
            found, after = answer.content
            if after == position:
                self._process.thread.wait(POLL_S)
                yield None
                continue
            quiet_since, position = self._process.now, after
            for offset, _ in found:
                if offset < stop:
                    yield log.record(offset)


class _Answer:
    """A question, and room for its answer."""

    def __init__(self, wire: Wire, request: Callable[[], object]) -> None:
        self.content: Any = None
        self.is_there = False
        self.is_wanted = True
        wire.ask(request, self._put, lambda: self.is_wanted)

    def _put(self, content: object) -> None:
        self.content, self.is_there = content, True


class _Tail:
    """Follows one log. One question at a time is on its way; where nothing is new it is asked again when there is."""

    def __init__(self, process: Process, wire: Wire, log: Log, position: int) -> None:
        self.found: deque[Record] = deque()
        self._process = process
        self._wire = wire
        self._log = log
        self._position = position
        self._is_asking = False
        self._number = 0

    def ask(self) -> None:
        """Ask for what is new, unless it is asked for."""
        if not self._is_asking:
            self._is_asking = True
            self._number += 1
            number, position = self._number, self._position
            self._wire.ask(lambda: self._page(position), lambda page: self._take(number, page), lambda: number == self._number)

    def _page(self, position: int) -> tuple[list[tuple[int, Entry]], int]:
        """Read in the broker."""
        page = self._log.read(max(position, self._log.start), FETCH_MAX)
        if page[1] == position:
            self._log.on_more(lambda: self._process.after(self._process.latency(), self._again))
            raise Refused(plain(KafkaError._PARTITION_EOF))
        return page

    def _again(self) -> None:
        self._is_asking = False
        self.ask()

    def _take(self, number: int, page: tuple[list[tuple[int, Entry]], int] | KafkaError) -> None:
        if number != self._number or isinstance(page, KafkaError):
            return
        self._number += 1  # an answer counts once
        records, self._position = page
        self.found.extend(self._log.record(offset) for offset, _ in records)
        self._again()
