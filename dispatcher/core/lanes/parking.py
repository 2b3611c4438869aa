"""Moving requests that wait long out of a lane's memory, into the parked topic, and knowing where they stand there."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from itertools import takewhile

from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import Entry, Parked, parked
from dispatcher.core.internal.tried import Tried
from dispatcher.core.lanes.lane_queue import LaneQueue, Waiting
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder

# Parked requests that are read back at once: some calls of a lane, little memory for all lanes.
FETCH_MAX = 16
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
        queue = self._queue
        batch = tuple(self._located(entry) for entry in takewhile(lambda one: self.is_placed(one.offset), queue.parked[:FETCH_MAX]))
        del queue.parked[: len(batch)]
        queue.due = 0.0
        queue.awaited = batch
        return batch

    def move_front(self, tried: Waiting | None, keep: int, size_max: int, instant: Instant, moved: Moved) -> bool:
        """Move the head, if it is one that waits, and what stands in front in memory, but for the first `keep`; whether that was done.

        What is over `size_max` bytes stays, and all that it would overtake; and so does what a call may have been made of.
        """
        queue = self._queue
        ahead = [*([] if tried is None else [tried]), *queue.front[keep:]]
        if not ahead or not self._may_move(ahead, size_max):
            return False
        del queue.front[keep:]
        queue.parked[:0] = [self._move(waiting, instant, moved, changed=waiting is tried) for waiting in ahead]
        queue.due = ahead[0].not_before
        return True

    def move_back(self, size_max: int, instant: Instant, moved: Moved) -> None:
        """Move what stands in memory behind what is parked."""
        queue = self._queue
        while (waiting := queue.behind()) is not None and self._may_move((waiting,), size_max):
            queue.back.pop(0)
            queue.parked.append(self._move(waiting, instant, moved, changed=False))

    def _may_move(self, all_of: Iterable[Waiting], size_max: int) -> bool:
        known = self._tried
        records = (waiting.record for waiting in all_of)
        return all(of.size_bytes <= size_max and not (of.offset in known and known[of.offset].begun) for of in records)

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
        return parked(waiting.record, waiting.tries, waiting.not_before, waiting.why or "queued", instant, waiting.started, waiting.used)

    def _located(self, entry: Entry) -> Entry:
        place = self.places.pop(entry.offset, None)
        return entry if place is None else replace(entry, place=place)
