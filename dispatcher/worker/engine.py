"""The engine: owns every partition and lane, on the event loop. It asks lanes what to do, does it, and tells them how it went.

Nothing here awaits but the call itself: `advance` runs a lane until it waits for something, and whatever it waits for (an answer, a
time, a slot, a record, a person) calls `advance` again. A lane whose next step is a call takes a slot then, and not before; lanes that
find none stand in line (`Turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue

from dispatcher.core.callees.billing import Billing
from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.line import LIMIT
from dispatcher.core.internal.control import Desired, Kind, parse_target
from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry, Parked
from dispatcher.core.internal.tried import NOTHING_NOTED, Noted
from dispatcher.core.lanes.adaptive_timeout import AdaptiveTimeouts
from dispatcher.core.lanes.floor import Share
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room, room_of
from dispatcher.core.lanes.steps import Closed, Fetch, Gated, Held, Idle, Intend, Ready, Recall, Settle, Start, Step, Tell, Wait
from dispatcher.core.messages.call import CallResult, Withheld
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.request import Decoder
from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.gap import Gap
from dispatcher.worker.admission import Admission
from dispatcher.worker.calls import Calls
from dispatcher.worker.class_turns import ClassTurns
from dispatcher.worker.clock import TURN_S, Clock
from dispatcher.worker.early_ends import EarlyEnds
from dispatcher.worker.exchange import Exchange
from dispatcher.worker.lane_timers import LaneTimers
from dispatcher.worker.letters import Began, Command, Cut, Drained, Forget, Restore
from dispatcher.worker.letters import Fetch as FetchParked
from dispatcher.worker.letters import Recall as RecallReply
from dispatcher.worker.protocols import HttpEngine, Observer
from dispatcher.worker.sharing import Sharing
from dispatcher.worker.tending import Tending
from dispatcher.worker.turns import Turns


class Engine:
    """`partitions` holds one object per live assignment, by strand, `desired` what people want of lanes. All methods run on the event loop.

    `decoders`: one for each request topic, in their order; `shares`: what each has of a lane, where they are classes.
    """

    def __init__(
        self,
        decoders: Sequence[Decoder],
        http: HttpEngine,
        poller: SimpleQueue[Command],
        publisher: SimpleQueue[object],
        restorer: SimpleQueue[object],
        observer: Observer,
        clock: Clock,
        chance: Callable[[], float],
        room: Room | None = None,
        billing: Billing | None = None,
        shares: Sequence[Share] = (),
    ) -> None:
        self._decoders = decoders
        settings = self._settings = decoders[0].settings
        self._poller = poller
        self._publisher = publisher
        self._restorer = restorer
        self._observer = observer
        self._clock = clock
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._room = room or room_of(settings)
        self._tending = Tending(self, self._room, settings.worker, poller, observer, clock)
        self._turns = Turns(settings.worker.inflight_max, settings.worker.partition_inflight_max)
        self._gate: Gate[Lane] = Gate(settings.upstreams, settings.worker.wait_max_s, settings.limits)
        self._admission = Admission(self, self._gate, self._turns, self._of, observer, clock)
        self._classes = ClassTurns(self, shares, self._of)
        self._calls = Calls(self, http, observer, clock)
        self._billing = billing or Billing(settings)
        self._timeouts = AdaptiveTimeouts(settings.upstreams)
        self._intents: dict[Lane, tuple[Partition, str]] = {}  # who has a slot while its intent, to call that upstream, is on its way
        self._timers = LaneTimers(self, clock)
        self.partitions: dict[int, Partition] = {}
        self.gaps: Mapping[int, Gap] = {}  # partitions of ours that stand; some of them never went live
        self.desired = Desired()
        self._early = EarlyEnds(self, self.desired, decoders, restorer, clock)
        self._exchange = Exchange(self, settings, decoders[0].book, clock)

    # --- from the poller ------------------------------------------------------------------------------------------------------------

    def assigned(self, owner: Owner, position: int, settled: Sequence[Range] = ()) -> None:
        """A partition came; records follow. `settled`: what is settled above its position."""
        why_held = partial(self._why_held, owner.partition)
        partition = Partition(owner, position, self._decoders[owner.source], self._room, settled, why_held, self._gate)
        self.partitions[owner.strand] = partition
        self._tending.came(partition)
        self._exchange.came(partition)
        self._publisher.put(Began(owner, tuple(settled)))
        self._restorer.put(Restore(owner))
        self._observer.assigned(partition)

    def delivered(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None:
        """Records came, and ends of partitions were seen behind them."""
        now = self._clock.now().mono
        for owner, batch in records.items():
            partition = self._of(owner)
            if partition is not None:
                known = partition.progress.reached
                lanes = partition.accept(batch, now)
                self._early.read_on(partition, known)
                self._tending.note(partition)
                for lane in lanes:
                    self.advance(partition, lane)
                self._tending.tend(partition)
        for owner, end in ends.items():
            partition = self._of(owner)
            if partition is not None:
                known = partition.progress.reached
                self._read_on(partition, partition.reach_end(end, now), known, end)

    def stood(self, gaps: Mapping[int, Gap]) -> None:
        """These partitions, and no others of ours, stand at a gap: what was read before it is executed, and nothing behind it."""
        self.gaps = gaps
        self._observer.stood(gaps)

    def passed(self, gap: Gap, owner: Owner | None) -> None:
        """Reading goes on behind a gap: what was lost counts as settled. Without an owner nothing of the partition was read yet."""
        self._observer.passed(gap)
        partition = None if owner is None else self._of(owner)
        if partition is not None:
            known = partition.progress.reached
            self._read_on(partition, partition.skip_to(gap.goes_on_at, self._clock.now().mono), known, gap.goes_on_at)

    def revoke(self, owners: Iterable[Owner]) -> None:
        """Start nothing more in these partitions; says Drained for each once nothing of it is in flight."""
        for owner in owners:
            partition = self._of(owner)
            if partition is not None:
                self._close(partition)
                for lane in list(partition.lanes.values()):
                    self.advance(partition, lane)
                self._tell_drained(partition)

    def abandon(self, owners: Iterable[Owner]) -> None:
        """These assignments are over: cut off the calls in hand and forget them; says Cut for each once its calls have ended."""
        for owner in owners:
            partition = self._of(owner)
            if partition is not None:
                self._close(partition)
                self._turns.forget(owner)
                self._classes.forget(owner)
                del self.partitions[owner.strand]
                self._tending.went(owner)
                self.desired.give_up(owner.partition)
                self._observer.gone(owner)
                for lane in partition.lanes.values():
                    if lane.is_intending:
                        lane.abandoned(self._clock.now().mono)
                        self._let_go(lane)
                self._calls.cut(partition)
            self._restorer.put(Forget(owner))
            self._tell_cut(owner)

    def measured(self, ends: dict[Owner, int]) -> None:
        """The logs of these partitions end there."""
        now = self._clock.now().mono
        for owner, end in ends.items():
            if (partition := self._of(owner)) is not None:
                self._observer.measured(partition, end, now)

    def share(self, who: str, put: Callable[[Message], None]) -> Sharing:
        """Share the limits with other workers from now on, under the name of `who`; `put` takes what is to be told to them."""
        return Sharing(who, self._settings, self._gate, self._admission, put, self._observer, self._clock)

    # --- from the publisher ---------------------------------------------------------------------------------------------------------

    def acknowledged(self, outcomes: list[Outcome]) -> None:
        """These are published and their positions committed."""
        partitions: dict[Partition, None] = {}
        noted: dict[Lane, Partition] = {}
        for outcome in outcomes:
            self._observer.acknowledged(outcome)
            partition = self._of(outcome.owner)
            if partition is None:
                continue
            partitions[partition] = None
            fetch = partition.acknowledge(outcome)
            if fetch is not None:
                self._restorer.put(FetchParked(partition.owner, fetch.entries))
            lane = None if outcome.record is None else partition.lane_of(outcome.record.key)
            if lane is not None and (outcome.parks or (outcome.finished is not None and lane.awaits_reply)):
                self.advance(partition, lane)
            if (note := outcome.note) is not None and (lane := partition.lane_of(note.key)) is not None and lane.noted(note):
                noted[lane] = partition
        for lane, partition in noted.items():
            self.advance(partition, lane)
        self._tending.note(*partitions)
        for partition in partitions:
            self.release(partition)
            self._tell_drained(partition)

    # --- from the restorer ----------------------------------------------------------------------------------------------------------

    def commanded(self, records: Collection[Record]) -> None:
        """Records of the control topic, in order. All that they want is known before any lane goes on."""
        changed = [name for record in records if (name := self.desired.apply(record)) is not None]
        targets = [target for name in changed if (target := parse_target(name)) is not None]
        for partition in list(self.partitions.values()) if targets else ():
            self._early.commanded(partition, [target.name for target in targets if target.kind is Kind.REQUEST])
            for target in targets:
                if target.kind is Kind.KEY and (lane := partition.lane_of(target.name.encode())) is not None:
                    self.advance(partition, lane)
                elif target.kind is Kind.PARTITION and target.name == str(partition.owner.partition):
                    for lane in list(partition.lanes.values()):
                        self.advance(partition, lane)
            self._tending.tend(partition)
        self._exchange.heard(records)

    def restored(self, owner: Owner, entries: list[Entry], journal: Journal | None = None, noted: Noted = NOTHING_NOTED) -> None:
        """What is parked of a partition, what has ended (None: nothing is remembered of that), what is noted of tries; calls may start."""
        partition = self._of(owner)
        if partition is None or partition.closed:
            return
        instant = self._clock.now()
        for outcome in partition.restore(entries, instant, journal, noted):
            self._publisher.put(outcome)
        self._early.restored(partition)
        for lane in list(partition.lanes.values()):
            self.advance(partition, lane)
        self.release(partition)

    def fetched(self, owner: Owner, found: list[Parked], missing: list[Entry]) -> None:
        """Parked requests were read again."""
        partition = self._of(owner)
        if partition is None or partition.closed:
            return
        if missing:
            self._observer.missing(owner, missing)
        instant = self._clock.now()
        lanes, outcomes = partition.fetched(found, missing, instant)
        for outcome in outcomes:
            self.settle(partition, outcome, instant.mono)
        for lane in lanes:
            self.advance(partition, lane)

    def recalled(self, recall: RecallReply, recorded: Recorded | None) -> None:
        """The reply that is recorded for the original of a duplicate; None where it is not there any more."""
        partition = self._of(recall.owner)
        lane = None if partition is None else partition.lane_of(recall.key)
        if partition is not None and lane is not None:
            lane.recalled(recall.offset, recorded, self._clock.now())
            self.advance(partition, lane)

    # --- lanes ----------------------------------------------------------------------------------------------------------------------

    def _of(self, owner: Owner) -> Partition | None:
        partition = self.partitions.get(owner.strand)
        return partition if partition is not None and partition.owner == owner else None

    def _why_held(self, partition: int, key: bytes | None) -> str:
        return self.desired.why_held(key, partition)

    def advance(self, partition: Partition, lane: Lane, *, has_turn: bool = False) -> None:
        """Run a lane until it waits for something; none before it is known what is parked, since a copy of what it would end may be."""
        end = None
        while partition.is_restored or partition.closed:
            instant = self._clock.now()
            may_call = not lane.is_calling and self._may_call(partition, lane, instant.mono, has_turn=has_turn)
            step = lane.next(instant, may_call=may_call)
            self._admission.moved(lane, step, keeps_turn=isinstance(step, Ready) and self._classes.holds(lane))
            if not lane.is_intending:
                self._let_go(lane)
            if isinstance(step, Ready):
                self._stand_in_line(partition, lane, instant.mono)
                return
            if isinstance(step, Tell):
                self.publish(partition.note(step.note, instant.mono))
                continue
            if not isinstance(step, Settle):
                self._await(partition, lane, step)
                self._turns.leave(partition, lane)
                if not self._keeps_turn(lane, step, instant.mono):
                    self._classes.leave(lane)
                return
            self.settle(partition, step.outcome, instant.mono)
            end = end or instant.mono + TURN_S
            if instant.mono >= end:
                self._loop.call_soon(self.advance, partition, lane)
                return

    def _await(self, partition: Partition, lane: Lane, step: Step) -> None:
        """Begin what the lane waits for: its end comes back to `advance`."""
        match step:
            case Start():
                self._start(partition, lane, step)
            case Intend(note, upstream):
                # Where one before has ended meanwhile, its slot is there still.
                self._let_go(lane)
                self._turns.take(partition)
                self._classes.begin(lane)
                self._intents[lane] = partition, upstream
                self._admission.look(upstream)
                self.publish(partition.note(note, self._clock.now().mono))
            case Wait(until, _):
                self._timers.wait(partition, lane, until)
                self._tending.tend(partition)
            case Gated():
                self._admission.stand(lane, step)
                self._tending.tend(partition)
            case Held():
                self._tending.tend(partition)
            case Fetch(entries):
                self._restorer.put(FetchParked(partition.owner, entries))
            case Recall(request, known):
                self._restorer.put(RecallReply(partition.owner, request.record.key, request.record.offset, known))
            case Idle() | Closed():
                partition.retire(lane)
            case _:
                pass

    def _is_open(self, partition: Partition, now: float) -> bool:
        """Whether calls of this partition may start at all."""
        return partition.is_restored and not partition.is_held_back(now)

    def _may_call(self, partition: Partition, lane: Lane, now: float, *, has_turn: bool) -> bool:
        if not self._is_open(partition, now) or not partition.may_start(lane) or self._calls.is_cut(lane) or not self._classes.claim(lane):
            return False
        return lane in self._intents or self._turns.has_slot(partition, has_turn=has_turn)

    def _keeps_turn(self, lane: Lane, step: Step, now: float) -> bool:
        """Whether a lane that does not call at once keeps its classes' turn: it calls, or only a limit keeps it, which is all the lane's.

        What else keeps a call (its callee is down, it is paused, it waits to be tried again) keeps no request of another class.
        """
        if lane.is_calling or lane in self._intents:
            return True
        stop = lane.passage.why(now) if isinstance(step, Gated) else None
        return stop is not None and stop[0] == LIMIT

    def _let_go(self, lane: Lane) -> None:
        """Its call begins, or nothing comes of it: the slot that it had for its intent is free, and its callee may take another."""
        if (intent := self._intents.pop(lane, None)) is not None:
            partition, upstream = intent
            self._turns.give_back(partition)
            self._classes.end(lane, is_made=False)
            self._admission.look(upstream)
            self._loop.call_soon(self._fill_slots)

    def _stand_in_line(self, partition: Partition, lane: Lane, now: float) -> None:
        """A call could start but for what `_may_call` says; whatever ends that comes back to this lane."""
        if self._calls.is_cut(lane):
            self._classes.leave(lane)
            return
        is_above, is_aside = not partition.may_start(lane), not self._is_open(partition, now)
        if is_above or is_aside:
            self._classes.leave(lane)
        elif not self._classes.holds(lane):
            self._turns.leave(partition, lane)
            return
        self._turns.stand(partition, lane, aside=is_aside, above=is_above)
        if is_above:
            self._tending.tend(partition)
        if self._turns.is_free:
            # Somebody stood aside when it asked, so that it had to stand in line, though there are slots.
            self._loop.call_soon(self._fill_slots)

    def release(self, partition: Partition, *, thorough: bool = False) -> None:
        """Something that kept this partition's lanes may have ended: those that stand aside because of it have their turn."""
        if self._is_open(partition, self._clock.now().mono):
            self._turns.release(partition)
            # Thousands may wait for a full map, and few of them may start: they are looked through now and then, not with every call.
            if thorough or not partition.is_map_full:
                self._turns.rise(partition, partition.may_start)
            self._fill_slots()

    def settle(self, partition: Partition, outcome: Outcome, now: float) -> None:
        if outcome.halt is not None and outcome.record is not None and outcome.record.key is not None:
            self.desired.halt(outcome.record.key, outcome.halt, partition.owner.partition)
        self.publish(*partition.settle(outcome, now))
        if partition.withheld:  # Nothing else need happen that makes room.
            self._tending.tend(partition)

    def publish(self, *outcomes: Outcome) -> None:
        """Hand over outcomes that the partition has settled; a command to end such a request has had its effect."""
        for settled in outcomes:
            record, outcome = settled.record, settled
            if record is not None and outcome.reply is not None:
                outcome = self._early.without_command(outcome, record)
            misplaced = record is not None and outcome.reply is not None and not self._decoders[0].on_right_partition(record)
            self._observer.settled(outcome, misplaced=misplaced)
            self._publisher.put(outcome)

    def _read_on(self, partition: Partition, outcome: Outcome | None, known: int, to: int) -> None:
        """The log has been read from `known` up to `to`, and there is nothing: the mark may have moved, parked requests have their turn.

        Among what retention took of it may be what somebody wanted ended.
        """
        self.publish(*([] if outcome is None else [outcome]), *partition.released(self._clock.now().mono))
        lanes = partition.admit(to)
        self._early.read_on(partition, known)
        for lane in lanes:
            self.advance(partition, lane)

    def _start(self, partition: Partition, lane: Lane, start: Start) -> None:
        start = self._timeouts.fitted(start)
        self._observer.started(start)
        self._turns.take(partition)
        self._classes.begin(lane)
        self._calls.start(partition, lane, start)
        self._admission.look(start.call.upstream)

    def sent(self, lane: Lane, start: Start) -> None:
        """A call goes out, some moments behind its start: what it takes of its limits counts from now on. Withheld: it must not."""
        now = self._clock.now().mono
        if not lane.passage.may_begin(now):
            raise Withheld
        if lane.passage.begin(now):
            self._admission.look(start.call.upstream)

    def answered(self, partition: Partition, lane: Lane, start: Start, result: CallResult, took_s: float) -> None:
        """A call of a live assignment has ended."""
        instant = self._clock.now()
        bill = self._billing.bill(start.call.upstream, start.request.model, result, instant.wall)
        verdict = lane.answered(result, instant, self._chance(), None if bill is None else bill.usage)
        if bill is not None:
            self._observer.billed(start.call.upstream, bill)
        self._timeouts.note(start, result, verdict.finding, took_s)
        self._admission.look(start.call.upstream)
        self._observer.answered(start, result, verdict, took_s)
        self._call_over(partition, lane)

    def cancel(self, partition: Partition, lane: Lane) -> None:
        """Cut off the call in hand of this lane: somebody wants its request ended."""
        self._calls.cancel(partition, lane)

    def cancelled(self, partition: Partition, lane: Lane) -> None:
        """A call of a live assignment was cut off, and has ended: nobody failed, and its request ends with it."""
        request = lane.request
        assert request is not None
        lane.cut_off(self._clock.now())
        self._timeouts.cancelled(request, lane.last_s)
        self._admission.look(request.call.upstream)
        self._observer.cancelled(request, lane.last_s)
        self._call_over(partition, lane)

    def _call_over(self, partition: Partition, lane: Lane) -> None:
        self._turns.give_back(partition)
        self._classes.end(lane)
        self.release(partition)
        self.advance(partition, lane)
        self._tell_drained(partition)
        self._fill_slots()

    def cut_off(self, partition: Partition, lane: Lane) -> None:
        """A call that was cancelled with its assignment has ended: a later assignment may start a call of its key now."""
        self._turns.give_back(partition)
        self._classes.end(lane)
        if (upstream := lane.abandoned(self._clock.now().mono)) is not None:
            self._admission.look(upstream)
        self._tell_cut(lane.owner)
        for successor in [one for one in self.partitions.values() if one.owner.partition == lane.owner.partition]:
            if (again := successor.lanes.get(lane.key)) is not None:
                self.advance(successor, again)
        self._fill_slots()

    def _fill_slots(self) -> None:
        """A call has ended: its slot goes to the lane that waited longest."""
        while (turn := self._turns.next()) is not None:
            self.advance(*turn, has_turn=True)
        self._admission.resume()

    # --- letters --------------------------------------------------------------------------------------------------------------------

    def _close(self, partition: Partition) -> None:
        for lane in partition.lanes.values():
            self._admission.gone(lane)
            self._timers.forget(lane)
        self._tending.closed(partition.owner)
        self._early.forget(partition.owner)
        partition.close()

    def _tell_drained(self, partition: Partition) -> None:
        if partition.is_drained:
            self._poller.put(Drained(partition.owner))

    def _tell_cut(self, owner: Owner) -> None:
        if not self._calls.has_cut(owner):
            self._poller.put(Cut(owner))
