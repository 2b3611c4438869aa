"""Moving the group's positions while it has no members: planning it, and doing it.

The position of a partition is committed as anybody may who is no member: Kafka refuses that once somebody has joined. What is parked at
the new position or behind is void from then on, and its entries end with it: their tombstones are written first, in a transaction that
is committed only when the position is. Killed in between, it leaves void entries, which the partition's next owner or a repeat removes.

Tombstones must not meet an entry that is made later: a worker may come, take up the request and park it again, while this process stands
still. So nobody may have owned the partition between the plan and the moment at which they stand in the log; the note beside the position
tells, since each owner raises its epoch before anything else. What somebody parks after that stands behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException

from dispatcher.adapters.kafka.admin import Cluster, TopicFacts, connect, facts_of
from dispatcher.adapters.kafka.faults import FENCED, Complaints, error_of
from dispatcher.adapters.kafka.group import commit, headways
from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader, no_topic
from dispatcher.adapters.kafka.starts import group_active
from dispatcher.adapters.kafka.transaction import Transaction
from dispatcher.client import parked
from dispatcher.core.internal.parked import tombstone
from dispatcher.core.messages import record
from dispatcher.core.operations.positions import START, Position, Span
from dispatcher.core.operations.seek import Effect, Move, Plan
from dispatcher.core.progress.headway import Headway
from dispatcher.errors import BrokerAway, CallFailed, ConfigError, RefusedError, WaitTimeout
from dispatcher.settings import Settings

# Offsets of one partition whose records are counted, some seconds of reading; beyond that their number is that of the offsets.
COUNTED_MAX = 200_000
KEYS_SHOWN = 5
# Tombstones that wait in the producer.
CHUNK_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Overview:
    """A plan, and what a person should know before doing it. `effects` by partition, also where there is nothing to do."""

    topic: str
    plan: Plan
    effects: Mapping[int, Effect]

    @property
    def again(self) -> int:
        """How many requests are executed again."""
        return sum(effect.again for effect in self.effects.values())

    @property
    def never(self) -> int:
        """How many requests are never executed."""
        return sum(effect.never for effect in self.effects.values())

    @property
    def exact(self) -> bool:
        """Whether these were counted, and are no upper bounds."""
        return all(effect.exact for effect in self.effects.values())

    @property
    def keys(self) -> Counter[bytes | None]:
        """How many are executed again, by key, as far as they were counted."""
        return sum((effect.keys for effect in self.effects.values()), Counter())


class Seeker:
    """Plans moves and does them. Belongs to one thread; `timeout_s` bounds how long it stays without Kafka.

    Errors: `BrokerError`; `ConfigError` for a partition or a place that does not exist; `RefusedError` where the group has members, or
    something is not as it was planned; `WaitTimeout` where an open transaction hides what stands there. After all of them the same plan
    may be done again.
    """

    def __init__(self, settings: Settings, *, timeout_s: float | None = None) -> None:
        self.topic = settings.topics.requests
        self._settings = settings
        self._timeout_s = timeout_s or TIMEOUT_S

    def plan(self, to: Position, partitions: Sequence[int] | None = None) -> Overview:
        """Say what moving partitions (all, unless some are named) to a position means. Nothing is written."""
        cluster, facts = self._topic()
        self._refuse_running(cluster)
        with self._reader() as reader:
            extents = reader.extents(Span(to), partitions)
        for number, extent in extents.items():
            if not extent.first <= extent.start <= extent.end:
                raise ConfigError(
                    f"offset {extent.start} is not in partition {number} of {self.topic}", f"it has {extent.first} to {extent.end}"
                )
        effects = self._effects(cluster, facts, {number: extent.start for number, extent in extents.items()})
        self._count(effects)
        moves = tuple(_move(number, effect) for number, effect in effects.items() if not effect.is_nothing)
        return Overview(self.topic, Plan(self._settings.worker.group, facts.topic_id, moves), effects)

    def execute(self, plan: Plan) -> int:
        """Move what a plan names, and read back that it is so; gives how many parked entries were ended by this call."""
        cluster, facts = self._topic()
        if (plan.group, plan.topic_id) != (self._settings.worker.group, facts.topic_id):
            raise RefusedError("the plan is for another group, or for another topic of this name", "plan it anew")
        self._refuse_running(cluster)
        complaints = Complaints(self._settings)
        try:
            # A seek that was killed, or stands still somewhere, is shut out by the next one of its group.
            name = f"{self._settings.worker.group}-seek"
            with Transaction(self._settings, name, complaints, self._timeout_s) as transaction:
                effects = self._effects(cluster, facts, {move.partition: move.to for move in plan.moves})
                ended = 0
                for move in plan.moves:
                    ended += self._move(cluster, facts, move, effects[move.partition], transaction)
        except KafkaException as failure:
            error = error_of(failure)
            if error is not None and error.code() in FENCED:
                raise RefusedError(
                    "another seek of this group has begun, or this one stood still for too long", "do the same plan again"
                ) from None
            raise complaints.fault(failure, f"moving the positions of group {plan.group}") from None
        self._read_back(cluster, facts, plan)
        return ended

    def _move(self, cluster: Cluster, facts: TopicFacts, move: Move, effect: Effect, transaction: Transaction) -> int:
        """Move one partition; where that was done before, end what it left void."""

        def refuse_changed(headway: Headway) -> None:
            if not move.is_open(headway) and not move.is_done(headway, facts.topic_id):
                raise RefusedError(
                    f"partition {move.partition} is not what it was when this was planned: somebody has worked on it, or moved it",
                    "plan it anew",
                )

        def nobody_came() -> None:
            refuse_changed(headways(cluster, self._settings, [move.partition], facts.topic_id)[move.partition])

        def moved() -> None:
            nobody_came()
            note = move.note(facts.topic_id)
            if not commit(cluster, self._settings, {move.partition: (move.to, "" if note is None else note.encode())}):
                raise self._running()

        refuse_changed(effect.headway)
        # Before the move: where the position passes them they would come to life.
        _write(transaction, self._ends(facts, move.partition, effect.void), nobody_came)
        if move.is_done(effect.headway, facts.topic_id):
            return len(effect.void)
        _write(transaction, self._ends(facts, move.partition, effect.dropped), moved)
        return len(effect.void) + len(effect.dropped)

    def _ends(self, facts: TopicFacts, partition: int, offsets: Iterable[int]) -> Iterator[record.Message]:
        return (tombstone(self._settings.topics.parked, facts.topic_id_text, partition, offset) for offset in offsets)

    def _effects(self, cluster: Cluster, facts: TopicFacts, to: Mapping[int, int]) -> dict[int, Effect]:
        """Find what stands where now, behind all that is still open."""
        if not to:
            return {}
        reached = self._stable(cluster, facts, to)
        entries = parked.index(self._settings, cluster, list(to), facts.topic_id_text, whole=True)
        with self._reader() as reader:
            extents = reader.extents(Span(START), list(to))
        return {n: Effect(reached[n], where, extents[n].first, extents[n].end, entries.get(n, {})) for n, where in to.items()}

    def _stable(self, cluster: Cluster, facts: TopicFacts, partitions: Iterable[int]) -> dict[int, Headway]:
        """Read the positions once no open transaction is about to commit others."""
        try:
            return headways(cluster, self._settings, partitions, facts.topic_id, stable=True)
        except BrokerAway:
            headways(cluster, self._settings, partitions, facts.topic_id)
            raise WaitTimeout(
                f"an open transaction is about to commit positions of group {self._settings.worker.group}",
                "it ends by itself, mostly within a minute; try the same again then",
            ) from None

    def _count(self, effects: Mapping[int, Effect]) -> None:
        """Count the records that each move is about, where they are not too many."""
        ranges: dict[int, tuple[int, int]] = {}
        for number, effect in effects.items():
            low, high = effect.reach
            if high - low > COUNTED_MAX:
                effect.estimate()
            elif low < high:
                ranges[number] = low, high
        with self._reader() as reader:
            for found in reader.read_ranges(ranges):
                effects[found.partition].take(found)

    def _read_back(self, cluster: Cluster, facts: TopicFacts, plan: Plan) -> None:
        """Make sure of it, in partitions that nobody has taken over meanwhile."""
        found = self._effects(cluster, facts, {move.partition: move.to for move in plan.moves})
        for move in plan.moves:
            effect = found[move.partition]
            note = effect.headway.note
            if note is not None and (move.epoch is None or note.epoch > move.epoch):
                continue
            if not move.is_done(effect.headway, facts.topic_id) or effect.void:
                raise CallFailed(f"partition {move.partition} was not moved as planned", "do the same plan again")

    def _topic(self) -> tuple[Cluster, TopicFacts]:
        cluster = connect(self._settings, self._timeout_s)
        facts = facts_of(cluster, [self.topic]).get(self.topic)
        if facts is None:
            raise no_topic(self.topic)
        return cluster, facts

    def _refuse_running(self, cluster: Cluster) -> None:
        if group_active(cluster, self._settings.worker.group):
            raise self._running()

    def _running(self) -> RefusedError:
        return RefusedError(
            f"group {self._settings.worker.group} has members, and only they may move its positions: nothing was done",
            "stop its workers first",
        )

    def _reader(self) -> LogReader:
        return LogReader(self._settings, self.topic, self._timeout_s)


def _write(transaction: Transaction, messages: Iterable[record.Message], then: Callable[[], None]) -> None:
    """Write records that count once `then` has returned, which is called when they stand in the log; if it raises they never do."""
    for number, message in enumerate(messages, 1):
        transaction.add(message)
        if number % CHUNK_RECORDS == 0:
            transaction.flush()
    if transaction.is_open:
        transaction.flush()
    then()
    transaction.commit()


def _move(number: int, effect: Effect) -> Move:
    headway = effect.headway
    note = headway.note
    return Move(number, headway.position, effect.to, *((None, None) if note is None else (note.epoch, note.transaction)))
