"""A consumer as confluent-kafka gives it to the worker's `Source`, over the simulated cluster.

What librdkafka does by itself (heartbeats, fetching ahead) happens in the process without a thread of ours; what it calls (rebalance
callbacks) happens inside `poll`, `consume` and `close`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from dispatcher.core.record import Record
from tests.guarantees.events import HandedOver, Withheld
from tests.sim.cluster import PROMPT_S, REQUESTS, Cluster, Wire
from tests.sim.faults import Refused, plain, timed_out
from tests.sim.fetched import Fetched, Fetching
from tests.sim.group import Told
from tests.sim.logs import Entry
from tests.sim.process import Killed, Process

BEAT_S = 1.0
FETCH_MAX = 8
AHEAD_MAX = 24
# An idle poll returns late: what wakes a real thread every 50 ms is only worth a step here if there is something to do.
IDLE_POLL_S = 1.0
COMMIT_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """This member as it knows itself."""

    member: str
    epoch: int


@dataclass(slots=True)
class Callbacks:
    """What `subscribe` was given."""

    on_assign: Callable[[Any, list[TopicPartition]], None]
    on_revoke: Callable[[Any, list[TopicPartition]], None]
    on_lost: Callable[[Any, list[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A `TopicPartition` with an error, which Python cannot make."""

    partition: int
    offset: int
    error: KafkaError | None = None
    metadata: str | None = None


@dataclass(slots=True)
class _Answer:
    """Room for one answer."""

    content: Any = None
    is_there: bool = False
    is_wanted: bool = True
    partitions: list[int] = field(default_factory=list)

    def put(self, content: object) -> None:
        self.content, self.is_there = content, True


class Consumer:
    """Owned by the poller's thread. `has_mail` says whether that thread has other work, so that an idle poll ends."""

    def __init__(self, process: Process, cluster: Cluster, has_mail: Callable[[], bool]) -> None:
        self._process = process
        self._cluster = cluster
        self._wire = Wire(cluster, process)
        self._has_mail = has_mail
        self._eager = cluster.setup.protocol == "eager"
        self._callbacks: Callbacks | None = None
        self._joins = 0
        self._beats = self._asked = 0
        self._name = ""
        self._epoch = 0
        self._owned: frozenset[int] = frozenset()
        self._wanted: frozenset[int] | None = None
        self._must_revoke = False  # eager: before joining again
        self._is_lost = False
        self._is_joining = False
        self._in_callback = False
        self._closed = False
        self._news = False  # the group metadata changed
        self._fetching: dict[int, Fetching] = {}
        self._versions = 0
        self._queue: deque[Fetched] = deque()

    # --- as the worker calls it -----------------------------------------------------------------------------------------------------

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self._callbacks = Callbacks(**callbacks)
        self._join()

    def poll(self, timeout: float) -> Fetched | None:
        self._check()
        self._serve()
        if not self._queue:
            self._process.thread.wait(max(timeout, IDLE_POLL_S), self._has_reason)
            self._check()
            self._serve()
        self._news = False
        return self._pop()

    def consume(self, most: int, _: float) -> list[Fetched]:
        """Take what is there. A rebalance in between does not take back what was taken before it."""
        found: list[Fetched] = []
        while self._queue and len(found) < most:
            if self._process.chance.random() < 0.1:
                self._serve()
            message = self._pop()
            if message is not None:
                found.append(message)
        if found:
            self._serve()
        return found

    def incremental_assign(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            self._fetch_from(part.partition, part.offset)

    def assign(self, parts: Iterable[TopicPartition]) -> None:
        self._fetching.clear()
        self.incremental_assign(parts)

    def incremental_unassign(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            self._fetching.pop(part.partition, None)

    def unassign(self) -> None:
        self._fetching.clear()

    def pause(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            if (fetching := self._fetching.get(part.partition)) is not None:
                self._fetch_from(part.partition, fetching.position, paused=True)

    def resume(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            if (fetching := self._fetching.get(part.partition)) is not None and fetching.paused:
                self._fetch_from(part.partition, fetching.position)

    def seek(self, part: TopicPartition) -> None:
        fetching = self._fetching.get(part.partition)
        if fetching is None:
            raise KafkaException(plain(KafkaError._STATE))
        self._fetch_from(part.partition, part.offset, paused=fetching.paused)

    def committed(self, parts: Iterable[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Stable positions; asks again until they are, or the time is up."""
        self._check()
        box = _Answer(partitions=[part.partition for part in parts])
        self._ask_committed(box)
        self._process.thread.wait(timeout, lambda: box.is_there)
        box.is_wanted = False
        if not box.is_there:
            raise timed_out()
        found = [(n, *(to or (OFFSET_INVALID, None))) for n, to in box.content.items()]
        return [TopicPartition(REQUESTS, n, position, metadata=text) for n, position, text in found]

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> list[Part]:
        """Commit, and wait for the answer."""
        assert not asynchronous
        self._check()
        to = {part.partition: (part.offset, part.metadata or "") for part in offsets}
        name, epoch, box = self._name, self._epoch, _Answer()

        def request() -> None:
            self._cluster.check_commit(name, epoch, transactional=False)
            self._cluster.positions.commit(to)

        self._wire.ask(request, box.put, lambda: box.is_wanted)
        began = self._process.now
        self._process.thread.wait(COMMIT_WAIT_S, lambda: box.is_there)
        box.is_wanted = False
        error = box.content if isinstance(box.content, KafkaError) else None
        if self._process.now - began > PROMPT_S or (error is not None and error.retriable()):
            self._cluster.tell(Withheld(self._process.name))
        if not box.is_there:
            raise timed_out()
        if error is not None:
            raise KafkaException(error)
        return [Part(n, position) for n, (position, _) in to.items()]

    def get_watermark_offsets(self, part: TopicPartition, *, cached: bool) -> tuple[int, int]:
        del cached
        log = self._cluster.request_log(part.partition)
        return log.start, log.stable_end

    def consumer_group_metadata(self) -> GroupMetadata:
        if not self._epoch:
            raise RuntimeError("not a member")
        return GroupMetadata(self._name, self._epoch)

    def memberid(self) -> str:
        return self._name if self._epoch else ""

    def close(self) -> None:
        """Give back what is assigned, leave, and be gone."""
        self._check()
        if self._owned and self._callbacks is not None:
            self._in_callback = True
            callback = self._callbacks.on_lost if self._is_lost else self._callbacks.on_revoke
            callback(self, _parts(self._owned))
            self._in_callback = False
        self._closed = True
        name = self._name
        box = _Answer()
        self._wire.ask(lambda: self._cluster.group.leave(name), box.put)
        self._process.thread.wait(COMMIT_WAIT_S, lambda: box.is_there)

    # --- the group ------------------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if not self._name:
            self._joins += 1
            self._name = f"{self._process.name}-{self._joins}"
        self._is_joining = True
        self._wanted = None
        name, worker, epoch, owned = self._name, self._process.name, self._epoch, self._owned

        is_answered = False

        def answer(told: Told | None) -> None:
            nonlocal is_answered
            is_answered = True
            self._process.after(self._process.latency(), self._joined, name, told)

        self._asked += 1
        asked = self._asked

        def is_open() -> bool:
            return self._is_joining and asked == self._asked

        def request() -> None:
            # Sent again, it is still the same join: it does not begin another generation with what was owned before this one.
            if not is_answered:
                self._cluster.group.join(name, worker, epoch, owned, answer)

        self._wire.ask(request, self._join_failed, is_open)

    def _joined(self, name: str, told: Told | None) -> None:
        if name != self._name or self._closed or not self._is_joining:
            return
        self._is_joining = False
        if told is None:
            self._thrown_out()
        else:
            self._take(told)
            self._beat_in(BEAT_S)

    def _join_failed(self, result: object) -> None:
        if isinstance(result, KafkaError):
            self._is_joining = False
            self._thrown_out()

    def _beat_in(self, delay_s: float) -> None:
        """The next heartbeat; there is one at a time."""
        self._beats += 1
        self._process.after(delay_s, self._beat, self._name, self._beats)

    def _beat(self, name: str, number: int) -> None:
        if self._closed or name != self._name or self._is_joining or self._is_lost or number != self._beats:
            return
        owned = None if self._is_busy() else self._owned
        epoch = self._epoch
        self._wire.ask(lambda: self._cluster.group.beat(name, epoch, owned), lambda told: self._heard(name, told))

    def _heard(self, name: str, told: Told | KafkaError) -> None:
        if self._closed or name != self._name or self._is_joining:
            return
        if isinstance(told, KafkaError):
            self._thrown_out()
            return
        if not told.rejoin:
            self._take(told)
        elif not self._in_callback:
            if not (self._eager and self._owned):
                self._join()
                return
            self._must_revoke = True
        self._beat_in(BEAT_S * self._process.chance.uniform(0.5, 1.5))

    def _take(self, told: Told) -> None:
        if told.epoch != self._epoch:
            self._epoch = told.epoch
            self._news = True
        if told.partitions is not None:
            self._wanted = told.partitions

    def _thrown_out(self) -> None:
        """We are no member any more. Who owned something is told that it is lost, before we join again."""
        self._is_lost = True
        self._wanted, self._must_revoke = None, False
        if not self._owned:
            self._recover()

    def _recover(self) -> None:
        self._is_lost = False
        self._name, self._epoch = "", 0
        self._news = True
        self._join()

    # --- callbacks ------------------------------------------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        return self._in_callback or self._is_lost or self._must_revoke or (self._wanted is not None and self._wanted != self._owned)

    def _serve(self) -> None:
        """Make the callbacks that are due."""
        while not self._in_callback and not self._closed and self._is_busy():
            self._in_callback = True
            assert self._callbacks is not None
            if self._is_lost:
                if self._owned:
                    self._call(self._callbacks.on_lost, self._owned)
                self._owned = frozenset()
                self._recover()
            elif self._must_revoke:
                self._must_revoke = False
                self._call(self._callbacks.on_revoke, self._owned)
                self._owned = frozenset()
                self._after_revoke()
            else:
                self._reconcile(self._callbacks)
            self._in_callback = False

    def _reconcile(self, callbacks: Callbacks) -> None:
        wanted = self._wanted or frozenset()
        gone, added = self._owned - wanted, wanted - self._owned
        if gone:
            self._call(callbacks.on_revoke, gone)
            self._owned -= gone
            if self._is_lost:
                return
        if added:
            self._owned |= added
            self._call(callbacks.on_assign, added)
        if self._is_lost:
            return
        if self._cluster.setup.protocol == "consumer":
            self._beat_in(0)
        elif gone:
            self._after_revoke()

    def _after_revoke(self) -> None:
        """Classic: join again, so that others can have it."""
        self._wanted = None
        if not self._is_lost and not self._is_joining:
            self._join()

    def _call(self, callback: Callable[[Any, list[TopicPartition]], None], partitions: frozenset[int]) -> None:
        began = self._process.now
        callback(self, _parts(partitions))
        if not self._process.alive:
            raise Killed
        assert self._callbacks is not None
        if callback == self._callbacks.on_revoke and self._process.troubled_until < began:
            self._cluster.tell(HandedOver(self._process.name, self._process.now - began))

    # --- fetching -------------------------------------------------------------------------------------------------------------------

    def _fetch_from(self, partition: int, position: int, *, paused: bool = False) -> None:
        self._versions += 1
        self._fetching[partition] = Fetching(position, self._versions, next=position, paused=paused)
        self._fetch(partition, self._versions)

    def _fetch(self, partition: int, version: int) -> None:
        fetching = self._fetching.get(partition)
        if fetching is None or fetching.version != version or fetching.paused or fetching.asking or fetching.ahead >= AHEAD_MAX:
            return
        fetching.asking = True
        fetching.asked = number = fetching.asked + 1
        log, position, told_end = self._cluster.request_log(partition), fetching.next, fetching.told_end

        def request() -> tuple[list[tuple[int, Entry]], int, bool] | None:
            if position < log.start:
                raise Refused(plain(KafkaError._AUTO_OFFSET_RESET))
            found, after = log.read(position, FETCH_MAX)
            at_end = after == log.stable_end
            if not found and (not at_end or told_end == after):
                log.on_more(lambda: self._process.after(self._process.latency(), self._fetch_again, partition, version))
                return None
            return found, after, at_end

        self._wire.ask(request, lambda result: self._fetched(partition, version, number, result), lambda: fetching.asked == number)

    def _fetch_again(self, partition: int, version: int) -> None:
        fetching = self._fetching.get(partition)
        if fetching is not None and fetching.version == version:
            fetching.asking = False
            self._fetch(partition, version)

    def _fetched(
        self, partition: int, version: int, number: int, result: tuple[list[tuple[int, Entry]], int, bool] | KafkaError | None
    ) -> None:
        fetching = self._fetching.get(partition)
        if fetching is None or (fetching.version, fetching.asked) != (version, number) or result is None:
            return
        if isinstance(result, KafkaError):
            self._queue.append(Fetched(partition, fetching.next, None, result.code(), version))
            return
        found, fetching.next, at_end = result
        for offset, entry in found:
            assert isinstance(entry.content, Record)
            self._queue.append(Fetched(partition, offset, entry.content, 0, version))
            fetching.ahead += 1
        if at_end and fetching.told_end != fetching.next:
            fetching.told_end = fetching.next
            self._queue.append(Fetched(partition, fetching.next, None, KafkaError._PARTITION_EOF, version))
        fetching.asking = False
        self._fetch(partition, version)

    def _pop(self) -> Fetched | None:
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

    def _ask_committed(self, box: _Answer) -> None:
        def answered(result: object) -> None:
            if not isinstance(result, KafkaError):
                box.put(result)
            elif box.is_wanted:
                self._process.after(0.05, self._ask_committed, box)

        self._wire.ask(lambda: self._cluster.positions.stable(box.partitions), answered, lambda: box.is_wanted)

    def _has_reason(self) -> bool:
        return bool(self._queue) or self._news or self._has_mail() or (self._is_busy() and not self._in_callback)

    def _check(self) -> None:
        if not self._process.alive:
            raise Killed


def _parts(partitions: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(REQUESTS, n) for n in sorted(partitions)]
