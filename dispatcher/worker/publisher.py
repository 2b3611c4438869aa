"""The publisher: owns the producer. Outcomes go out in the order they came, and with them the positions they allow.

Exactly once: whatever is ready goes into one transaction with its positions (group commit, paced by our own timer). A transaction is
built from one snapshot and holds only outcomes of assignments that live in it, since the broker checks that the member is live, never
that it owns the partition. Its fate is settled before anything else is done: an unknown commit is not a failed commit.

At least once: everything is acknowledged first, then the poller commits the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from dispatcher.adapters.kafka.sink import Failed, Undelivered
from dispatcher.adapters.kafka.source import Committed
from dispatcher.core.commit_note import CommitNote, decode
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.record import Message
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Barrier, Command, Commit, Post, Snapshot, Stop

# Outcomes in one publication: enough for every rate that one process reaches, few enough to fit the producer's queue.
BATCH_MAX = 2000
BATCH_MAX_BYTES = 32 * 1024 * 1024
# An idle publisher looks up this often, so that its tick shows that it lives.
IDLE_S = 0.5
# Between tries against a broker that is away or busy.
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 1.0
# A producer that is fenced well before its transaction could time out was replaced by another one with the same name.
EARLY_FENCES_MAX = 2


class Sink(Protocol):
    """What the publisher needs of `dispatcher.adapters.kafka.sink.Sink`, which the simulator replaces."""

    def open(self) -> None: ...
    def begin(self) -> None: ...
    def produce(self, messages: list[Message]) -> None: ...
    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def forget(self) -> None: ...
    def flush(self) -> bool: ...
    def committed(self, partitions: list[int]) -> dict[int, Committed]: ...
    def close(self) -> None: ...
    @property
    def undelivered(self) -> list[Undelivered]: ...


class EngineDoor(Protocol):
    """The engine's method that the publisher posts."""

    def acknowledged(self, outcomes: list[Outcome]) -> None: ...


class Observer(Protocol):
    """Hears about publications that did not go through."""

    def publish_failed(self, what: str, name: str) -> None: ...


class Abandoned(Exception):
    """The worker is ending at once; what is not published is left to the next owner."""


class _OwnersDied(Exception):
    """Assignments named in the transaction in hand have ended, and its commit has not been asked for yet."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the publisher must know of the topics: `limits` are bytes of one record per topic."""

    topic_id: bytes
    limits: Mapping[str, int]


class Publisher:
    """Runs in its own thread (`run`). `tick` is read by others; `is_abandoned` is set by them to end it at once."""

    def __init__(
        self,
        settings: Settings,
        facts: Facts,
        sink: Sink,
        engine: EngineDoor,
        post: Post,
        inbox: SimpleQueue[object],
        poller: SimpleQueue[Command],
        snapshot: Callable[[], Snapshot],
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._sink = sink
        self._engine = engine
        self._post = post
        self._inbox = inbox
        self._poller = poller
        self._snapshot = snapshot
        self._observer = observer
        self._clock = clock
        self._interval_s = settings.worker.commit_interval_ms / 1000
        self._exactly_once = settings.worker.publishing == "exactly_once"
        self._next_start = 0.0
        self._number = 0  # of the transaction; with the epoch it says which commit a position came from
        self._began = 0.0
        self._early_fences = 0
        self._pause_s = PAUSE_FIRST_S
        self._stopped = False
        self.is_open = False
        self.is_abandoned = False
        self.tick = clock.now().mono

    def run(self) -> None:
        """Publish until told to stop. Raises BrokerError where going on is senseless."""
        try:
            self._open_sink()
            self.is_open = True
            while not self._stopped:
                self.step()
        except Abandoned:
            pass
        finally:
            self._sink.close()

    def step(self) -> None:
        """One publication of whatever is ready."""
        self._tick()
        first = self._clock.take(self._inbox, IDLE_S)
        if first is None:
            return
        outcomes, barrier = self._gather(first)
        self._next_start = self._clock.now().mono + self._interval_s
        if outcomes:
            self._publish(outcomes)
        if barrier is not None:
            barrier.answer.put("past")

    def _gather(self, first: object) -> tuple[list[Outcome], Barrier | None]:
        """Everything that is ready when the next publication may start; a barrier or a stop ends the gathering."""
        outcomes: list[Outcome] = []
        size = 0
        item: object | None = first
        while item is not None:
            if isinstance(item, Barrier):
                return outcomes, item
            if isinstance(item, Stop):
                self._stopped = True
                return outcomes, None
            assert isinstance(item, Outcome)
            outcomes.append(item)
            size += item.size_bytes
            if len(outcomes) >= BATCH_MAX or size >= BATCH_MAX_BYTES:
                break
            try:
                item = self._inbox.get_nowait()
            except Empty:
                item = self._clock.take(self._inbox, max(0.0, self._next_start - self._clock.now().mono))
        return outcomes, None

    def _publish(self, outcomes: list[Outcome]) -> None:
        pending = [outcome.fitted(self._facts.limits) for outcome in outcomes]
        if self._exactly_once:
            self._publish_exactly_once(pending)
        else:
            self._publish_at_least_once(pending)

    # --- exactly once ---------------------------------------------------------------------------------------------------------------

    def _publish_exactly_once(self, pending: list[Outcome]) -> None:
        while pending:
            snapshot = self._snapshot()
            pending = [outcome for outcome in pending if outcome.owner in snapshot.live]
            if not pending:
                return
            try:
                self._transact(pending, snapshot)
            except _OwnersDied:
                self._abort(pending)
            except Failed as failed:
                pending = self._recover(failed, pending, snapshot)
            else:
                self._pause_s, self._early_fences = PAUSE_FIRST_S, 0
                self._post(self._engine.acknowledged, pending)
                return

    def _transact(self, pending: list[Outcome], snapshot: Snapshot) -> None:
        """One transaction. Raises Failed with the transaction still to be ended, or _OwnersDied before the commit was asked for."""
        owners = frozenset(outcome.owner for outcome in pending)
        self._number += 1
        self._began = self._clock.now().mono
        self._insist(self._sink.begin, owners)
        self._sink.produce([message for outcome in pending for message in outcome.messages()])
        positions = self._positions(pending)
        self._insist(lambda: self._sink.send_offsets(positions, snapshot.group), owners)
        if not owners <= self._snapshot().live:
            raise _OwnersDied
        # From here on the commit may have happened whatever we are told: it is asked for again until its fate is known.
        self._insist(self._sink.commit)

    def _positions(self, pending: list[Outcome]) -> dict[int, tuple[int, str]]:
        """Per partition the position of its last outcome: they are in order."""
        return {
            outcome.owner.partition: (
                outcome.position,
                CommitNote(self._facts.topic_id, outcome.owner.epoch, self._number).encode(),
            )
            for outcome in pending
        }

    def _recover(self, failed: Failed, pending: list[Outcome], snapshot: Snapshot) -> list[Outcome]:
        """End the failed transaction; returns what is still to be published. A call is never made again because of this."""
        self._observer.publish_failed("transaction", failed.name)
        self._stop_if_senseless(failed)
        if failed.then == "reopen":
            self._count_fence(failed)
            return self._reconcile(pending)
        undelivered = self._sink.undelivered
        pending = self._abort(pending)
        if failed.stale_group:
            self._await_newer(snapshot)
        elif undelivered:
            return self._replaced(pending, undelivered)
        else:
            self._back_off()
        return pending

    def _abort(self, pending: list[Outcome]) -> list[Outcome]:
        try:
            self._insist(self._sink.abort)
        except Failed as failed:
            self._observer.publish_failed("abort", failed.name)
            return self._reconcile(pending)
        return pending

    def _count_fence(self, failed: Failed) -> None:
        early = self._clock.now().mono - self._began < self._settings.worker.transaction_timeout_s / 2
        self._early_fences = self._early_fences + 1 if failed.fenced and early else 0
        if self._early_fences >= EARLY_FENCES_MAX:
            raise BrokerError(
                f"another worker uses the slot {self._settings.worker.slot!r}", "give every worker its own worker.slot, or leave it out"
            )

    def _reconcile(self, pending: list[Outcome]) -> list[Outcome]:
        """A new producer of the same name settles the old one's transaction; then what is committed tells if it went through."""
        self._open_sink()
        found = self._committed(sorted({outcome.owner.partition for outcome in pending}))
        done = [outcome for outcome in pending if self._went_through(outcome.owner, found[outcome.owner.partition])]
        if done:
            self._post(self._engine.acknowledged, done)
        return [outcome for outcome in pending if outcome not in done]

    def _open_sink(self) -> None:
        while True:
            try:
                self._insist(self._sink.open)
            except Failed as failed:
                self._observer.publish_failed("open", failed.name)
                self._stop_if_senseless(failed)
                self._began = self._clock.now().mono
                self._count_fence(failed)
                self._back_off()
            else:
                return

    def _committed(self, partitions: list[int]) -> dict[int, Committed]:
        while True:
            self._tick()
            try:
                return self._sink.committed(partitions)
            except Failed as failed:
                self._observer.publish_failed("committed", failed.name)
                self._stop_if_senseless(failed)
                self._back_off()

    def _stop_if_senseless(self, failed: Failed) -> None:
        if failed.then == "stop":
            raise BrokerError(f"Kafka refuses this worker's transactions: {failed.name}", "see `dispatcher config show` and the ACLs")

    def _went_through(self, owner: Owner, committed: Committed) -> bool:
        """Whether the transaction in hand is the one that the committed position came from: it names its epoch and number."""
        note = decode(committed.metadata, self._facts.topic_id)
        return note is not None and note.epoch == owner.epoch and note.transaction == self._number

    def _await_newer(self, snapshot: Snapshot) -> None:
        """A join made the group metadata stale: the poller's next poll brings newer."""
        while self._snapshot().version <= snapshot.version:
            self._tick()
            self._clock.pause(PAUSE_FIRST_S)
        self._back_off()

    # --- at least once --------------------------------------------------------------------------------------------------------------

    def _publish_at_least_once(self, pending: list[Outcome]) -> None:
        pending = self._delivered(self._living(pending))
        while pending:
            self._number += 1
            refused = self._commit(self._positions(pending))
            done = [outcome for outcome in pending if outcome.owner.partition not in refused]
            self._post(self._engine.acknowledged, done)
            self._pause_s = PAUSE_FIRST_S if done else self._pause_s
            pending = self._living([outcome for outcome in pending if outcome.owner.partition in refused])
            if pending:
                self._observer.publish_failed("commit", next(iter(refused.values())))
                self._back_off()

    def _living(self, pending: list[Outcome]) -> list[Outcome]:
        live = self._snapshot().live
        return [outcome for outcome in pending if outcome.owner in live]

    def _delivered(self, pending: list[Outcome]) -> list[Outcome]:
        """Produce until every message is acknowledged; returns the outcomes as they were published."""
        todo = pending
        while todo:
            self._sink.forget()
            self._sink.produce([message for outcome in todo for message in outcome.messages()])
            while not self._sink.flush():
                self._tick()
            undelivered = self._sink.undelivered
            if not undelivered:
                break
            self._observer.publish_failed("produce", undelivered[0].name)
            if any(failure.kind == "fatal" for failure in undelivered):
                self._open_sink()
            failed = {_index_of(todo, failure.index) for failure in undelivered}
            replaced = self._replaced(todo, undelivered)
            again = {id(todo[i].record): replaced[i] for i in failed}
            pending = [again.get(id(outcome.record), outcome) for outcome in pending]
            todo = self._living([replaced[i] for i in sorted(failed)])
        return pending

    def _commit(self, positions: dict[int, tuple[int, str]]) -> dict[int, str]:
        """Have the poller commit; returns the partitions whose commit was refused, with the error's name."""
        command = Commit(positions)
        self._poller.put(command)
        answer = None
        while answer is None:
            self._tick()
            answer = self._clock.take(command.answer, IDLE_S)
        return {n: error for n in positions if (error := answer.get(n, "no answer")) is not None}

    # --- both -----------------------------------------------------------------------------------------------------------------------

    def _replaced(self, pending: list[Outcome], undelivered: list[Undelivered]) -> list[Outcome]:
        """`pending` with what the broker cannot take in a form that it can.

        For size one at a time: a whole batch of messages fails with its largest.
        """
        result = list(pending)
        sizes = [(message.size_bytes, message.topic) for outcome in pending for message in outcome.messages()]
        large = [failure for failure in undelivered if failure.kind == "too_large"]
        if large:
            worst = max(large, key=lambda failure: sizes[failure.index])
            i = _index_of(pending, worst.index)
            result[i] = pending[i].cut(sizes[worst.index][1])
        topics = self._settings.topics
        for failure in undelivered:
            i = _index_of(pending, failure.index)
            if failure.kind == "unwritable" and sizes[failure.index][1] not in {topics.replies, topics.dead_letters}:
                result[i] = pending[i].readdressed(topics.replies, topics.dead_letters, self._settings.worker.group)
        if result == pending:
            # Nothing to mend on our side: the lane stands here, visibly, until the broker takes it.
            self._back_off()
        return result

    def _insist(self, step: Callable[[], object], owners: frozenset[Owner] = frozenset()) -> None:
        """Do `step`, again and again while its fate is unknown or the broker is away; stops if one of `owners` dies meanwhile."""
        while True:
            self._tick()
            try:
                step()
            except Failed as failed:
                if failed.then != "again":
                    raise
                self._observer.publish_failed("step", failed.name)
                if not owners <= self._snapshot().live:
                    raise _OwnersDied from None
                self._back_off()
            else:
                return

    def _back_off(self) -> None:
        self._tick()
        self._clock.pause(self._pause_s)
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * 2)

    def _tick(self) -> None:
        self.tick = self._clock.now().mono
        if self.is_abandoned:
            raise Abandoned


def _index_of(outcomes: list[Outcome], message: int) -> int:
    """Which outcome message number `message` belongs to."""
    seen = 0
    for i, outcome in enumerate(outcomes):
        seen += len(outcome.messages())
        if message < seen:
            return i
    raise AssertionError(f"no message {message}")
