"""A partition under one assignment: its lanes, its progress, and how much of it is held in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from dispatcher.core.callees.gate import Gate
from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import HALTED
from dispatcher.core.internal.journal import Ahead, Asked, Coming, Conflict, Journal, Known
from dispatcher.core.internal.parked import OVERHEAD_MAX_BYTES, Entry, Parked, tombstone, until_at
from dispatcher.core.internal.tried import NOTHING_NOTED, Note, Noted, Tried, forgotten
from dispatcher.core.lanes.buffer import NOTHING, Amount, Flow, Tap
from dispatcher.core.lanes.deadlines import Deadlines
from dispatcher.core.lanes.fair_lane_queue import FairLaneQueue
from dispatcher.core.lanes.lane import Lane, WhyHeld
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.originals import Originals
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Fetch
from dispatcher.core.lanes.withheld import Withheld
from dispatcher.core.messages.foresight import DEADLINE, DEADLINE_AND_AGENT, foresee
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import Decoder
from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.progress import Progress
from dispatcher.core.progress.spans import NUMBER_MAX_BYTES

# What one range more takes in a commit at most: its own two numbers, and a distance that is split in two.
RANGE_BYTES = 3 * NUMBER_MAX_BYTES
# Of a busy lane whose queue is parked so many stay, so that it runs on while others are read back.
KEEP = 8


class Partition:
    """One object per assignment: a late result of an earlier one lands on an object that nobody reads.

    With `ordering = "partition"` it holds one lane, else one per key that has anything. Owned by the engine. `why_held` and `gate` as in
    `Lane`. `settled`: ranges above `position` that an earlier owner's commit tells of.
    """

    __slots__ = (
        *(
            "_by_key",
            "_coming",
            "_decoder",
            "_gate",
            "_held_bytes",
            "_held_records",
            "_is_fair",
            "_is_fenced",
            "_noted",
            "_number",
            "_originals",
            "_room",
            "_stuck",
            "_tap",
            "_tried",
            "_unpublished",
            "_unpublished_bytes",
            "_void",
            "_withheld",
        ),
        *("_why_held", "calls", "closed", "deadlines", "is_restored", "journal", "lanes", "ledger", "limit", "owner", "parked", "progress"),
    )

    def __init__(
        self,
        owner: Owner,
        position: int,
        decoder: Decoder,
        room: Room,
        settled: Iterable[Range] = (),
        why_held: WhyHeld = lambda _: "",
        gate: Gate[Lane] | None = None,
    ) -> None:
        self.owner = owner
        self.progress = Progress(position, settled)
        self.lanes: dict[bytes | None, Lane] = {}
        self.deadlines = Deadlines()  # of what its lanes hold
        self.closed = False
        self.is_restored = False  # whether what is parked is known; nothing starts before
        self.calls = 0  # in flight
        self.parked = 0  # requests in the parked topic, or on their way there or back
        self.limit = Amount(room.records, room.size_bytes)  # what it may hold now; the engine lowers it where memory is short
        self._decoder = decoder
        self._by_key = decoder.settings.worker.ordering == "key"
        self._is_fair = decoder.settings.worker.fairness == "agent"
        self._why_held = why_held
        self._gate: Gate[Lane] = Gate({}) if gate is None else gate
        self._room = room
        self._number = 0
        self._is_fenced = decoder.settings.worker.publishing == "exactly_once"
        worker = decoder.settings.worker
        self.journal = Journal(worker.dedup_window_s, worker.dedup_max_entries, is_fenced=self._is_fenced)
        self.ledger = Ledger(decoder.settings, decoder.book, owner.partition, decoder.partitions)
        self._void: set[int] = set()  # requests in the log of which a copy stands in the parked topic, for nothing
        self._coming: deque[tuple[Entry, float]] = deque()  # parked requests from where the log has not been read, and when they are due
        self._tried: dict[int, Tried] = {}  # what earlier owners have noted of requests that have not had their turn here
        self._noted: set[int] = set()  # requests of which something stands in the state topic, or is on its way there
        self._held_records = 0
        self._held_bytes = 0
        # Outcomes handed out and not yet acknowledged, the oldest first: their bytes, and since when they wait (monotonic seconds).
        self._unpublished: dict[int, tuple[int, float]] = {}
        self._unpublished_bytes = 0
        self._withheld = Withheld()
        self._originals = Originals(self.progress, self._withheld, is_in_order=not self._is_fair)
        self._stuck = NOTHING  # what waits long and could not be moved aside, when that was tried last
        self._tap = Tap()

    @property
    def held_records(self) -> int:
        """Records in memory: queued, called, or waiting for their acknowledgement."""
        return self._held_records

    @property
    def held(self) -> Amount:
        """Those records, and what they take."""
        return Amount(self._held_records, self._held_bytes)

    @property
    def withheld(self) -> int:
        """Requests that have ended so far above the mark that no commit can tell of them yet."""
        return len(self._withheld)

    @property
    def is_drained(self) -> bool:
        """Whether a closed partition has nothing in flight: no call, no outcome that waits to be fetched, no publication."""
        return self.closed and not self._unpublished and not any(len(lane) for lane in self.lanes.values())

    @property
    def unpublished_since(self) -> float | None:
        """Since when the oldest outcome waits to be published, monotonic seconds; None where none does."""
        return next((since for _, since in self._unpublished.values()), None)

    @property
    def is_pressed(self) -> bool:
        """Whether room has to be made: memory, the commit's map, or the distance from the mark near their bound."""
        room, progress = self._room, self.progress
        return self._by_key and (
            self.limit.is_half_full(self.held) or self._is_map_pressed or progress.delivered - progress.planned >= room.distance
        )

    @property
    def _is_map_pressed(self) -> bool:
        progress, room = self.progress, self._room
        return bool(self._withheld) or progress.ranges * 2 >= room.ranges or progress.map_bytes * 2 >= room.map_bytes

    @property
    def is_map_full(self) -> bool:
        """Whether a commit could soon not carry one more range: only what touches the mark, or another range, may start."""
        progress, room = self.progress, self._room
        return progress.ranges >= room.ranges or progress.map_bytes * 5 >= room.map_bytes * 4

    @property
    def short_of(self) -> str:
        """What there is not enough of, so that what waits long keeps others from being read; empty where nothing is short.

        The `parked limit`: nothing more may be moved aside. `memory`: what waits long and cannot be moved fills it by itself.
        """
        if not self.is_pressed:
            return ""
        if self.parked >= self._room.parked:
            return "parked limit"
        return "memory" if self._tap.is_closed and self.limit.is_half_full(self._stuck) else ""

    def is_held_back(self, now: float) -> bool:
        """Whether no further call may start since too much waits to be published, or something for too long.

        Too much: answers may be far larger than requests. Too long: who cannot reach Kafka does not hear that it has lost the
        partition (a KIP-848 client is told by the broker alone), and would go on beside the new owner until its buffer is empty.
        """
        if self._unpublished_bytes >= self._room.size_bytes:
            return True
        since = self.unpublished_since
        return since is not None and now - since >= self._room.unpublished_s

    def may_start(self, lane: Lane) -> bool:
        """Whether what this lane would settle next fits into a commit. The oldest request of all always may.

        And what was called before older ones of its lane, which wait for it to end; where it does not fit, its outcome is withheld.
        """
        if not self._is_tight() or lane.is_ahead:
            return True
        offset = lane.first_offset
        if offset is None or self._withheld.is_behind(lane.key, offset):
            return False
        return not (self.is_map_full and self.progress.is_open(offset) and self.progress.adds_range(offset))

    def _is_tight(self) -> bool:
        """Whether a commit can carry no more, or what has ended could not be told yet."""
        return bool(self._withheld) or self.is_map_full

    def lane_of(self, key: bytes | None) -> Lane | None:
        """The lane of a key, if it has anything."""
        return self.lanes.get(key if self._by_key else None)

    def accept(self, records: Iterable[Record], now: float) -> list[Lane]:
        """Queue records that came at `now` (monotonic seconds), each at most once; the lanes that got any, in the order of that."""
        if self.closed:
            return []
        lanes: dict[Lane, None] = {}
        for record in records:
            if self._coming:
                lanes |= dict.fromkeys(self.admit(record.next_offset))
            if self.progress.deliver(record.offset):
                lane = self._lane(record.key)
                if lane.queue_of(record.key) >= self._room.halted and self._why_held(record.key) == HALTED:
                    lane.refuse(record)
                else:
                    told = foresee(record, DEADLINE_AND_AGENT if self._is_fair else DEADLINE)
                    lane.add(record, now, told.agent)
                    self._note_deadline(record.offset, record.key, told.deadline)
                lanes[lane] = None
                self._held_records += 1
                self._held_bytes += record.size_bytes
        return list(lanes)

    def restore(
        self, entries: Iterable[Entry], instant: Instant, journal: Journal | None = None, noted: Noted = NOTHING_NOTED
    ) -> list[Outcome]:
        """What is parked, in order, what has ended, and what else is noted; from here on calls may start.

        Returns outcomes that end what is void.

        What stands in the log at or above the mark and is not settled is executed from there: its parked copy is left from a move that
        was never committed, or somebody has moved the position back. Without transactions it ends with its request, not before: a tombstone
        that comes late, of an owner that is lost, would take away what its successor has parked.

        A parked request joins its lane once the log has been read up to where it came from: an older one of its key may stand there still.

        A note is newer than the parked request that it is about. It is void where its request has ended, or is lost.
        """
        self.ledger.restore(noted.accounts, instant.wall)
        entries = list(entries)
        void = self._note_tried(noted, {entry.offset for entry in entries}, instant.mono)
        if journal is not None:
            self.journal = journal
            journal.lose(noted.log_end)
        by_lane: dict[bytes | None, list[Entry]] = {}
        for entry in entries:
            if not self.progress.is_settled(entry.offset):
                if self._is_fenced:
                    void.append(self._hand_out(Outcome(self.owner, None, None), instant.mono, None, (self._tombstone(entry.offset),)))
                else:
                    self._void.add(entry.offset)
                continue
            self.parked += 1
            if entry.offset < self.progress.reached:
                self._note_deadline(entry.offset, entry.key, entry.deadline)
                by_lane.setdefault(entry.key if self._by_key else None, []).append(entry)
            else:
                self._coming.append((entry, until_at(entry.due, instant)))
        self.is_restored = True
        for key, of in by_lane.items():
            self._lane(key).restore(of, instant)
        return void

    def _note_tried(self, noted: Noted, parked: Container[int], now: float) -> list[Outcome]:
        void = []
        for one in noted.tried:
            if one.offset >= noted.log_end or (self.progress.is_settled(one.offset) and one.offset not in parked):
                void.append(self._hand_out(Outcome(self.owner, None, None), now, None, (self._forgotten(one.offset),)))
            else:
                self._tried[one.offset] = one
                self._noted.add(one.offset)
        return void

    def admit(self, offset: int) -> list[Lane]:
        """The log has been read up to `offset`: parked requests from below it join their lanes, which are returned."""
        lanes: dict[Lane, None] = {}
        while self._coming and self._coming[0][0].offset < offset:
            entry, due = self._coming.popleft()
            lane = self._lane(entry.key)
            lane.admit(entry, due)
            self._note_deadline(entry.offset, entry.key, entry.deadline)
            lanes[lane] = None
        return list(lanes)

    def fetched(self, found: Iterable[Parked], missing: Iterable[Entry], instant: Instant) -> tuple[list[Lane], list[Outcome]]:
        """Payloads came back: the lanes that got any, and outcomes, which are to be settled, of what was to end early."""
        of_lane: dict[bytes | None, tuple[list[Parked], list[Entry]]] = {}
        for one in found:
            of_lane.setdefault(one.record.key if self._by_key else None, ([], []))[0].append(one)
            self._held_records += 1
            self._held_bytes += one.record.size_bytes
        for entry in missing:
            of_lane.setdefault(entry.key if self._by_key else None, ([], []))[1].append(entry)
            self.parked -= 1
            self.deadlines.forget(entry.offset)
        lanes, outcomes = [], []
        for key, (came, gone) in of_lane.items():
            lane = self._lane(key)
            outcomes += lane.fetched(came, gone, instant)
            lanes.append(lane)
        return lanes, outcomes

    def settle(self, outcome: Outcome, now: float) -> list[Outcome]:
        """Outcomes with the positions that may be committed with them. They are to be published in the order of these calls.

        `outcome` is not among them where a commit could not tell of it: calls in hand may end that far above the mark. It is withheld, and
        what is younger in its lane with it, until older ones have ended; the oldest of all always fits. What was withheld before may
        come with it.
        """
        if outcome.finished is not None and not self.journal.expect(outcome.finished, self._originals.has_ended):
            outcome = replace(outcome, finished=None)
        assert outcome.record is not None
        offset, lane = outcome.record.offset, outcome.record.key if self._by_key else None
        self.parked += outcome.parks and self.progress.is_open(offset)
        if self._withheld.is_behind(lane, offset) or not self._fits(offset):
            self._withheld.add(lane, offset, outcome)
            return []
        return [self._settle(outcome, now), *self.released(now)]

    def released(self, now: float) -> list[Outcome]:
        """Outcomes that were withheld, and of which a commit can tell now."""
        done = []
        while self._withheld and self._fits(self._withheld.first):
            done.append(self._settle(self._withheld.pop(), now))
        return done

    def _fits(self, offset: int) -> bool:
        """Whether a commit can tell that the record at `offset` has ended; what was parked has left the log before."""
        progress = self.progress
        if not progress.is_open(offset) or not progress.adds_range(offset):
            return True
        return progress.map_bytes + RANGE_BYTES <= self._room.map_bytes

    def _settle(self, outcome: Outcome, now: float) -> Outcome:
        """What comes from the parked topic has left the log before: it ends there, by a tombstone, unless it is moved anew.

        What is noted of its tries ends with it, or with its move: what is parked carries them itself.
        """
        record = outcome.record
        assert record is not None
        offset, span, ends = record.offset, None, not outcome.parks
        if self.progress.is_open(offset):
            span = self.progress.span(offset)
            self.progress.settle(offset)
            ends = ends and offset in self._void
            self._void.discard(offset)
        elif ends:
            self.parked -= 1
        if not outcome.parks:
            self.deadlines.forget(offset)
        extra = (*outcome.extra, self._tombstone(offset)) if ends else outcome.extra
        if offset in self._noted:
            self._noted.discard(offset)
            extra = (*extra, self._forgotten(offset))
        return self._hand_out(outcome, now, span, (*extra, *self.ledger.ended(record)))

    def note(self, note: Note, now: float) -> Outcome:
        """An outcome that does nothing but write what is known of a request's tries; the position goes with it, so that it is fenced."""
        (self._noted.discard if note.message.value is None else self._noted.add)(note.offset)
        return self._hand_out(Outcome(self.owner, None, None, note=note), now, None, (note.message, *self.ledger.take(note.key)))

    def reach_end(self, end: int, now: float) -> Outcome | None:
        """The log ends at `end`; an outcome that only moves the position there, if everything before is settled."""
        position = None if self.closed else self.progress.reach_end(end)
        if position is None:
            return None
        return self._hand_out(Outcome(self.owner, None, None), now)

    def skip_to(self, position: int, now: float) -> Outcome | None:
        """The log has nothing below `position` any more; an outcome that says so, where records were lost by it.

        Copies of those end with them: to the next owner they would be parked requests, to be executed long after younger ones.
        """
        lost = None if self.closed else self.progress.skip_to(position)
        if lost is None:
            return None
        gone = sorted(offset for offset in self._void if self.progress.is_settled(offset))
        self._void.difference_update(gone)
        return self._hand_out(Outcome(self.owner, None, None), now, lost, tuple(map(self._tombstone, gone)))

    def write(self, messages: tuple[Message, ...], now: float) -> Outcome:
        """An outcome that does nothing but write these: the tombstone of a command without effect, or a word to other owners."""
        return self._hand_out(Outcome(self.owner, None, None), now, None, messages)

    def acknowledge(self, outcome: Outcome) -> Fetch | None:
        """`outcome` is published and its position committed; what has to be fetched because of that."""
        # As it was noted, not as it is: what was published may have been cut meanwhile.
        self._unpublished_bytes -= self._unpublished.pop(outcome.number)[0]
        self.progress.acknowledge(outcome.position)
        if outcome.finished is not None:
            self.journal.confirm(outcome.finished)
        record = outcome.record
        if record is None:
            return None
        self._release(record)
        lane = self.lane_of(record.key) if outcome.parks else None
        return None if lane is None else lane.placed(record.offset, outcome.place)

    def park(self, instant: Instant) -> list[Outcome]:
        """Make room: move what waits long, and queues that will take long, out of memory. The outcomes are settled already.

        Queues go where one is a good part of all that is held; and the longest first while the map is half full, as each of their records
        may be a gap of its own: many slow keys, none of them large, would stop all others.
        """
        outcomes: list[Outcome] = []
        room = self._room
        slow, stuck = [], []
        # There may be a hundred thousand of which nothing is in memory any more: they are passed over.
        for lane in [lane for lane in self.lanes.values() if len(lane)] if self.parked < room.parked else ():
            if lane.is_waiting_long(instant, room.park_s):
                outcomes += self._park(lane, 0, instant)
                stuck += [record.size_bytes for record in lane.records()]
            elif len(lane) > 2 and lane.queue_s(instant.mono) >= room.queue_s:
                slow.append(lane)
        for lane in sorted(slow, key=len, reverse=True):
            if len(lane) * room.queue_share >= self.limit.records:
                outcomes += self._park(lane, KEEP, instant)
            if self._is_map_pressed:
                outcomes += self._park(lane, 1, instant)
        self._stuck = Amount(len(stuck), sum(stuck))
        return outcomes

    def _park(self, lane: Lane, keep: int, instant: Instant) -> list[Outcome]:
        if self.parked >= self._room.parked:
            return []
        bounds = Bounds(self._room.parked_max_bytes - OVERHEAD_MAX_BYTES, self._room.parked - self.parked)
        moved, released = lane.park(keep, bounds, instant)
        for record in released:
            self._release(record)
        return [done for outcome in moved for done in self.settle(outcome, instant.mono)]

    def flow(self) -> Flow | None:
        """Whether the source should stop or go on; None where nothing changes."""
        return self._tap.turn(self.limit, self.held)

    def retire(self, lane: Lane) -> None:
        """Forget a lane that has nothing left."""
        if self._by_key and lane.is_empty and self.lanes.get(lane.key) is lane:
            del self.lanes[lane.key]

    def close(self) -> None:
        """Start nothing more; calls in hand may end."""
        self.closed = True
        self._coming.clear()
        self.deadlines.clear()
        for lane in self.lanes.values():
            lane.close()
        self.lanes = {key: lane for key, lane in self.lanes.items() if len(lane)}

    def busy(self) -> Iterator[Lane]:
        """The lanes with a call in flight."""
        return (lane for lane in self.lanes.values() if lane.is_calling)

    def _lane(self, key: bytes | None) -> Lane:
        name = key if self._by_key else None
        lane = self.lanes.get(name)
        if lane is None:
            queue = FairLaneQueue(self._decoder.settings.agents, self._is_tight, self._tried) if self._is_fair else None
            told = self._why_held, self._find, self._gate, self._tried, self.ledger, queue
            lane = self.lanes[name] = Lane(self.owner, self._decoder, name, *told)
        return lane

    def _find(self, asked: Asked, now: float) -> Known | Coming | Ahead | Conflict | None:
        return self._originals.find(self.journal, asked, now)

    def _note_deadline(self, offset: int, key: bytes | None, at: float | None) -> None:
        if at is not None:
            self.deadlines.add(offset, key, at)

    def _tombstone(self, offset: int) -> Message:
        return tombstone(self._decoder.settings.topics.parked, self._decoder.topic_id, self.owner.partition, offset)

    def _forgotten(self, offset: int) -> Message:
        return forgotten(self._decoder.settings.topics.state, self._decoder.topic_id, self.owner.partition, offset)

    def _release(self, record: Record) -> None:
        self._held_records -= 1
        self._held_bytes -= record.size_bytes

    def _hand_out(self, of: Outcome, now: float, span: Range | None = None, extra: tuple[Message, ...] = ()) -> Outcome:
        """The outcome as it is published: what it settles, the position that goes with it, and a number of its own."""
        number = self._number = self._number + 1
        # Written out, as everything that is done once per request: `dataclasses.replace` takes 5 us.
        position = self.progress.planned
        rest = of.parks, of.place, of.halt, of.extra_bytes, of.finished, of.note
        outcome = Outcome(of.owner, of.record, of.reply, of.letter, position, span, number, extra, *rest)
        size = outcome.size_bytes
        self._unpublished[number] = size, now
        self._unpublished_bytes += size
        return outcome
