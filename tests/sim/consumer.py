"""A consumer as confluent-kafka gives it to the worker's `Source`, over the simulated cluster.

What librdkafka does by itself (heartbeats, fetching ahead) happens in the process without a thread of ours; what it calls (rebalance
callbacks) happens inside `poll`, `consume` and `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from tests.guarantees.events import HandedOver, Withheld
from tests.sim.cluster import PROMPT_S, Cluster, Wire
from tests.sim.faults import plain
from tests.sim.fetched import Fetched
from tests.sim.fetcher import Fetcher
from tests.sim.group import Told
from tests.sim.process import Killed, Process

BEAT_S = 1.0
# An idle poll returns late: what wakes a real thread every 50 ms is only worth a step here if there is something to do.
IDLE_POLL_S = 1.0
COMMIT_WAIT_S = 5.0
# What a client that is no member gives as its epoch, or generation.
NO_EPOCH = -1


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

    topic: str
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
        # Under KIP-848 the client names itself, once; a classic member is named by the coordinator whenever it comes in.
        self._names_itself = cluster.setup.protocol == "consumer"
        self._name = f"{process.name}-0" if self._names_itself else ""
        self._epoch = 0
        self._owned: frozenset[int] = frozenset()
        self._wanted: frozenset[int] | None = None
        self._is_assigned = False  # a generation has told us our share, which may be none, or what we have
        self._must_revoke = False  # eager: before joining again
        self._is_lost = False
        self._is_joining = False
        self._in_callback = False
        self._closed = False
        self._news = False  # the group metadata changed
        self._fetcher = Fetcher(process, cluster, self._wire)

    # --- as the worker calls it -----------------------------------------------------------------------------------------------------

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self._callbacks = Callbacks(**callbacks)
        self._enter()

    def poll(self, timeout: float) -> Fetched | None:
        self._check()
        self._serve()
        if not self._fetcher.has_messages:
            self._process.thread.wait(max(timeout, IDLE_POLL_S), self._has_reason)
            self._check()
            self._serve()
        self._news = False
        return self._fetcher.pop()

    def consume(self, most: int, timeout: float) -> list[Fetched]:
        """Take what is there. A rebalance in between does not take back what was taken before it.

        librdkafka takes it back where it comes upon the rebalance in the same call, and cannot for what `poll` has returned.
        """
        found: list[Fetched] = []
        if timeout > 0 and not self._fetcher.has_messages:
            self._process.thread.wait(timeout, self._has_reason)
            self._check()
            self._serve()
        while self._fetcher.has_messages and len(found) < most:
            if self._process.chance.random() < 0.1:
                self._serve()
            message = self._fetcher.pop()
            if message is not None:
                found.append(message)
        if found:
            self._serve()
        return found

    def incremental_assign(self, parts: Iterable[TopicPartition]) -> None:
        self._fetcher.assign(parts)

    def assign(self, parts: Iterable[TopicPartition]) -> None:
        self._fetcher.clear()
        self._fetcher.assign(parts)

    def incremental_unassign(self, parts: Iterable[TopicPartition]) -> None:
        self._fetcher.unassign(parts)

    def unassign(self) -> None:
        self._fetcher.clear()

    def pause(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            self._fetcher.pause(self._strand(part))

    def resume(self, parts: Iterable[TopicPartition]) -> None:
        for part in parts:
            self._fetcher.resume(self._strand(part))

    def seek(self, part: TopicPartition) -> None:
        self._fetcher.seek(self._strand(part), part.offset)

    def committed(self, parts: Iterable[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Stable positions; asks again until they are, or the time is up."""
        self._check()
        box = _Answer(partitions=[self._strand(part) for part in parts])
        self._ask_committed(box)
        self._process.thread.wait(timeout, lambda: box.is_there)
        box.is_wanted = False
        if not box.is_there:
            raise KafkaException(plain(KafkaError._TIMED_OUT))
        found = [(n, *(to or (OFFSET_INVALID, ""))) for n, to in box.content.items()]
        return [TopicPartition(*self._cluster.place(n), position, metadata=text) for n, position, text in found]

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> list[Part]:
        """Commit, and wait for the answer."""
        assert not asynchronous
        self._check()
        to = {self._strand(part): (part.offset, part.metadata or "") for part in offsets}
        name, epoch, box = self.memberid(), self._epoch or NO_EPOCH, _Answer()

        def request() -> dict[int, KafkaError]:
            refused = self._cluster.check_commit(name, epoch, to, transactional=False)
            self._cluster.positions.commit({n: position for n, position in to.items() if n not in refused})
            return refused

        self._wire.ask(request, box.put, lambda: box.is_wanted)
        began = self._process.now
        self._process.thread.wait(COMMIT_WAIT_S, lambda: box.is_there)
        box.is_wanted = False
        error = box.content if isinstance(box.content, KafkaError) else None
        if self._process.now - began > PROMPT_S or (error is not None and error.retriable()):
            self._cluster.tell(Withheld(self._process.name))
        if not box.is_there:
            raise KafkaException(plain(KafkaError._TIMED_OUT))
        if error is not None:
            raise KafkaException(error)
        refused: dict[int, KafkaError] = box.content
        if len(refused) == len(to):
            raise KafkaException(next(iter(refused.values())))
        return [Part(*self._cluster.place(n), position, refused.get(n)) for n, (position, _) in to.items()]

    def get_watermark_offsets(self, part: TopicPartition, *, cached: bool = False, timeout: float = 0.0) -> tuple[int, int]:
        """Where the log begins and ends, as it was seen last, or as the broker says now."""
        if cached:
            return self._fetcher.edges(self._strand(part))
        self._check()
        log, box = self._cluster.request_log(self._strand(part)), _Answer()
        self._wire.ask(lambda: (log.start, log.end), box.put, lambda: box.is_wanted)
        self._process.thread.wait(timeout, lambda: box.is_there)
        box.is_wanted = False
        if not box.is_there:
            raise KafkaException(plain(KafkaError._TIMED_OUT))
        low, high = box.content
        return low, high

    def position(self, parts: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(part.topic, part.partition, self._fetcher.position(self._strand(part))) for part in parts]

    def consumer_group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self.memberid(), self._epoch or NO_EPOCH)

    def memberid(self) -> str:
        return self._name if self._epoch or self._names_itself else ""

    def close(self) -> None:
        """Give back what is assigned, leave, and be gone."""
        self._check()
        if self._owned and self._callbacks is not None:
            self._in_callback = True
            callback = self._callbacks.on_lost if self._is_lost else self._callbacks.on_revoke
            callback(self, self._parts(self._owned))
            self._in_callback = False
        self._closed = True
        name = self._name
        box = _Answer()
        self._wire.ask(lambda: self._cluster.group.leave(name), box.put)
        self._process.thread.wait(COMMIT_WAIT_S, lambda: box.is_there)

    # --- the group ------------------------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Begin a new membership."""
        self._joins += 1
        if not self._names_itself:
            self._name = f"{self._process.name}-{self._joins}"
        self._join()

    def _join(self) -> None:
        self._is_joining = True
        self._wanted, self._is_assigned = None, False
        name, worker, epoch, owned = self._name, self._process.name, self._epoch, self._owned
        joins = self._joins
        is_answered = False

        def answer(told: Told | None) -> None:
            nonlocal is_answered
            is_answered = True
            self._process.after(self._process.latency(), self._joined, joins, told)

        self._asked += 1
        asked = self._asked

        def is_open() -> bool:
            return self._is_joining and asked == self._asked

        def request() -> None:
            # Sent again, it is still the same join: it does not begin another generation with what was owned before this one.
            if not is_answered:
                self._cluster.group.join(name, worker, epoch, owned, answer)

        self._wire.ask(request, self._join_failed, is_open)

    def _joined(self, joins: int, told: Told | None) -> None:
        if joins != self._joins or self._closed or not self._is_joining:
            return
        if told is not None and told.partitions is None and not told.rejoin:
            self._take(told)  # in, and the share is yet to come
            return
        self._is_joining = False
        if told is None:
            self._thrown_out()
        elif told.rejoin:
            self._join()
        else:
            self._is_assigned = not self._names_itself
            self._take(told)
            self._beat_in(BEAT_S)

    def _join_failed(self, result: object) -> None:
        if isinstance(result, KafkaError):
            self._is_joining = False
            self._thrown_out()

    def _beat_in(self, delay_s: float) -> None:
        """The next heartbeat; there is one at a time."""
        self._beats += 1
        self._process.after(delay_s, self._beat, self._joins, self._beats)

    def _beat(self, joins: int, number: int) -> None:
        if self._closed or joins != self._joins or self._is_joining or self._is_lost or number != self._beats:
            return
        owned = None if self._is_busy() else self._owned
        name, epoch = self._name, self._epoch

        def request() -> Told:
            return self._cluster.group.beat(name, epoch, owned)

        self._wire.ask(request, lambda told: self._heard(joins, told), lambda: joins == self._joins)

    def _heard(self, joins: int, told: Told | KafkaError) -> None:
        if self._closed or joins != self._joins or self._is_joining:
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
        self._wanted, self._must_revoke, self._is_assigned = None, False, False
        if not self._owned:
            self._recover()

    def _recover(self) -> None:
        self._cluster.has_heard(self._process.name)
        self._is_lost = False
        self._epoch = 0
        self._news = True
        self._enter()

    # --- callbacks ------------------------------------------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        if self._in_callback or self._is_lost or self._must_revoke or self._is_assigned:
            return True
        return self._wanted is not None and self._wanted != self._owned

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
        self._is_assigned = False
        gone, added = self._owned - wanted, wanted - self._owned
        if gone:
            self._call(callbacks.on_revoke, gone)
            self._owned -= gone
            if self._is_lost:
                return
        # Told also where nothing came: after what went, and in each classic generation.
        self._owned |= added
        self._call(callbacks.on_assign, added)
        if self._is_lost:
            return
        if self._names_itself:
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
        callback(self, self._parts(partitions))
        if not self._process.alive:
            raise Killed
        assert self._callbacks is not None
        if callback == self._callbacks.on_revoke and self._process.troubled_until < began:
            self._cluster.tell(HandedOver(self._process.name, self._process.now - began))

    def _ask_committed(self, box: _Answer) -> None:
        def answered(result: object) -> None:
            if not isinstance(result, KafkaError):
                box.put(result)
            elif box.is_wanted:
                self._process.after(0.05, self._ask_committed, box)

        self._wire.ask(lambda: self._cluster.positions.stable(box.partitions), answered, lambda: box.is_wanted)

    def _has_reason(self) -> bool:
        return self._fetcher.has_messages or self._news or self._has_mail() or (self._is_busy() and not self._in_callback)

    def _check(self) -> None:
        if not self._process.alive:
            raise Killed

    def _strand(self, part: TopicPartition) -> int:
        return self._cluster.strand(part.topic, part.partition)

    def _parts(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(*self._cluster.place(n)) for n in sorted(partitions)]
