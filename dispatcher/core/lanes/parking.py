"""Moving requests that wait long out of a lane's memory, into the parked topic, and knowing where they stand there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, replace

from dispatcher.core.callees.line import LIMIT
from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import Entry, Parked, parked
from dispatcher.core.internal.tried import Tried
from dispatcher.core.lanes.lane_queue import LaneQueue, Waiting, read_back
from dispatcher.core.lanes.ledger import BUDGET
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder

# Parked requests that are read back at once: some calls of a lane, little memory for all lanes.
FETCH_MAX = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may be moved: records of at most so many bytes each, and so many of them."""

    size_bytes: int
    records: int = sys.maxsize


# Outcomes to be published, in this order; and records that only leave memory again, since they stand in the parked topic as they are.
Moved = tuple[list[Outcome], list[Record]]


class Parking:
    """Owned by one Lane, whose queue it moves. `tried`: what earlier owners have noted of requests, by offset."""

    __slots__ = ("_decoder", "_owner", "_queue", "_tried", "places")

    def __init__(self, owner: Owner, decoder: Decoder, queue: LaneQueue, tried: MutableMapping[int, Tried]) -> None:
        self._owner = owner
        self._decoder = decoder
        self._queue = queue
        self._tried = tried
        self.places: dict[int, int | None] = {}  # in the parked topic, by offset; None where it is not known yet to stand there

    def placed(self, offset: int, place: int) -> None:
        """A parked request stands at `place` in its topic (-1: somewhere)."""
        if place >= 0:
            self.places[offset] = place
        else:
            self.places.pop(offset, None)

    def is_placed(self, offset: int) -> bool:
        """Whether a parked request can be read: it is known to stand in its topic."""
        return self.places.get(offset, -1) is not None

    def take(self, offset: int) -> Entry | None:
        """Take a parked request out of the line, to read it; None where that cannot be done yet."""
        entry = self._queue.remove_parked(offset) if self.is_placed(offset) else None
        return None if entry is None else self._located(entry)

    def take_first(self) -> tuple[Entry, ...]:
        """Take what is to be read next, in order; it is awaited from now on."""
        batch = tuple(map(self._located, self._queue.next_parked(FETCH_MAX, self.is_placed)))
        self._queue.send_for(batch)
        return batch

    def fetched(self, found: Iterable[Parked], missing: Iterable[Entry], instant: Instant) -> list[Waiting]:
        """The payloads of what was sent for; what is missing is gone. Returns what has come, in order, and does not queue it."""
        queue = self._queue
        found, places = list(found), {entry.offset: entry.place for entry in queue.awaited}
        answered = {one.record.offset for one in found}
        for entry in missing:
            answered.add(entry.offset)
            queue.gone(entry.offset)
        queue.awaited = tuple(entry for entry in queue.awaited if entry.offset not in answered)
        return [read_back(one, places.get(one.record.offset, -1), instant) for one in found]

    def hasten(self, instant: Instant) -> None:
        """What is parked before a limit is read back at once, if it is its turn."""
        first = self._queue.turn(instant)
        if isinstance(first, Entry) and first.why == LIMIT:
            self._queue.hasten()

    def move(self, tried: Waiting | None, keep: int, bounds: Bounds, instant: Instant, moved: Moved) -> bool:
        """Move what stands in memory behind the first `keep`, `tried` before all, which is a head that waits; whether that went.

        What is over the bounds stays, and so does what a call may have been made of: each in its place between the others' places.
        """
        queue = self._queue
        ahead = [*([] if tried is None else [tried]), *queue.behind_first(keep)]
        line = [(waiting, self._moved(waiting, bounds, instant, moved, changed=waiting is tried)) for waiting in ahead]
        goes = tried is not None and line[0][1] is not None
        queue.move_front(keep, line[tried is not None and not goes :])
        if queue.has_behind:
            queue.move_back([self._moved(one, bounds, instant, moved) or one if isinstance(one, Waiting) else one for one in queue.back])
        return goes

    def take_too_large(self, bounds: Bounds) -> list[Waiting]:
        """Take out of the line what cannot be moved and would be refused for its size in its turn: some of it would fill the memory."""
        limit, queue = self._decoder.settings.topics.request_max_bytes, self._queue
        large = [one for one in queue.waiting() if len(one.record.value or b"") > limit and one.record.size_bytes > bounds.size_bytes]
        for waiting in large:
            queue.remove(waiting.record.offset)
        return large

    def _moved(self, waiting: Waiting, bounds: Bounds, instant: Instant, moved: Moved, *, changed: bool = False) -> Entry | None:
        """What is kept of one that is moved; None where it has to stay."""
        record = waiting.record
        if (known := self._tried.get(record.offset)) is not None and known.begun:
            return None
        if (waiting.place is None or changed) and (record.size_bytes > bounds.size_bytes or len(moved[0]) >= bounds.records):
            return None
        return self._move(waiting, instant, moved, changed=changed)

    def _move(self, waiting: Waiting, instant: Instant, moved: Moved, *, changed: bool) -> Entry:
        """Turn a record into what is kept of it, and note what has to be done for that.

        What an earlier owner noted of its tries moves with it; of one that stands in the parked topic as it is, that stays where it is.
        """
        outcomes, released = moved
        record = waiting.record
        if waiting.place is not None and not changed:
            released.append(record)
            return self._parked(waiting, instant).entry(waiting.place)
        waiting.recall(self._tried, instant)
        one = self._parked(waiting, instant)
        self.places[record.offset] = None
        message = one.message(self._decoder.settings.topics.parked, self._decoder.topic_id)
        outcomes.append(Outcome(self._owner, record, None, extra=(message,), parks=True, extra_bytes=message.size_bytes))
        return one.entry()

    def _parked(self, waiting: Waiting, instant: Instant) -> Parked:
        # Who takes it over asks for himself what is left: he may have been given another budget.
        until = 0.0 if waiting.why == BUDGET else waiting.not_before
        return parked(waiting.record, waiting.tries, until, waiting.why or "queued", instant, waiting.started, waiting.used)

    def _located(self, entry: Entry) -> Entry:
        place = self.places.pop(entry.offset, None)
        return entry if place is None else replace(entry, place=place)
