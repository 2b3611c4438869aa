"""How a simulated consumer reads its partitions ahead, and what it gives up when it is told to read on elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from tests.sim.cluster import Cluster, Wire
from tests.sim.faults import Refused, plain
from tests.sim.fetched import Fetched, Fetching
from tests.sim.logs import Entry
from tests.sim.process import Process

FETCH_MAX = 8
AHEAD_MAX = 24


@dataclass(frozen=True, slots=True)
class _Page:
    """A fetch's answer."""

    found: list[tuple[int, Entry]]
    after: int
    at_end: bool


class Fetcher:
    """Belongs to one consumer. What librdkafka does here happens in the process without a thread of ours."""

    def __init__(self, process: Process, cluster: Cluster, wire: Wire) -> None:
        self._process = process
        self._cluster = cluster
        self._wire = wire
        self._fetching: dict[int, Fetching] = {}
        self._versions = 0
        self._queue: deque[Fetched] = deque()
        # A pause and what was seen of a log outlive the assignment.
        self._paused: set[int] = set()
        self._edges: dict[int, tuple[int, int]] = {}

    @property
    def has_messages(self) -> bool:
        """Whether something was fetched; it may be void."""
        return bool(self._queue)

    def assign(self, parts: Iterable[TopicPartition]) -> None:
        """Read these too."""
        for part in parts:
            strand = self._cluster.strand(part.topic, part.partition)
            if strand in self._fetching:
                raise KafkaException(plain(KafkaError._CONFLICT))
            self._fetch_from(strand, part.offset)

    def unassign(self, parts: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for part in parts:
            if self._fetching.pop(self._cluster.strand(part.topic, part.partition), None) is None:
                raise KafkaException(plain(KafkaError._INVALID_ARG))

    def clear(self) -> None:
        """Read nothing."""
        self._fetching.clear()

    def pause(self, partition: int) -> None:
        """Fetch no more of it; what is fetched ahead is void."""
        if partition in self._edges or partition in self._fetching:
            self._paused.add(partition)
        if (fetching := self._fetching.get(partition)) is not None and not fetching.is_refused:
            self._fetch_from(partition, fetching.position)

    def resume(self, partition: int) -> None:
        """Fetch again, from the first record that was not returned."""
        was_paused = partition in self._paused
        self._paused.discard(partition)
        if was_paused and (fetching := self._fetching.get(partition)) is not None and not fetching.is_refused:
            self._fetch_from(partition, fetching.position)

    def seek(self, partition: int, position: int) -> None:
        """Read on there. Raises KafkaException where it is not assigned, or was given up."""
        if partition not in self._fetching or self._fetching[partition].is_refused:
            raise KafkaException(plain(KafkaError._STATE))
        self._fetch_from(partition, position)

    def position(self, partition: int) -> int:
        """Where the application has come to."""
        return self._fetching[partition].position

    def edges(self, partition: int) -> tuple[int, int]:
        """Where the log began and ended when it was last asked."""
        return self._edges.get(partition, (OFFSET_INVALID, OFFSET_INVALID))

    def pop(self) -> Fetched | None:
        """Take the next message that counts."""
        while self._queue:
            message = self._queue.popleft()
            fetching = self._fetching.get(message.at)
            if fetching is None or fetching.version != message.version:
                continue
            if message.record is not None:
                fetching.position = message.place + 1
                fetching.ahead -= 1
                self._fetch(message.at, message.version)
            return message
        return None

    def _fetch_from(self, partition: int, position: int) -> None:
        self._versions += 1
        self._fetching[partition] = Fetching(position, self._versions, next=position)
        self._fetch(partition, self._versions)

    def _fetch(self, partition: int, version: int) -> None:
        fetching = self._fetching.get(partition)
        if fetching is None or fetching.version != version or partition in self._paused:
            return
        if fetching.asking or fetching.ahead >= AHEAD_MAX:
            return
        fetching.asking = True
        fetching.asked = number = fetching.asked + 1
        position, told_end = fetching.next, fetching.told_end

        def request() -> _Page | None:
            return self._page(partition, version, position, told_end)

        self._wire.ask(request, lambda result: self._fetched(partition, version, number, result), lambda: fetching.asked == number)

    def _page(self, partition: int, version: int, position: int, told_end: int) -> _Page | None:
        """Read in the broker; None: nothing new, and we are told when there is."""
        log = self._cluster.request_log(partition)
        if position == OFFSET_INVALID:
            committed = self._cluster.positions.stable([partition])[partition]
            position = OFFSET_INVALID if committed is None else committed[0]
        if not log.start <= position <= log.end:
            raise Refused(plain(KafkaError._AUTO_OFFSET_RESET))
        self._edges[partition] = log.start, log.end
        found, after = log.read(position, FETCH_MAX)
        at_end = after == log.stable_end
        if not found and (not at_end or told_end == after):
            log.on_more(lambda: self._process.after(self._process.latency(), self._fetch_again, partition, version))
            return None
        return _Page(found, after, at_end)

    def _fetch_again(self, partition: int, version: int) -> None:
        fetching = self._fetching.get(partition)
        if fetching is not None and fetching.version == version:
            fetching.asking = False
            self._fetch(partition, version)

    def _fetched(self, partition: int, version: int, number: int, result: _Page | KafkaError | None) -> None:
        fetching = self._fetching.get(partition)
        if fetching is None or (fetching.version, fetching.asked) != (version, number) or result is None:
            return
        if isinstance(result, KafkaError):
            if result.retriable():
                self._process.after(self._process.latency(), self._fetch_again, partition, version)
            else:
                fetching.is_refused = True
                self._queue.append(Fetched(partition, fetching.next, None, result.code(), version, self._cluster.place(partition)[0]))
            return
        fetching.next = result.after
        log = self._cluster.request_log(partition)
        for offset, _ in result.found:
            self._queue.append(Fetched(partition, offset, log.record(offset), 0, version, self._cluster.place(partition)[0]))
            fetching.ahead += 1
        if result.at_end and fetching.told_end != fetching.next:
            fetching.told_end = fetching.next
            self._queue.append(
                Fetched(partition, fetching.next, None, KafkaError._PARTITION_EOF, version, self._cluster.place(partition)[0])
            )
        fetching.asking = False
        self._fetch(partition, version)
