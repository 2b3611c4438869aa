"""The request topics as one worker sees them: records, ends of partitions, and the three rebalance events.

Only the poller thread may call any of this: confluent-kafka holds a lock while it polls, and a call from another thread may wait for
seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from dispatcher.adapters.kafka.clients import LOG
from dispatcher.adapters.kafka.faults import is_fatal
from dispatcher.adapters.kafka.membership import Held
from dispatcher.adapters.kafka.offsets import watermarks
from dispatcher.adapters.kafka.places import Places
from dispatcher.adapters.kafka.records import record_of
from dispatcher.adapters.kafka.seat import AGAIN_S, Seat
from dispatcher.core.messages.record import Record
from dispatcher.errors import BrokerError
from dispatcher.settings import MIB

# Records taken per poll: enough to amortise the hand-over, few enough that a rebalance is answered soon. Records are taken by so many at a
# time, and no more once they are so many bytes: what the client has fetched ahead is as large as its compressed batches unfold.
BATCH_MAX, PORTION_MAX = 500, 125
BATCH_MAX_BYTES = 4 * MIB
# What a record is taken for as long as none was seen.
_SIZE_FIRST_BYTES = 64 * 1024
_STOP_CODES = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._FATAL,
    }
)


class Duties(Protocol):
    """What the owner of a source must do when partitions come and go. Called inside `poll` and `close`."""

    def on_assigned(self, partitions: list[int]) -> None:
        """Partitions came; `Source.assign` must be called for all of them."""

    def on_revoked(self, partitions: list[int]) -> None:
        """Partitions are being taken away; they stay ours until this returns."""

    def on_lost(self, partitions: list[int]) -> None:
        """Partitions were lost: somebody else may own them already."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed position (the next offset to read), None where there is none, and the text beside it."""

    position: int | None
    metadata: str | None


@dataclass(slots=True)
class Batch:
    """What one poll brought. `ends` are (partition, offset): the log ends there for now; `refused`: it does not hold that position.

    `is_all`: nothing more was fetched ahead when the poll ended, so that a pause throws nothing away.
    """

    records: list[Record] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)
    is_all: bool = True


# A message, and the record or the error in it.
_Taken = tuple[Message, Record | KafkaError]


class Unsettled(Exception):
    """The broker cannot say yet: a transaction of a former owner is still open, or the coordinator is away."""


class Source:
    """A consumer of one topic, or of several. `incremental` says how the group's protocol wants assignments to be changed.

    `seat`: its name in the group. Partitions are known by their strands, in the order of `topics`.
    """

    def __init__(self, consumer: Consumer, *topics: str, incremental: bool, seat: Seat | None = None) -> None:
        self._consumer = consumer
        self._places = Places(topics)
        self._incremental = incremental
        self._seat = seat
        self._sits_again_at: float | None = None  # monotonic seconds; where the seat was not free
        self._is_broken = False  # the client has failed for good
        self._duties: Duties | None = None
        # For whoever compares it with what the group says, in another thread; None while a change is under way, or none is told.
        self.held: Held | None = None
        self._changes = 0
        self._stale: int | None = None  # what the group had told when it was found that something has been missed since
        self._is_rejoining = False
        # Where partitions were assigned, and which came or went during the poll in hand.
        self._starts: dict[int, int | None] = {}
        self._touched: set[int] = set()
        self._unsought: dict[int, int] = {}  # where reading has to go on, and could not be told to the client yet
        self._next: dict[int, int] = {}  # the offset that will be read next
        self._paused: set[int] = set()
        self._size_bytes = _SIZE_FIRST_BYTES  # of a record, as the last ones were on average

    def subscribe(self, duties: Duties) -> None:
        """Join the group."""
        self._duties = duties
        self._join()

    def _join(self) -> None:
        self._consumer.subscribe(list(self._places.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._told()

    def rejoin(self, changes: int) -> None:
        """Have the group told that we leave, and join anew, unless there were other changes than so many. For any thread."""
        self._stale = changes

    def _rejoin(self) -> None:
        """Leave, which is answered by a revocation of all; `poll` joins again when that is done."""
        if self._stale == self._changes:
            self.held, self._is_rejoining = None, True
            self._consumer.unsubscribe()
        self._stale = None

    def _told(self) -> None:
        """What was told is done."""
        self._changes += 1
        self.held = Held(self.member_id(), self._changes, frozenset(self._starts))

    def poll(self, timeout_s: float) -> Batch:
        """Wait up to `timeout_s` for a first record, then take what is already there. Raises BrokerError where going on is senseless."""
        if self._sits_again_at is not None:
            self._sit_again(self._sits_again_at, timeout_s)
            return Batch()
        if self._stale is not None:
            self._rejoin()
        if self._is_rejoining and not self._starts:
            self._is_rejoining = False
            self._join()
        for partition, position in list(self._unsought.items()):
            del self._unsought[partition]
            self.seek(partition, position)
        first = self._consumer.poll(timeout_s)
        if first is None:
            return Batch()
        self._touched.clear()
        taken, is_all = self._taken(first)
        return self._sorted(taken, is_all=is_all)

    def _taken(self, first: Message) -> tuple[list[_Taken], bool]:
        """What is there already, up to the bounds of a poll, and whether that was all. A portion may turn out larger than was foreseen."""
        taken, left = [_read(first)], BATCH_MAX_BYTES
        left -= (size := _size_bytes(taken))
        self._size_bytes = max(self._size_bytes, size)
        while (most := min(PORTION_MAX, BATCH_MAX - len(taken), left // self._size_bytes)) > 0:
            portion = [_read(message) for message in self._consumer.consume(most, 0)]
            taken += portion
            if portion:
                left -= (size := _size_bytes(portion))
                self._size_bytes = max(1, size // len(portion))
            if len(portion) < most:
                return taken, True
        return taken, False

    def _sit_again(self, due: float, timeout_s: float) -> None:
        """Ask for the seat again, once it is time, with another client: the one that was refused is of no use any more."""
        now = time.monotonic()
        if now < due:
            time.sleep(min(timeout_s, due - now))
            return
        assert self._seat is not None
        self._sits_again_at = None
        self._consumer, self._is_broken = self._seat.made(), False
        self._join()

    def _sorted(self, taken: Iterable[_Taken], *, is_all: bool = True) -> Batch:
        batch = Batch(is_all=is_all)
        stale: set[int] = set()
        for message, found in taken:
            partition = self._strand(message)
            if not isinstance(found, Record) and is_fatal(found):
                # Of no partition, though it names one (0): it is told once, and must not pass for a record of an assignment that is over.
                self._fault(found)
                continue
            if partition in self._unsought:
                continue
            if partition in self._touched:
                # One call can return records of an assignment that ended inside it: none of them may count.
                stale.add(partition)
            elif isinstance(found, Record):
                batch.records.append(found)
                assert partition is not None
                self._next[partition] = found.next_offset
            elif found.code() == KafkaError._PARTITION_EOF and partition is not None:
                batch.ends.append((partition, message.offset() or 0))
            elif found.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
                # The client fetches nothing more of it until it is told where.
                batch.refused.append((partition, message.offset() or 0))
            else:
                self._fault(found)
        for partition in stale:
            start = self._starts.get(partition)
            if start is not None:
                self.seek(partition, start)
        return batch

    def _fault(self, error: KafkaError) -> None:
        if not is_fatal(error) and error.code() not in _STOP_CODES:
            LOG.warning("consumer: %s", error.str())
            return
        self._is_broken = is_fatal(error)
        if self._seat is not None and self._seat.is_awaited(error, is_taken=bool(self._starts)):
            self._sits_again_at = time.monotonic() + AGAIN_S
            return
        raise BrokerError(f"Kafka ended this worker's membership: {error.name()}", "see the log above; start the worker again")

    def assign(self, positions: Mapping[int, int | None]) -> None:
        """Take the partitions, each from its position; one whose position is not known yet is paused until `seek` and `resume`."""
        self._starts.update(positions)
        self._next.update({n: position or 0 for n, position in positions.items()})
        parts = [self._places.part(n, position or 0) for n, position in positions.items()]
        if self._incremental:
            self._consumer.incremental_assign(parts)
        else:
            self._consumer.assign(parts)
        for n, position in positions.items():
            if position is None:
                self.pause(n)

    def unassign(self, partitions: Iterable[int]) -> None:
        """Give the partitions back; the group hears of it when the callback returns."""
        parts = {n: self._places.part(n) for n in partitions}
        for n, part in parts.items():
            self._starts.pop(n, None)
            self._next.pop(n, None)
            if n in self._paused:
                # librdkafka keeps a pause beyond the assignment: if the partition came back, nobody would know that it stands.
                self._paused.discard(n)
                self._consumer.resume([part])
        if self._incremental:
            self._consumer.incremental_unassign(list(parts.values()))
        else:
            self._consumer.unassign()

    def pause(self, partition: int) -> None:
        """Fetch no more of it. Throws away what is fetched ahead, and the answer to a fetch that is under way: it is all fetched again."""
        self._paused.add(partition)
        self._consumer.pause([self._places.part(partition)])

    def resume(self, partition: int) -> None:
        """Fetch again, from the first record that was not returned.

        A fetcher that has nothing to do looks for partitions that were resumed once a second: the first one is told to seek as well, where
        it stands, which wakes it. One that is fetching would throw away its answer for that.
        """
        is_idle = self._starts.keys() <= self._paused
        self._paused.discard(partition)
        self._consumer.resume([self._places.part(partition)])
        if is_idle and partition in self._next and partition not in self._unsought:
            self.seek(partition, self._next[partition])

    def seek(self, partition: int, position: int) -> None:
        """Read on from `position`. Where the client is not ready for it, that is done before the next poll returns anything of it."""
        self._next[partition] = position
        try:
            self._consumer.seek(self._places.part(partition, position))
        except KafkaException as failure:
            # A fetcher that is just starting or stopping refuses (_STATE, _PREV_IN_PROGRESS).
            LOG.debug("seek: %s", failure.args[0].str())
            self._unsought[partition] = position

    def restart(self, partition: int, position: int) -> None:
        """Read on from `position` a partition that the client has given up, since the log did not hold where it was: it refuses to seek.

        It is assigned anew, which the group does not hear of: it is asked what we have in the next heartbeat, and by then we have it.
        """
        self._unsought.pop(partition, None)
        self._starts[partition] = self._next[partition] = position
        part = self._places.part(partition, position)
        if self._incremental:
            self._consumer.incremental_unassign([part])
            self._consumer.incremental_assign([part])
        else:
            others = [self._places.part(n, self._next[n]) for n in self._starts if n != partition]
            self._consumer.assign([part, *others])

    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]:
        """Stable committed positions: no transaction that could still move them is open. Raises Unsettled until that is so."""
        try:
            found = self._consumer.committed([self._places.part(n) for n in partitions], timeout=timeout_s)
        except KafkaException as failure:
            raise Unsettled(failure.args[0].str()) from None
        if any(part.error for part in found):
            raise Unsettled(next(part.error.str() for part in found if part.error))
        return committed_in(self._places, found)

    def commit(self, positions: Mapping[int, tuple[int, str]]) -> dict[int, str | None]:
        """Commit position and metadata per partition; returns per partition None or the error's name. Waits for the answer."""
        offsets = [self._places.committing(n, position, text) for n, (position, text) in positions.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            return dict.fromkeys(positions, failure.args[0].name())
        return {self._places.strand(part.topic, part.partition): None if part.error is None else part.error.name() for part in done or []}

    def log_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where the log of each partition ends, as the last fetch saw it; no request is made."""
        ends: dict[int, int] = {}
        for n in partitions:
            _, high = self._consumer.get_watermark_offsets(self._places.part(n), cached=True)
            if high >= 0:
                ends[n] = high
        return ends

    def edges(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """Ask where the log of a partition begins and ends. Raises Unsettled where its leader does not say in time."""
        try:
            return watermarks(self._consumer, self._places.place(partition), timeout_s)
        except KafkaException as failure:
            raise Unsettled(failure.args[0].str()) from None

    def group(self) -> object:
        """This member's group metadata, to be sent with transactional offsets; None while it is no member.

        The broker takes such offsets unchecked from whoever names neither member nor generation (older producers could not), and a
        member that was thrown out has neither until it joins again. So the id is asked for after the metadata was taken.
        """
        try:
            metadata = self._consumer.consumer_group_metadata()
        except (KafkaException, RuntimeError):
            return None
        return metadata if self.member_id() else None

    def member_id(self) -> str:
        """This client's id in the group. A classic client gets it by joining; a KIP-848 one makes it up, and has it from the start."""
        return self._consumer.memberid() or ""

    def close(self) -> None:
        """Leave the group; the duties are called for what is still assigned. One that has a seat may keep it: see `Seat`.

        A client that has failed for good cannot leave: librdkafka 2.16 does not come back from closing a classic one.
        """
        if self._is_broken:
            return
        if self._seat is not None and self._seat.leaves:
            self._seat.vacate(self._consumer)
        self._consumer.close()

    def _strand(self, message: Message) -> int | None:
        partition = message.partition()
        if partition is None or len(self._places.topics) == 1:
            return partition
        topic = message.topic()
        # A client's own failure names none.
        return self._places.strand(topic, partition) if topic in self._places.topics else partition

    def _assigned(self, _: Consumer, parts: list[TopicPartition]) -> None:
        assert self._duties is not None
        self.held = None
        strands = [self._places.strand(part.topic, part.partition) for part in parts]
        self._touched.update(strands)
        self._duties.on_assigned(strands)
        if self._seat is not None:
            self._seat.taken()
        self._told()

    def _revoked(self, _: Consumer, parts: list[TopicPartition]) -> None:
        assert self._duties is not None
        self.held = None
        strands = [self._places.strand(part.topic, part.partition) for part in parts]
        self._touched.update(strands)
        self._duties.on_revoked(strands)
        self._told()

    def _lost(self, _: Consumer, parts: list[TopicPartition]) -> None:
        assert self._duties is not None
        self.held = None
        strands = [self._places.strand(part.topic, part.partition) for part in parts]
        self._touched.update(strands)
        self._duties.on_lost(strands)
        self._told()


def committed_in(places: Places, parts: Iterable[TopicPartition]) -> dict[int, Committed]:
    """What a coordinator has answered, by strand."""
    found = {places.strand(part.topic, part.partition): part for part in parts}
    return {n: Committed(None if part.offset == OFFSET_INVALID else part.offset, part.metadata) for n, part in found.items()}


def _read(message: Message) -> _Taken:
    error = message.error()
    return message, record_of(message) if error is None else error


def _size_bytes(taken: Iterable[_Taken]) -> int:
    return sum(found.size_bytes for _, found in taken if isinstance(found, Record))
