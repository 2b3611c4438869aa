"""A lane: requests that are executed one after another, in order, retries in place.

A pure machine. The driver asks `next(instant, may_call)` and does what it says (`steps.py`): call, wait, publish an outcome, read
parked requests again.

A closed lane lets the call in hand end and settles it, but starts no retry: what waits is the next owner's.

How a request was tried is noted in the state topic (`Noting`), and the next attempt waits until that stands there: after a crash it is
tried no more often than it may be. A request that must not be called twice has its intent there before each call.

What waits long can be parked: its records leave memory and log for the parked topic, and the lane keeps their places (`LaneQueue`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass

from dispatcher.core.callees.finding import find as finding_of
from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.patience import patience
from dispatcher.core.callees.verdict import Dead, Retry, Settled, Tries, judge
from dispatcher.core.instant import Instant
from dispatcher.core.internal.journal import Find
from dispatcher.core.internal.parked import Entry, Parked
from dispatcher.core.internal.tried import Note, Tried
from dispatcher.core.lanes.behind_others import ALONE, BehindOthers
from dispatcher.core.lanes.ending import Cancelled, Early, Endings, Expired
from dispatcher.core.lanes.fencing import fenced
from dispatcher.core.lanes.intake import Intake
from dispatcher.core.lanes.lane_queue import LaneQueue, Waiting
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.noting import Noting
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.parking import Bounds, Moved, Parking
from dispatcher.core.lanes.passage import Passage
from dispatcher.core.lanes.recalling import Recalling
from dispatcher.core.lanes.steps import (
    BUSY,
    CLOSED,
    IDLE,
    READY,
    CutOff,
    Fetch,
    Held,
    Intend,
    Recall,
    Settle,
    Start,
    Step,
    Tell,
    Wait,
)
from dispatcher.core.lanes.wanted_ends import WantedEnds
from dispatcher.core.messages.call import CallResult
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.usage import Usage

# Why a lane stands whose call may begin when what is noted of its request is committed.
UNPUBLISHED = "unpublished"
# Asked for before every call: why calls of this key may not start now; empty where they may.
WhyHeld = Callable[[bytes | None], str]


@dataclass(slots=True)
class _Head:
    """The request whose turn it is."""

    request: Request
    waiting: Waiting


class Lane:
    """Owned by one Partition, moved only by the engine. `owner` is the assignment it lives under.

    `key` is the lane's, None where the lane is the whole partition. `why_held` says why calls of a key may not start now, `find` whether a
    request is a duplicate, and of what (`Journal.find`), `gate` whether the callee takes a call: it is asked last. `tried` is the
    partition's: what earlier owners have noted, by offset.
    """

    __slots__ = (
        *("_began", "_behind_others", "_calling", "_closed", "_decoder", "_early", "_endings", "_head", "_intake"),
        *("_noting", "_overflow", "_queue", "_recalling", "_settled", "_why_held", "key", "last_s", "owner", "parking", "passage"),
    )

    def __init__(
        self,
        owner: Owner,
        decoder: Decoder,
        key: bytes | None = None,
        why_held: WhyHeld = lambda _: "",
        find: Find = lambda *_: None,
        gate: Gate[Lane] | None = None,
        tried: MutableMapping[int, Tried] | None = None,
        ledger: Ledger | None = None,
        queue: LaneQueue | None = None,
    ) -> None:
        self.owner = owner
        self.key = key
        self.last_s = 0.0  # how long the last call took
        self._decoder = decoder
        self._endings = Endings(owner, decoder)
        self._recalling = Recalling(self._endings, find)
        self._why_held = why_held
        self.passage = Passage(self, gate, ledger, self._endings)
        self._queue = LaneQueue() if queue is None else queue
        self._overflow: list[Record] = []  # refused at once, out of turn
        tried = {} if tried is None else tried
        self._intake = Intake(self._endings, decoder, tried)
        self.parking = Parking(owner, decoder, self._queue, tried)
        self._noting = Noting(owner.partition, decoder, self.passage.ledger)
        self._early = WantedEnds(self._queue, self.parking)
        self._head: _Head | None = None
        self._settled: Outcome | None = None
        self._calling = False
        self._began = 0.0
        self._closed = False
        self._behind_others = BehindOthers() if key is None else ALONE

    def __len__(self) -> int:
        """Records in memory that have not ended: queued, waiting or called."""
        return len(self._queue) + len(self._overflow) + (self._head is not None)

    @property
    def parked(self) -> int:
        """Requests that have left memory: parked, or on their way back."""
        return self._queue.aside

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do here, and nothing is known that would be missed."""
        return not (len(self) or self.parked or self._early or self._settled is not None)

    @property
    def is_calling(self) -> bool:
        """Whether the one call is in flight."""
        return self._calling

    @property
    def awaits_reply(self) -> bool:
        """Whether it stands until the reply to its head's original is published."""
        return self._recalling.awaits_reply

    @property
    def is_intending(self) -> bool:
        """Whether a call is about to begin that must not be made twice: its intent is on its way, or stands there."""
        return self._noting.intent and not self._calling

    @property
    def first(self) -> Record | None:
        """The record whose turn it is or will be next, of those in memory."""
        return next(self.records(), None)

    @property
    def first_offset(self) -> int | None:
        """Where the request whose turn it is, or will be next, stands in the log; parked or not."""
        return self._queue.first_offset if self._head is None or self._is_to_give_way else self._head.request.record.offset

    @property
    def is_ahead(self) -> bool:
        """Whether older requests would have to go first now, had not a call of the one whose turn it is been made, or be about to."""
        head = self._head
        return head is not None and self._queue.passes(head.waiting.record.offset) and not self._is_to_give_way

    @property
    def _is_to_give_way(self) -> bool:
        """Whether the request whose turn it is goes back into the line: an older one has to go first, and no call of it was made."""
        head = self._head
        is_new = head is not None and not (head.waiting.tries.calls or self._calling or self._noting.intent or self._settled is not None)
        return head is not None and is_new and self._queue.passes(head.waiting.record.offset)

    @property
    def oldest_arrival(self) -> float | None:
        """When the oldest record in memory that has not ended came, monotonic seconds."""
        return next((waiting.arrived for waiting in self._queue.waiting()), None) if self._head is None else self._head.waiting.arrived

    def records(self) -> Iterator[Record]:
        """Those in memory that are to be executed, in order."""
        if self._head is not None:
            yield self._head.request.record
        yield from (waiting.record for waiting in self._queue.waiting())

    @property
    def request(self) -> Request | None:
        """The request whose turn it is, once it is known."""
        return self._head.request if self._head is not None else None

    @property
    def priority(self) -> int:
        """That of the request whose turn it is, once that is known: 0 to 9, 9 is the most urgent."""
        return self._head.request.priority if self._head is not None else self._queue.first_priority

    @property
    def attempts(self) -> int:
        """Calls made for the request whose turn it is."""
        return self._head.waiting.tries.calls if self._head is not None else 0

    def why(self, instant: Instant) -> tuple[str, float | None]:
        """Why it stands, for people, and until when (monotonic seconds; None: nobody knows): empty where nothing keeps it."""
        if self._calling:
            return "calling", None
        key = self._queue.first_key(self.key) if self._head is None else self._head.request.record.key
        if held := self._why_held(key):
            return held, None
        if (gated := self.passage.why(instant.mono)) is not None:
            return gated
        head = self._head
        until, why = (self._queue.due(instant), "parked") if head is None else (head.waiting.not_before, head.waiting.why)
        if until > instant.mono:
            return why, until
        return (UNPUBLISHED if self._noting.coming is not None else "", None)

    def queue_of(self, key: bytes | None) -> int:
        """How many requests of a key wait here: those of this lane, in memory or parked; in a strict one those of that key in memory."""
        return self._behind_others[key] if self.key is None else len(self) + self.parked

    # --- records come ---------------------------------------------------------------------------------------------------------------

    def add(self, record: Record, now: float, agent: str = "") -> None:
        """Queue a record that came at `now`, monotonic seconds; `agent` as in `Waiting`."""
        self._queue.add(Waiting(record, now, agent=agent))
        self._behind_others.came(record.key)

    def refuse(self, record: Record) -> None:
        """Take a record only to refuse it, out of turn: too many wait behind a halted key."""
        self._overflow.append(record)

    def restore(self, entries: Iterable[Entry], instant: Instant) -> None:
        """Parked requests of an earlier assignment, in order, before the first call: each comes before what is newer than it."""
        entries, head = list(entries), self._head
        if head is not None and entries and entries[0].offset < head.waiting.record.offset:
            # It was made the head before this was known.
            self._put_back(head)
        self._queue.restore(entries, instant)

    def admit(self, entry: Entry, due: float) -> None:
        """A parked request of an earlier assignment, newer than all that is here; `due` in monotonic seconds, 0 for at once."""
        self._queue.admit(entry, due)

    def fetched(self, found: Iterable[Parked], missing: Iterable[Entry], instant: Instant) -> list[Outcome]:
        """The payloads of what was to be fetched; what is missing is gone. Returns outcomes of those that were to end early."""
        outcomes, missing = [], list(missing)
        came = self.parking.fetched(found, missing, instant)
        for waiting in () if self._closed else came:
            if (early := self._early.get(waiting.record.offset)) is not None:
                self._queue.gone(waiting.record.offset)
                outcomes.append(self._intake.end(waiting, early, instant))
            else:
                self._queue.came_back(waiting)
        for offset in [*(waiting.record.offset for waiting in came), *(entry.offset for entry in missing)]:
            self._early.pop(offset)
        return outcomes

    def placed(self, offset: int, place: int) -> Fetch | None:
        """A parked request stands at `place` in its topic (-1: somewhere); what has to be read now, for one that is to end."""
        if self._closed:
            return None
        self.parking.placed(offset, place)
        return self._early.read(offset, has_head=self._head is not None) if offset in self._early else None

    # --- it moves -------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Start nothing more. What waits is dropped unsettled: the next owner gets it again."""
        self._closed = True
        self._queue.clear()
        self._overflow.clear()
        self.parking.places.clear()
        self._behind_others.clear()
        if not self._calling and self._settled is None and not self._noting.intent:
            self._head = None
        self._early.keep(None if self._head is None else self._head.waiting.record.offset)

    def next(self, instant: Instant, *, may_call: bool = True) -> Step:
        """What is to be done now. After Start and Fetch the lane is Busy, after Settle its next record is the head."""
        if self._settled is not None:
            return self._settle(self._settled, instant)
        if self._overflow:
            return Settle(self._intake.overflown(self._overflow.pop(0), instant))
        if self._calling:
            return BUSY
        if self._noting.due is not None:
            return Tell(self._noting.take())
        if self._closed:
            head, self._head = self._head, None
            return CLOSED if head is None else self._withdrawn(head, instant) or CLOSED
        if self._head is not None and self._is_to_give_way:
            self._put_back(self._head)
        if self._head is None and (step := self._next_head(instant, may_call=may_call)) is not None:
            return step
        assert self._head is not None
        return self._next_of(self._head, instant, may_call=may_call)

    def _next_of(self, head: _Head, instant: Instant, *, may_call: bool) -> Step:
        """What is to be done for the request whose turn it is, which is in no call."""
        if head.request.deadline is not None and head.request.deadline <= instant.wall:
            return self._settle(self._endings.early(head.request, Expired(), head.waiting.tries.calls, instant), instant)
        if why := self._why_held(head.request.record.key):
            return self._withdrawn(head, instant) or Held(why)
        if (step := self._recalling.ask(head.request, instant, may_call=may_call)) is not None:
            if isinstance(step, Recall):
                self._queue.began(head.waiting)
            return self._settle(step, instant) if isinstance(step, Outcome) else step
        if head.waiting.not_before > instant.mono:
            return Wait(head.waiting.not_before, head.waiting.why)
        if self._noting.coming is not None:
            return BUSY  # `noted` comes with its acknowledgement
        if (gated := self.passage.ask(head.request, head.waiting, instant, may_call=may_call)) is not None:
            return self._settle(gated, instant) if isinstance(gated, Outcome) else self._withdrawn(head, instant) or gated
        if not may_call or self._noting.is_late(head.waiting.record, instant):
            return self._withdrawn(head, instant) or READY
        self.passage.let(head.request, instant.mono)
        if not self._noting.must_intend(head.request):
            return self._start(head, instant)
        return Intend(self._noting.intend(head.request, head.waiting, instant), head.request.call.upstream)

    def noted(self, note: Note) -> bool:
        """This stands in the state topic; whether the lane has waited for it."""
        return self._noting.acknowledge(note)

    def _withdrawn(self, head: _Head, instant: Instant) -> Tell | None:
        """Where a call was intended that may not start now: that it is not made."""
        if not self._noting.withdraw(head.waiting, instant):
            return None
        self.passage.cut_off(instant.mono)
        return Tell(self._noting.take())

    def answered(self, result: CallResult, instant: Instant, chance: float, used: Usage | None = None) -> Retry | Settled | Dead:
        """The call in flight ended with `result`, and was billed so; returns the verdict, which the lane has already taken in."""
        head = self._head
        if head is None or not self._calling:
            raise AssertionError("an answer without a call in flight")
        self._calling = False
        self.last_s = instant.mono - self._began
        waiting, finding = head.waiting.billed(used), finding_of(result, instant.wall)
        is_spared = self.passage.answered(head.request, result, finding, instant, used)
        its, tries = patience(head.request, self._decoder.settings, instant), waiting.tries
        verdict = judge(result, tries, its, instant, chance, finding=finding, is_spared=is_spared)
        early = self._early.pop(waiting.record.offset)
        if isinstance(verdict, Retry):
            waiting.tries, waiting.not_before, waiting.why = verdict.tries, verdict.at, verdict.why
            self._noting.attempted(waiting, instant)
            if early is not None:
                self._settled = self._endings.early(head.request, early, waiting.tries.calls, instant)
            elif self._closed:
                self._head = None
        else:
            self._settled = self._endings.judged(head.request, result, verdict, waiting.tries.calls, waiting.started, instant)
        return verdict

    def cut_off(self, instant: Instant) -> None:
        """The call in flight was cancelled, as `end` asked for, and has ended without an answer."""
        head = self._head
        if head is None or not self._calling:
            raise AssertionError("no call in flight was cut off")
        waiting = head.waiting
        early = self._early.pop(waiting.record.offset)
        assert isinstance(early, Cancelled)
        self._calling = False
        self.last_s = instant.mono - self._began
        self.passage.cancelled(waiting.record, instant.mono)
        self._settled = self._endings.cut_off(head.request, early, waiting.tries.calls, waiting.started, instant)

    def recalled(self, offset: int, recorded: Recorded | None, instant: Instant) -> None:
        """What is recorded for the original of the duplicate at `offset`; None where that is not there any more."""
        head = self._head
        if head is not None and head.waiting.record.offset == offset and self._settled is None:
            self._settled = self._recalling.recalled(head.request, recorded, instant)

    def abandoned(self, now: float) -> str | None:
        """The call in flight was cancelled with its assignment, and has ended; or it was about to begin. Returns its upstream."""
        return self.passage.cut_off(now)

    def holds(self, offset: int) -> bool:
        """Whether the request at `offset` is here and has not ended."""
        if self._head is not None and self._head.waiting.record.offset == offset:
            return self._settled is None
        return offset in self._early or offset in self._queue

    def end(self, offset: int, early: Early, instant: Instant) -> Outcome | Fetch | CutOff | None:
        """End the request at `offset` without a further call: its outcome, what has to be read for that, or the word to cut its call off.

        None where it is in a call, and ends with that one at the latest (which a deadline cuts off by itself), or is being cut off; where
        it is on its way back; and where it is not here.
        """
        head = self._head
        if head is not None and head.waiting.record.offset == offset:
            if self._calling:
                return self._early.in_call(offset, early)
            if self._settled is not None:
                return None
            self._head = None
            self._forget(instant)
            return self._endings.early(head.request, early, head.waiting.tries.calls, instant).billed(head.waiting.used)
        if (waiting := self._queue.remove(offset)) is not None:
            self._behind_others.went(waiting.record.key)
            return self._intake.end(waiting, early, instant)
        if not self.holds(offset):
            return None
        return self._early.parked(offset, early, has_head=self._head is not None)

    def is_waiting_long(self, instant: Instant, long_s: float) -> bool:
        """Whether nothing of it can start for `long_s` seconds to come."""
        if self._calling or self._noting.intent or self._settled is not None or self._queue.awaited:
            return False
        why, until = self.why(instant)
        return why not in {"", UNPUBLISHED} and (until is None or until - instant.mono >= long_s)

    def queue_s(self, now: float) -> float:
        """How long what is queued in memory will take, going by the call in hand and the last one, seconds."""
        pace_s = max(self.last_s, now - self._began if self._calling else 0.0)
        return pace_s * len(self._queue)

    def park(self, keep: int, bounds: Bounds, instant: Instant) -> Moved:
        """Move what waits out of memory, but for the first `keep` that are queued. Where nothing is kept, a head that waits goes first.

        What is over `bounds` stays, in its place; but what would be refused for its size in its turn ends now.
        """
        queue = self._queue
        moved: Moved = ([], [])
        if self._closed or queue.awaited or self._settled is not None:
            return moved
        queue.refill(instant)
        may_go = not self._calling and not self._noting.intent and keep == 0
        tried = self._head.waiting if self._head is not None and may_go else None
        if tried is not None:
            self.passage.put_off(tried, instant.mono)
        if goes := self.parking.move(tried, keep, bounds, instant, moved):
            self._head = None
            self._noting.forget()
        self.passage.put_aside(goes=goes)
        moved[0].extend(self._intake.refused(waiting, instant) for waiting in self.parking.take_too_large(bounds))
        return moved

    def _next_head(self, instant: Instant, *, may_call: bool) -> Step | None:
        """Make the next record the head; what is to be done instead, where that cannot be or where it ended at once."""
        first = self._queue.turn(instant)
        if first is None:
            return BUSY if self._queue.awaited else IDLE
        if isinstance(first, Entry):
            return self._next_parked(first, instant, may_call=may_call)
        if (why := self._why_held(first.record.key)) and not self._intake.is_begun(first.record.offset):
            return Held(why)
        refused = self._take(first, instant)
        return None if refused is None else self._settle(refused, instant)

    def _next_parked(self, first: Entry, instant: Instant, *, may_call: bool) -> Step:
        if why := self._why_held(first.key):
            return Held(why)
        if (due := self._queue.due(instant)) > instant.mono:
            return Wait(due, first.why)
        if not self.parking.is_placed(first.offset):
            return BUSY  # `placed` comes with its acknowledgement
        if not may_call:
            return READY
        return Fetch(self.parking.take_first())

    def _take(self, waiting: Waiting, instant: Instant) -> Outcome | None:
        self._queue.take(waiting)
        self._behind_others.went(waiting.record.key)
        taken = self._intake.take(waiting, instant)
        if isinstance(taken, Outcome):
            return taken
        self._head = _Head(taken, waiting)
        self._recalling.begin(taken, waiting)
        return None

    def _put_back(self, head: _Head) -> None:
        """It is not its turn after all."""
        self._head = None
        self._queue.put_back(head.waiting)
        self._behind_others.came(head.waiting.record.key)

    def _forget(self, instant: Instant) -> None:
        """The request whose turn it was has ended: what was said of it, and a call of it that was about to begin."""
        self._noting.forget()
        self.passage.cut_off(instant.mono)

    def _start(self, head: _Head, instant: Instant) -> Start:
        self._calling = True
        self._began = instant.mono
        waiting = head.waiting
        tries = waiting.tries = Tries(waiting.tries.calls + 1, waiting.tries.failures, waiting.tries.hinted_since)
        first = waiting.started is None
        if waiting.started is None:
            waiting.started = instant.mono
            self._queue.began(waiting)
        call = fenced(head.request, self.owner, self.key, tries.calls, instant.wall)
        behind_s = self._behind_others.waited_s(waiting.record.key, waiting.arrived, instant.mono)
        waited_s = instant.mono - waiting.arrived
        return Start(call, head.request, tries.calls, waited_s, behind_s if first else 0.0, limited_s=self.passage.limited_s)

    def _settle(self, outcome: Outcome, instant: Instant) -> Settle:
        outcome = outcome.billed(None if self._head is None else self._head.waiting.used)
        self._settled = self._head = None
        self._forget(instant)
        self._behind_others.ended(outcome.record.key if outcome.record else None, instant.mono)
        return Settle(outcome)
