"""Publishing exactly once: replies, dead letters and positions in one transaction.

A transaction is built from one snapshot and holds only outcomes of assignments that live in it, since the broker checks that the member
is live, never that it owns the partition. It is begun when all that it will hold is in memory. Its fate is settled before anything else
is done: an unknown commit is not a failed commit, and a call is never made again because a transaction failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dispatcher.adapters.kafka.sink import Failed, Undelivered
from dispatcher.adapters.kafka.source import Committed
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import PAUSE_FIRST_S, Insistence, OwnersDied, stop_if_senseless
from dispatcher.worker.letters import Snapshot
from dispatcher.worker.ready import Ready, messages_of, placed

# A producer that is fenced well before its transaction could time out was replaced by another one of the same name. Some may be late
# echoes of our own renewal; so many in so short a time are another worker, which is fenced by us in turn.
EARLY_FENCES_MAX, EARLY_FENCES_S = 5, 60.0
# Which of two workers goes is for their group to say (`Namesakes`, `Seat`), and by then it has: else the other one would go as well.
EARLY_FENCES_FOR_S = 45.0
# Brokers close connections that nobody uses (10 minutes by default, what stands before them often earlier), and librdkafka needs 5 s to
# notice it while it sends offsets. A new producer takes some milliseconds.
IDLE_MAX_S = 180.0


class TransactionalSink(Protocol):
    """What is needed of `dispatcher.adapters.kafka.sink.Sink`, which the simulator replaces."""

    def open(self) -> None: ...
    def begin(self) -> None: ...
    def produce(self, messages: list[Message]) -> None: ...
    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def committed(self, partitions: list[int]) -> dict[int, Committed]: ...
    def limits(self) -> Mapping[str, int] | None: ...
    def take_places(self) -> dict[bytes, int]: ...
    @property
    def undelivered(self) -> list[Undelivered]: ...


class NotTaken(Exception):
    """The producer refused messages before it sent them: the transaction would commit without them."""


class ExactlyOnce:
    """One transaction after the other. Owned by the publisher's thread."""

    def __init__(
        self,
        settings: Settings,
        destinations: Destinations,
        frontier: Frontier,
        sink: TransactionalSink,
        insistence: Insistence,
        acknowledge: Callable[[list[Outcome]], None],
    ) -> None:
        self._settings = settings
        self._destinations = destinations
        self._frontier = frontier
        self._sink = sink
        self._steps = insistence
        self._acknowledge = acknowledge
        self._number = 0  # of the transaction; with the epoch it says which commit a position came from
        self._began = 0.0
        self._early_fences: list[float] = []

    def open(self) -> None:
        """Make the producer; whatever a predecessor of the same name left open is settled by that."""
        while True:
            self._began = self._steps.clock.now().mono
            try:
                self._steps.insist("open", self._sink.open)
            except Failed as failed:
                self._steps.observer.publish_failed("open", failed.name)
                stop_if_senseless(failed)
                self._count(failed)
                self._steps.back_off()
            else:
                return

    def publish(self, pending: list[Ready]) -> None:
        """Publish in order, until everything is committed or its assignment has ended."""
        if self._steps.clock.now().mono - self._began > IDLE_MAX_S:
            self.open()
        while pending:
            snapshot = self._steps.snapshot()
            pending = [ready for ready in pending if ready.owner in snapshot.live]
            if not pending:
                return
            if snapshot.group is None:
                self._await_newer(snapshot)
                continue
            try:
                self._transact(pending, snapshot)
            except OwnersDied:
                pending = self._abort(pending)
            except NotTaken:
                undelivered = self._sink.undelivered
                self._steps.observer.publish_failed("produce", undelivered[0].name)
                pending = self._retaken(pending, undelivered)
            except Failed as failed:
                pending = self._recover(failed, pending, snapshot)
            else:
                self._done(pending)
                return

    def _done(self, published: list[Ready]) -> None:
        """They are published, and committed."""
        self._steps.ease()
        self._frontier.acknowledge(published)
        self._acknowledge(placed(published, self._sink.take_places()))

    def _transact(self, pending: list[Ready], snapshot: Snapshot) -> None:
        """One transaction. Raises Failed with the transaction still to be ended; before the commit was asked for OwnersDied, NotTaken."""
        owners = frozenset(ready.owner for ready in pending)
        self._number += 1
        self._began = self._steps.clock.now().mono
        self._steps.insist("begin", self._sink.begin, owners)
        self._sink.produce(messages_of(pending))
        # A fatal error shows again in the next step, with what it means.
        if any(failure.kind != "fatal" for failure in self._sink.undelivered):
            raise NotTaken
        positions = {owner.strand: to for owner, to in self._frontier.positions(pending, self._number).items()}
        self._steps.insist("send_offsets", lambda: self._sink.send_offsets(positions, snapshot.group), owners)
        if not owners <= self._steps.snapshot().live:
            raise OwnersDied
        # From here on the commit may have happened whatever we are told: it is asked for again until its fate is known.
        self._steps.insist("commit", self._sink.commit)

    def _recover(self, failed: Failed, pending: list[Ready], snapshot: Snapshot) -> list[Ready]:
        """End the failed transaction; returns what is still to be published."""
        self._steps.observer.publish_failed("transaction", failed.name)
        stop_if_senseless(failed)
        if failed.then == "reopen":
            self._count(failed)
            return self._reconcile(pending)
        if failed.stale_group:
            left = self._abort(pending)
            self._await_newer(snapshot)
            return left
        return self._retaken(pending, self._sink.undelivered)

    def _retaken(self, pending: list[Ready], undelivered: list[Undelivered]) -> list[Ready]:
        """End the transaction; returns what is still to be published, in a form that the broker takes."""
        left = self._abort(pending)
        if left is pending:
            left = self._mended(pending, undelivered)
        if left == pending:
            # Nothing to mend on our side: the lanes stand here, visibly, until the broker takes it.
            self._steps.back_off()
        return left

    def _mended(self, pending: list[Ready], undelivered: list[Undelivered]) -> list[Ready]:
        # A topic that is gone lets all messages of the transaction time out: what the broker tells of the topics says whose it was.
        if self._destinations.learn(self._sink.limits()):
            # The producer's batches were made for what the topics took before.
            self.open()
            return [self._destinations.ready(ready.outcome) for ready in pending]
        return self._destinations.mended(pending, undelivered)

    def _abort(self, pending: list[Ready]) -> list[Ready]:
        """End the transaction in hand without a commit; returns what is still to be published."""
        try:
            self._steps.insist("abort", self._sink.abort)
        except Failed as failed:
            self._steps.observer.publish_failed("abort", failed.name)
            stop_if_senseless(failed)
            self._count(failed)
            return self._reconcile(pending)
        return pending

    def _count(self, failed: Failed) -> None:
        """Before another producer is made. BrokerError where that mends nothing: another worker has our name, or it fails all the time."""
        if not failed.fenced:
            self._steps.renew(failed.name)
        now = self._steps.clock.now().mono
        self._early_fences = [then for then in self._early_fences if now - then < EARLY_FENCES_S]
        if failed.fenced and now - self._began < self._settings.worker.transaction_timeout_s / 2:
            self._early_fences.append(now)
        if len(self._early_fences) < EARLY_FENCES_MAX:
            return
        if now - self._early_fences[0] < EARLY_FENCES_FOR_S:
            self._steps.back_off()
        else:
            hint = "give every worker its own worker.slot, or leave it out"
            raise BrokerError(f"another worker has the slot {self._settings.worker.slot!r}", hint)

    def _reconcile(self, pending: list[Ready]) -> list[Ready]:
        """Find out whether the transaction in hand went through.

        A new producer of the same name settles it one way or the other; then the committed metadata tells which.
        """
        self.open()
        found: dict[int, Committed] = {}
        partitions = sorted({ready.owner.strand for ready in pending})
        self._steps.insist_on("committed", lambda: found.update(self._sink.committed(partitions)))
        done = {ready.owner for ready in pending if self._went_through(ready.owner, found[ready.owner.strand])}
        if done:
            self._done([ready for ready in pending if ready.owner in done])
        return [ready for ready in pending if ready.owner not in done]

    def _went_through(self, owner: Owner, committed: Committed) -> bool:
        """Whether the committed position came from the transaction in hand: its metadata names epoch and number."""
        return self._frontier.tells(owner, self._number, committed.metadata)

    def _await_newer(self, snapshot: Snapshot) -> None:
        """Wait for newer group metadata: a join made ours stale, and the poller's next poll brings it."""
        while self._steps.snapshot().version <= snapshot.version:
            self._steps.tick()
            self._steps.clock.pause(PAUSE_FIRST_S)
        self._steps.back_off()
