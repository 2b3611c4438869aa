"""The engine: owns every partition and lane, on the event loop. It asks lanes what to do, does it, and tells them how it went.

Nothing here awaits but the call itself: `advance` runs a lane until it waits for something, and whatever it waits for (an answer, a
time, a slot, a record, a person) calls `advance` again. A lane whose next step is a call takes a slot then, and not before; lanes that
find none stand in line (`Turns`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue

from dispatcher.core.buffer import Amount, Buffer, Flow
from dispatcher.core.call import Ambiguous, CallResult
from dispatcher.core.commit_note import Range
from dispatcher.core.control import Desired, Kind, parse_target
from dispatcher.core.gap import Gap
from dispatcher.core.lane import Lane
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.parked import Entry, Parked
from dispatcher.core.partition import Partition
from dispatcher.core.record import Record
from dispatcher.core.request import Decoder
from dispatcher.core.room import Room, room_of
from dispatcher.core.steps import Closed, Fetch, Held, Idle, Ready, Settle, Start, Step, Wait
from dispatcher.worker.clock import Clock
from dispatcher.worker.early_ends import EarlyEnds
from dispatcher.worker.letters import Began, Command, Cut, Drained, Forget, Pause, Restore, Resume
from dispatcher.worker.letters import Fetch as FetchParked
from dispatcher.worker.protocols import HttpEngine, Observer
from dispatcher.worker.turns import Turns

# One lane's share of a turn of the event loop: a flood of refused records must not hold up everybody's answers.
TURN_S = 0.02
# Looking for what can be parked goes through all lanes of a partition: not more often than this.
TEND_S = 0.25


class Engine:
    """`partitions` holds one object per live assignment, `desired` what people want of lanes. All methods run on the event loop."""

    def __init__(
        self,
        decoder: Decoder,
        http: HttpEngine,
        poller: SimpleQueue[Command],
        publisher: SimpleQueue[object],
        restorer: SimpleQueue[object],
        observer: Observer,
        clock: Clock,
        chance: Callable[[], float],
        room: Room | None = None,
    ) -> None:
        self._decoder = decoder
        self._http = http
        self._poller = poller
        self._publisher = publisher
        self._restorer = restorer
        self._observer = observer
        self._clock = clock
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._room = room or room_of(decoder.settings)
        self._buffer = Buffer(Amount(decoder.settings.worker.buffer_max_records, decoder.settings.worker.buffer_max_bytes))
        self._turns = Turns(decoder.settings.worker.inflight_max, decoder.settings.worker.partition_inflight_max)
        self._calls: dict[Lane, asyncio.Task[None]] = {}
        # Calls of assignments that are over and that have not ended yet: by partition and key, of which there is one each; by assignment.
        self._cut: dict[tuple[int, bytes | None], asyncio.Task[None]] = {}
        self._cutting: Counter[Owner] = Counter()
        self._timers: dict[Lane, tuple[float, asyncio.TimerHandle]] = {}
        self._tending: set[Owner] = set()  # partitions in which room is looked for again soon
        self._full: set[Owner] = set()  # partitions whose commits cannot carry more
        self.partitions: dict[int, Partition] = {}
        self.gaps: Mapping[int, Gap] = {}  # partitions of ours that stand; some of them never went live
        self.desired = Desired()
        self._early = EarlyEnds(self, self.desired, decoder, restorer, clock)

    # --- from the poller ------------------------------------------------------------------------------------------------------------

    def assigned(self, owner: Owner, position: int, settled: Sequence[Range] = ()) -> None:
        """A partition came; records follow. `settled`: what is settled above its position."""
        why_held = partial(self._why_held, owner.partition)
        partition = Partition(owner, position, self._decoder, self._room, settled, why_held)
        self.partitions[owner.partition] = partition
        self._buffer.note(owner.partition, partition.held)
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
                self._early.skip(partition, self.desired.skips(), range(known, partition.progress.reached))
                self._early.watch(partition)
                self._tell_flow(partition)
                for lane in lanes:
                    self.advance(partition, lane)
                self._tend(partition)
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
                del self.partitions[owner.partition]
                self._buffer.forget(owner.partition)
                self.desired.give_up(owner.partition)
                self._observer.gone(owner)
                for lane in partition.busy():
                    call = self._cut[owner.partition, lane.key] = self._calls.pop(lane)
                    self._cutting[owner] += 1
                    call.cancel()
                    # Not left to the call itself: a task that is cancelled before its first step never runs a line of it.
                    call.add_done_callback(partial(self._call_cut, partition, lane))
            self._restorer.put(Forget(owner))
            self._tell_cut(owner)

    def measured(self, ends: dict[Owner, int]) -> None:
        """The logs of these partitions end there."""
        now = self._clock.now().mono
        for owner, end in ends.items():
            if (partition := self._of(owner)) is not None:
                self._observer.measured(partition, end, now)

    # --- from the publisher ---------------------------------------------------------------------------------------------------------

    def acknowledged(self, outcomes: list[Outcome]) -> None:
        """These are published and their positions committed."""
        partitions: dict[Partition, None] = {}
        for outcome in outcomes:
            self._observer.acknowledged(outcome)
            partition = self._of(outcome.owner)
            if partition is None:
                continue
            partitions[partition] = None
            fetch = partition.acknowledge(outcome)
            if fetch is not None:
                self._restorer.put(FetchParked(partition.owner, fetch.entries))
            if outcome.parks and outcome.record is not None and (lane := partition.lane_of(outcome.record.key)) is not None:
                self.advance(partition, lane)
        self._tell_flow(*partitions)
        for partition in partitions:
            self._release(partition)
            self._tell_drained(partition)

    # --- from the restorer ----------------------------------------------------------------------------------------------------------

    def commanded(self, records: Iterable[Record]) -> None:
        """Records of the control topic, in order."""
        for record in records:
            changed = self.desired.apply(record)
            target = None if changed is None else parse_target(changed)
            if target is None:
                continue
            for partition in list(self.partitions.values()):
                match target.kind:
                    case Kind.KEY if (lane := partition.lane_of(target.name.encode())) is not None:
                        self.advance(partition, lane)
                    case Kind.PARTITION if target.name == str(partition.owner.partition):
                        for lane in list(partition.lanes.values()):
                            self.advance(partition, lane)
                    case Kind.REQUEST:
                        self._early.skip(partition, [target.name], range(partition.progress.reached))
                    case _:
                        pass
                self._tend(partition)

    def restored(self, owner: Owner, entries: list[Entry]) -> None:
        """What is parked of a partition; its calls may start."""
        partition = self._of(owner)
        if partition is None or partition.closed:
            return
        instant = self._clock.now()
        for outcome in partition.restore(entries, instant):
            self._publisher.put(outcome)
        self._early.skip(partition, self.desired.skips())
        self._early.watch(partition)
        for lane in list(partition.lanes.values()):
            self.advance(partition, lane)
        self._release(partition)

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

    # --- lanes ----------------------------------------------------------------------------------------------------------------------

    def _of(self, owner: Owner) -> Partition | None:
        partition = self.partitions.get(owner.partition)
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
            if isinstance(step, Ready):
                self._stand_in_line(partition, lane, instant.mono)
                return
            if not isinstance(step, Settle):
                self._await(partition, lane, step)
                self._turns.leave(partition, lane)
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
            case Wait(until, _):
                self._wait(partition, lane, until)
                self._tend(partition)
            case Held():
                self._tend(partition)
            case Fetch(entries):
                self._restorer.put(FetchParked(partition.owner, entries))
            case Idle() | Closed():
                partition.retire(lane)
            case _:
                pass

    def _is_open(self, partition: Partition, now: float) -> bool:
        """Whether calls of this partition may start at all."""
        return partition.is_restored and not partition.is_held_back(now)

    def _may_call(self, partition: Partition, lane: Lane, now: float, *, has_turn: bool) -> bool:
        if not self._is_open(partition, now) or not partition.may_start(lane) or self._is_cut(lane):
            return False
        return self._turns.has_slot(partition, has_turn=has_turn)

    def _is_cut(self, lane: Lane) -> bool:
        """Whether a call of this key, of an earlier assignment, has been cancelled and not ended yet: its end calls `advance`."""
        return (lane.owner.partition, lane.key) in self._cut

    def _stand_in_line(self, partition: Partition, lane: Lane, now: float) -> None:
        """A call could start but for what `_may_call` says; whatever ends that comes back to this lane."""
        if self._is_cut(lane):
            return
        is_above = not partition.may_start(lane)
        self._turns.stand(partition, lane, aside=not self._is_open(partition, now), above=is_above)
        if is_above:
            self._tend(partition)
        if self._turns.is_free:
            # Somebody stood aside when it asked, so that it had to stand in line, though there are slots.
            self._loop.call_soon(self._fill_slots)

    def _release(self, partition: Partition, *, thorough: bool = False) -> None:
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
            self._tend(partition)

    def publish(self, *outcomes: Outcome) -> None:
        """Hand over outcomes that the partition has settled; a command to skip such a request has had its effect."""
        for settled in outcomes:
            record, outcome = settled.record, settled
            if record is not None and outcome.reply is not None:
                outcome = self._early.without_skip(outcome, record)
            misplaced = record is not None and outcome.reply is not None and not self._decoder.on_right_partition(record)
            self._observer.settled(outcome, misplaced=misplaced)
            self._publisher.put(outcome)

    def _read_on(self, partition: Partition, outcome: Outcome | None, known: int, to: int) -> None:
        """The log has been read from `known` up to `to`, and there is nothing: the mark may have moved, parked requests have their turn.

        Among what retention took of it may be what somebody wanted ended.
        """
        self.publish(*([] if outcome is None else [outcome]), *partition.released(self._clock.now().mono))
        lanes = partition.admit(to)
        self._early.skip(partition, self.desired.skips(), range(known, partition.progress.reached))
        self._early.watch(partition)
        for lane in lanes:
            self.advance(partition, lane)

    def _wait(self, partition: Partition, lane: Lane, until: float) -> None:
        known = self._timers.get(lane)
        if known is not None:
            if known[0] <= until:
                return
            # What it waited for before has gone: this comes earlier.
            known[1].cancel()
        delay_s = max(0.0, until - self._clock.now().mono)
        self._timers[lane] = until, self._loop.call_later(delay_s, self._wake, partition, lane)

    def _wake(self, partition: Partition, lane: Lane) -> None:
        self._timers.pop(lane, None)
        self.advance(partition, lane)

    def _start(self, partition: Partition, lane: Lane, start: Start) -> None:
        self._observer.started(start)
        self._turns.take(partition)
        task = self._loop.create_task(self._call(partition, lane, start))
        task.add_done_callback(_raise)
        self._calls[lane] = task

    async def _call(self, partition: Partition, lane: Lane, start: Start) -> None:
        began = self._clock.now().mono
        result: CallResult
        try:
            result = await self._http.call(start.call)
        except asyncio.CancelledError:
            return  # The assignment is over, and `abandon` sees to what is left.
        except Exception as error:  # noqa: BLE001 - an adapter's bug must cost one attempt, not the lane
            self._observer.bug(error, "http")
            result = Ambiguous("internal", type(error).__name__)
        if self._of(partition.owner) is partition:
            del self._calls[lane]
            self._turns.give_back(partition)
            instant = self._clock.now()
            verdict = lane.answered(result, instant, self._chance())
            self._observer.answered(start, result, verdict, instant.mono - began)
            self._release(partition)
            self.advance(partition, lane)
            self._tell_drained(partition)
            self._fill_slots()

    def _call_cut(self, partition: Partition, lane: Lane, _: asyncio.Task[None]) -> None:
        """The call of an assignment that is over has ended: a later assignment may start a call of its key now."""
        del self._cut[lane.owner.partition, lane.key]
        self._cutting[lane.owner] -= 1
        self._turns.give_back(partition)
        self._tell_cut(lane.owner)
        successor = self.partitions.get(lane.owner.partition)
        again = None if successor is None else successor.lanes.get(lane.key)
        if successor is not None and again is not None:
            self.advance(successor, again)
        self._fill_slots()

    def _fill_slots(self) -> None:
        """A call has ended: its slot goes to the lane that waited longest."""
        while (turn := self._turns.next()) is not None:
            self.advance(*turn, has_turn=True)

    # --- room -----------------------------------------------------------------------------------------------------------------------

    def _tend(self, partition: Partition) -> None:
        """Make room in a partition that needs it, now or soon, and until it needs none: that a full map has emptied is told too."""
        if partition.closed or not partition.is_restored or partition.owner in self._tending:
            return
        if partition.is_pressed or partition.owner in self._full:
            self._tending.add(partition.owner)
            self._loop.call_later(TEND_S, self._tend_again, partition)
            self._make_room(partition)

    def _tend_again(self, partition: Partition) -> None:
        # Its time is not compared with the clock: timers of a busy uvloop come up to a millisecond early.
        self._tending.remove(partition.owner)
        self._tend(partition)

    def _make_room(self, partition: Partition) -> None:
        if partition.is_map_full != (partition.owner in self._full):
            self._full ^= {partition.owner}
            self._observer.map_full(partition, is_full=partition.is_map_full)
        outcomes = partition.park(self._clock.now())
        self.publish(*outcomes)
        # What was withheld may have come with it.
        if moved := [outcome for outcome in outcomes if outcome.parks]:
            self._observer.parked(partition, moved)
        self._tell_flow(partition)
        self._release(partition, thorough=True)

    # --- letters --------------------------------------------------------------------------------------------------------------------

    def _close(self, partition: Partition) -> None:
        for lane in partition.lanes.values():
            if (timer := self._timers.pop(lane, None)) is not None:
                timer[1].cancel()
        self._full.discard(partition.owner)
        self._early.forget(partition.owner)
        partition.close()

    def _tell_flow(self, *changed: Partition) -> None:
        """These hold more or less than before: who has to stop, and who may go on, also where others have given them room."""
        gave = [self._buffer.note(partition.owner.partition, partition.held) for partition in changed]
        own = Amount(self._room.records, self._room.size_bytes)
        for partition in self.partitions.values() if any(gave) else changed:
            partition.limit = self._buffer.limit(partition.owner.partition, own)
            match partition.flow():
                case Flow.PAUSE:
                    self._poller.put(Pause(partition.owner))
                case Flow.RESUME:
                    self._poller.put(Resume(partition.owner))
                case None:
                    pass

    def _tell_drained(self, partition: Partition) -> None:
        if partition.is_drained:
            self._poller.put(Drained(partition.owner))

    def _tell_cut(self, owner: Owner) -> None:
        if not self._cutting[owner]:
            del self._cutting[owner]
            self._poller.put(Cut(owner))


def _raise(task: asyncio.Task[None]) -> None:
    """Hand a bug in a call's own steps to the event loop's handler, which ends the worker: a lane that stands silently helps nobody."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
