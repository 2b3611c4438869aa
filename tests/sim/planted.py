"""Faults planted into the worker: each is a mistake that others have made on this ground, or that would be easy to make here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from dispatcher.adapters.kafka.sink import Failed, Sink
from dispatcher.core.callees.breaker import Bearing, Breaker, State
from dispatcher.core.callees.verdict import Dead, Retry, Settled
from dispatcher.core.instant import Instant
from dispatcher.core.internal import control
from dispatcher.core.internal.control import Desired
from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry
from dispatcher.core.internal.tried import Noted
from dispatcher.core.lanes.buffer import Flow
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.lane_queue import LaneQueue, Waiting
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import Ambiguous, CallResult
from dispatcher.core.messages.envelope import Envelope, Refusal
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.usage import Usage
from dispatcher.core.progress.commit_note import CommitNote, Range
from dispatcher.core.progress.progress import Progress
from dispatcher.worker.at_least_once import AtLeastOnce
from dispatcher.worker.calls import Calls
from dispatcher.worker.early_ends import EarlyEnds
from dispatcher.worker.engine import Engine
from dispatcher.worker.exactly_once import ExactlyOnce
from dispatcher.worker.insistence import Insistence
from dispatcher.worker.joining import Joining
from dispatcher.worker.letters import Cut, Snapshot
from dispatcher.worker.poller import Poller
from dispatcher.worker.ready import Ready, placed
from tests.sim.cluster import DEAD_LETTERS, REPLIES
from tests.sim.plan import Fault
from tests.sim.worker import SimulatedSink


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault: how it gets in, which guarantee it breaks, settings of the worlds that it shows in, and what happens there besides."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    breaks: str
    fixed: tuple[tuple[str, Any], ...] = ()
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


def _position_of_what_was_only_seen(patch: pytest.MonkeyPatch) -> None:
    settle = Progress.settle

    def seen(self: Progress, offset: int) -> int:
        settle(self, offset)
        self.planned = self.delivered
        return self.planned

    patch.setattr(Progress, "settle", seen)


def _plus_one_over_a_hole(patch: pytest.MonkeyPatch) -> None:
    deliver = Progress.deliver

    def next_must_exist(self: Progress, offset: int) -> bool:
        is_new = deliver(self, offset)
        if is_new:
            self._open[offset] = offset
        return is_new

    patch.setattr(Progress, "deliver", next_must_exist)
    patch.setattr(Progress, "reach_end", lambda *_: None)


def written_outside_the_transaction(patch: pytest.MonkeyPatch, topic: str) -> None:
    """What belongs into that topic is there at once, whatever becomes of the transaction."""
    produce = Sink.produce

    def outside(self: SimulatedSink, messages: list[Message]) -> None:
        for message in messages:
            if message.topic == topic:
                log = self._cluster.logs[message.topic, message.partition]
                self._cluster.published(log, log.append(message), message)
        produce(self, [message for message in messages if message.topic != topic])

    patch.setattr(SimulatedSink, "produce", outside)


def _booked_before_the_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    def publish(self: AtLeastOnce, pending: list[Ready]) -> None:
        while pending := self._living(pending):
            self._number += 1
            refused = self._commit(self._frontier.positions(pending, self._number))
            done = [ready for ready in pending if ready.owner not in refused]
            self._frontier.acknowledge(done)
            self._deliver(done)
            self._acknowledge(placed(done, self._sink.take_places()))
            pending = [ready for ready in pending if ready.owner in refused]
            self._steps.back_off()

    patch.setattr(AtLeastOnce, "publish", publish)


def _second_call_in_flight(patch: pytest.MonkeyPatch) -> None:
    start = Engine._start

    def hedged(self: Engine, partition: Partition, lane: Lane, step: Start) -> None:
        start(self, partition, lane, step)
        self._loop.call_later(0.3, hedge, self, lane, step)

    def hedge(self: Engine, lane: Lane, step: Start) -> None:
        if lane in self._calls._tasks:
            self._loop.create_task(ignored(self, step))

    async def ignored(self: Engine, step: Start) -> None:
        with suppress(ValueError):
            await self._calls._http.call(step.call, lambda: None)

    patch.setattr(Engine, "_start", hedged)


class _Everything(frozenset[Owner]):
    """Contains whatever is asked for."""

    def __contains__(self, _: object) -> bool:
        return True

    def __ge__(self, _: object) -> bool:
        return True


def _revoked_outcome_with_fresh_metadata(patch: pytest.MonkeyPatch) -> None:
    init = Insistence.__init__

    def careless(self: Insistence, snapshot: Callable[[], Snapshot], *rest: Any) -> None:
        init(self, lambda: replace(snapshot(), live=_Everything()), *rest)

    patch.setattr(Insistence, "__init__", careless)
    patch.setattr(Poller, "_await_publisher", lambda *_: True)


def _unknown_commit_published_again(patch: pytest.MonkeyPatch) -> None:
    insist = Insistence.insist

    def impatient(self: Insistence, what: str, step: Callable[[], object], owners: frozenset[Owner] = frozenset()) -> None:
        if what != "commit":
            insist(self, what, step, owners)
            return
        try:
            step()
        except Failed as failed:
            failed.then = "reopen"
            raise

    patch.setattr(Insistence, "insist", impatient)
    patch.setattr(ExactlyOnce, "_went_through", lambda *_: False)


def _result_of_a_dead_assignment(patch: pytest.MonkeyPatch) -> None:
    def abandon(self: Engine, owners: Iterable[Owner]) -> None:
        for owner in owners:
            if (partition := self.partitions.pop(owner.partition, None)) is not None:
                self._turns.forget(owner)
                self._close(partition)
            self._poller.put(Cut(owner))

    async def call(self: Calls, partition: Partition, lane: Lane, start: Start, _decided: float) -> None:
        result: CallResult
        try:
            result = await self._http.call(start.call, lambda: None)
        except ValueError:
            result = Ambiguous("internal", "")
        self._tasks.pop(lane, None)
        self._caller.answered(partition, lane, start, result, 0.0)

    def answered(self: Engine, partition: Partition, lane: Lane, _start: Start, result: CallResult, _took_s: float) -> None:
        self._turns.give_back(partition)
        now = self.partitions.get(partition.owner.partition)
        lane_now = None if now is None else now.lane_of(lane.key)
        if now is not None and lane_now is not None and lane_now.is_calling:
            lane_now.answered(result, self._clock.now(), self._chance())
            self.advance(now, lane_now)
            self._tell_drained(now)

    patch.setattr(Engine, "abandon", abandon)
    patch.setattr(Engine, "answered", answered)
    patch.setattr(Calls, "_call", call)


def _unbounded_drain(patch: pytest.MonkeyPatch) -> None:
    init = Poller.__init__

    def patient(self: Poller, *arguments: Any) -> None:
        init(self, *arguments)
        self.drain_s = float("inf")

    patch.setattr(Poller, "__init__", patient)


def _letter_without_confirmation(patch: pytest.MonkeyPatch) -> None:
    deliver, commit = AtLeastOnce._deliver, AtLeastOnce._commit

    def without_letters(self: AtLeastOnce, todo: list[Ready]) -> None:
        self.__dict__["letters"] = [message for ready in todo for message in ready.messages if message.topic == DEAD_LETTERS]
        deliver(self, [Ready(ready.outcome, tuple(m for m in ready.messages if m.topic != DEAD_LETTERS)) for ready in todo])

    def letters_after(self: AtLeastOnce, positions: Any) -> Any:
        refused = commit(self, positions)
        self._sink.produce(self.__dict__.pop("letters", []))
        return refused

    patch.setattr(AtLeastOnce, "_deliver", without_letters)
    patch.setattr(AtLeastOnce, "_commit", letters_after)


def _left_paused(patch: pytest.MonkeyPatch) -> None:
    flow = Partition.flow

    def only_pauses(self: Partition) -> Flow | None:
        told = flow(self)
        return None if told is Flow.RESUME else told

    patch.setattr(Partition, "flow", only_pauses)


def _retry_that_enqueues_again(patch: pytest.MonkeyPatch) -> None:
    answered = Lane.answered

    def to_the_end(self: Lane, result: CallResult, instant: Instant, chance: float, used: Usage | None) -> Retry | Settled | Dead:
        head = self._head
        verdict = answered(self, result, instant, chance, used)
        if isinstance(verdict, Retry) and head is not None and self._queue.front:
            self._queue.front.append(head.waiting)
            self._head = None
        return verdict

    patch.setattr(Lane, "answered", to_the_end)


def _call_beside_its_cut_predecessor(patch: pytest.MonkeyPatch) -> None:
    def is_cut(self: Calls, lane: Lane) -> bool:
        del self
        del lane
        return False

    patch.setattr(Calls, "is_cut", is_cut)


def _given_up_at_once(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: Poller, owners: frozenset[Owner]) -> None:
        for owner in owners:
            self._live.pop(owner.partition, None)
        self._refresh()
        self._post(self._engine.abandon, owners)

    patch.setattr(Poller, "_give_up", at_once)


def _given_up_at_once_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    give_up, on_lost = Poller._give_up, Poller.on_lost

    def lost(self: Poller, partitions: list[int]) -> None:
        self.__dict__["once_lost"] = True
        on_lost(self, partitions)

    def at_once(self: Poller, owners: frozenset[Owner]) -> None:
        if not self.__dict__.get("once_lost"):
            give_up(self, owners)
            return
        for owner in owners:
            self._live.pop(owner.partition, None)
        self._refresh()
        self._post(self._engine.abandon, owners)

    patch.setattr(Poller, "on_lost", lost)
    patch.setattr(Poller, "_give_up", at_once)


def _given_up_while_calling(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Poller, "_await_cut", lambda *_: None)


def _epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.worker.joining.next_epoch", lambda note, wall_s: int(wall_s) if note is None else note.epoch)


def _unstable_position(patch: pytest.MonkeyPatch) -> None:
    from tests.sim.positions import Positions

    def any_position(self: Positions, partitions: Iterable[int]) -> dict[int, tuple[int, str] | None]:
        return {n: (self._now[n].position, self._now[n].text) for n in partitions}

    patch.setattr(Positions, "stable", any_position)


def _map_not_read(patch: pytest.MonkeyPatch) -> None:
    assigned = Engine.assigned

    def from_the_position(self: Engine, owner: Owner, position: int, settled: object = ()) -> None:
        del settled
        assigned(self, owner, position)

    patch.setattr(Engine, "assigned", from_the_position)


def _map_lost_where_the_epoch_rises(patch: pytest.MonkeyPatch) -> None:
    next_note = Joining._next_note

    def without(self: Joining, partition: int, joining: Any) -> CommitNote:
        return replace(next_note(self, partition, joining), settled=())

    patch.setattr(Joining, "_next_note", without)


def _map_of_what_is_only_queued(patch: pytest.MonkeyPatch) -> None:
    settle = Partition._settle

    def up_to_the_last(self: Partition, outcome: Outcome, now: float) -> Outcome:
        settled = settle(self, outcome, now)
        return settled if settled.span is None else replace(settled, span=(settled.span[0], self.progress.delivered))

    patch.setattr(Partition, "_settle", up_to_the_last)


def _tombstone_beside_its_reply(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.worker.at_least_once.parted", lambda pending: (pending, []))


def _parked_for_ever(patch: pytest.MonkeyPatch) -> None:
    settle = Partition._settle

    def leave(self: Partition, outcome: Outcome, now: float) -> Outcome:
        return replace(settle(self, outcome, now), extra=outcome.extra)

    patch.setattr(Partition, "_settle", leave)


def _what_cannot_be_parked_is_overtaken(patch: pytest.MonkeyPatch) -> None:
    move_back = LaneQueue.move_back

    def places_first(self: LaneQueue, back: list[Waiting | Entry]) -> None:
        move_back(self, sorted(back, key=lambda one: isinstance(one, Waiting)))

    patch.setattr(LaneQueue, "move_back", places_first)


def _parked_to_nowhere(patch: pytest.MonkeyPatch) -> None:
    settle = Partition._settle

    def drop(self: Partition, outcome: Outcome, now: float) -> Outcome:
        return settle(self, replace(outcome, extra=()) if outcome.parks else outcome, now)

    patch.setattr(Partition, "_settle", drop)
    patch.setattr("dispatcher.worker.exactly_once.placed", lambda pending, _: [ready.outcome for ready in pending])


def _skipped_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.worker.early_ends.tombstone", lambda _, topic: control.tombstone("key:nobody", topic))


def _cancelled_only_where_it_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Desired, "to_end", lambda *_: [])


def _cancel_that_waits_for_its_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "cancel", lambda *_: None)


def _called_after_its_deadline(patch: pytest.MonkeyPatch) -> None:
    decode = Decoder.decode

    def timeless(self: Decoder, record: Record) -> Request | tuple[Envelope, Refusal]:
        decoded = decode(self, record)
        return replace(decoded, deadline=None) if isinstance(decoded, Request) else decoded

    patch.setattr(Decoder, "decode", timeless)
    patch.setattr(EarlyEnds, "watch", lambda *_: None)


def _called_before_it_is_restored(patch: pytest.MonkeyPatch) -> None:
    assigned = Engine.assigned

    def known(self: Engine, owner: Owner, position: int, settled: Sequence[Range] = ()) -> None:
        assigned(self, owner, position, settled)
        self.partitions[owner.partition].is_restored = True

    patch.setattr(Engine, "assigned", known)


def _newer_parked_before_older_in_the_log(patch: pytest.MonkeyPatch) -> None:
    restore = Partition.restore

    def at_once(self: Partition, entries: Iterable[Entry], instant: Instant, journal: Journal | None, noted: Noted) -> list[Outcome]:
        void = restore(self, entries, instant, journal, noted)
        self.admit(1 << 62)
        return void

    patch.setattr(Partition, "restore", at_once)


def _pause_of_a_partition_unheard(patch: pytest.MonkeyPatch) -> None:
    def of_keys_alone(self: Desired, key: bytes | None, partition: int) -> str:
        del partition
        return self._keys.get(key or b"", "")

    patch.setattr(Desired, "why_held", of_keys_alone)


def _halt_that_waits_to_be_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Desired, "halt", lambda *_: None)


def _breaker_that_lets_all_probe(patch: pytest.MonkeyPatch) -> None:
    def free_at(self: Breaker, now: float) -> float | None:
        return max(now, self.reopens_at) if self.state is State.OPEN else now

    patch.setattr(Breaker, "free_at", free_at)


def _probe_that_closes(patch: pytest.MonkeyPatch) -> None:
    end = Breaker.end

    def lenient(self: Breaker, generation: int, bearing: Bearing, now: float) -> bool:
        is_spared = end(self, generation, bearing, now)
        if self.state is State.OPEN and self.opens > 1:
            self._turn(State.CLOSED)
        return is_spared

    patch.setattr(Breaker, "end", lenient)


ONCE, TWICE, HASTY = (("publishing", "exactly_once"),), (("publishing", "at_least_once"),), (("drain_s", 0.1),)
BY_KEY = (("ordering", "key"),)
DEATHS = tuple(Fault(2.0 + 2 * n, "kill", n % 2, 1) for n in range(6))
# One worker is thrown out; later others come and go.
LOST_THEN_VISITED = (Fault(1.5, "expire", 0, 1), *(Fault(3 + 1.5 * n, "terminate" if n % 2 else "join", 10 * (n % 2), 1) for n in range(8)))
PLANTED = (
    Planted("position moved by what was only seen", _position_of_what_was_only_seen, "CommitAfterAcknowledgement"),
    Planted("plus one over a hole", _plus_one_over_a_hole, "NothingStuck"),
    Planted("reply outside the transaction", partial(written_outside_the_transaction, topic=REPLIES), "OneOutcome", ONCE),
    Planted("outcome booked before the acknowledgement", _booked_before_the_acknowledgement, "CommitAfterAcknowledgement", TWICE),
    Planted("second call in flight", _second_call_in_flight, "OneAtATime"),
    Planted("outcome of a revoked partition with fresh metadata", _revoked_outcome_with_fresh_metadata, "OneOutcome", ONCE),
    Planted("unknown commit published again", _unknown_commit_published_again, "OneOutcome", ONCE),
    Planted("late result of a dead assignment accepted", _result_of_a_dead_assignment, "OneAtATime"),
    Planted("unbounded drain", _unbounded_drain, "NothingStuck"),
    Planted("dead letter without confirmation", _letter_without_confirmation, "CommitAfterAcknowledgement", TWICE),
    Planted("partition left paused", _left_paused, "NothingStuck"),
    Planted("retry that enqueues again", _retry_that_enqueues_again, "Order"),
    Planted("given up at once", _given_up_at_once, "OneAtATime", HASTY),
    Planted("given up at once by whoever once lost something", _given_up_at_once_after_a_loss, "OneAtATime", HASTY, LOST_THEN_VISITED),
    Planted("given up while it is called", _given_up_while_calling, "OneAtATime", HASTY),
    Planted("call beside its cut predecessor", _call_beside_its_cut_predecessor, "OneAtATime", HASTY, LOST_THEN_VISITED),
    Planted("epoch not raised", _epoch_not_raised, "Order"),
    Planted("unstable position taken", _unstable_position, "OneOutcome", ONCE),
    Planted("map of what is only queued", _map_of_what_is_only_queued, "CommitAfterAcknowledgement", BY_KEY),
    Planted("map not read", _map_not_read, "NothingAgain", BY_KEY),
    Planted("map lost where the epoch rises", _map_lost_where_the_epoch_rises, "NothingAgain", BY_KEY),
    Planted("called before it is restored", _called_before_it_is_restored, "Order", BY_KEY),
    Planted("newer parked before older in the log", _newer_parked_before_older_in_the_log, "Order", BY_KEY, DEATHS),
    Planted("what cannot be parked is overtaken", _what_cannot_be_parked_is_overtaken, "Order", BY_KEY),
    Planted("parked to nowhere", _parked_to_nowhere, "CommitAfterAcknowledgement", BY_KEY),
    Planted("parked for ever", _parked_for_ever, "NothingLeft", BY_KEY),
    Planted("tombstone beside its reply", _tombstone_beside_its_reply, "CommitAfterAcknowledgement", BY_KEY + TWICE),
    Planted("skipped for ever", _skipped_for_ever, "NothingLeft"),
    Planted("cancelled only where it is known", _cancelled_only_where_it_is_known, "HeldStartsNothing"),
    Planted("cancel that waits for its call", _cancel_that_waits_for_its_call, "CancelCutsOff"),
    Planted("called after its deadline", _called_after_its_deadline, "NothingLate"),
    Planted("pause of a partition unheard", _pause_of_a_partition_unheard, "HeldStartsNothing"),
    Planted("breaker that lets all probe", _breaker_that_lets_all_probe, "OneProbe", BY_KEY),
    Planted("probe that closes whatever it meets", _probe_that_closes, "OneProbe", BY_KEY),
    Planted("halt that waits to be read", _halt_that_waits_to_be_read, "HeldStartsNothing"),
)
