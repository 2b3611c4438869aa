"""The requests of a lane behind its head, in order: those in memory, and the places of those that are parked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, takewhile
from typing import Self

from dispatcher.core.callees.line import LIMIT
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import Entry, Parked, until_at
from dispatcher.core.internal.tried import Tried
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import PRIORITY_USUAL
from dispatcher.core.messages.usage import Usage


@dataclass(slots=True)
class Waiting:
    """A record in memory. `place` in the parked topic where it was there before; the rest is what has happened to it.

    `agent` who asks, where that matters before its turn (`worker.fairness`).
    """

    record: Record
    arrived: float
    place: int | None = None
    tries: Tries = Tries()
    not_before: float = 0.0
    why: str = ""
    started: float | None = None  # first call, monotonic
    used: Usage | None = None  # what its answers were billed for so far
    agent: str = ""

    def recall(self, known: MutableMapping[int, Tried], instant: Instant) -> bool:
        """Take in what an earlier owner has noted of its tries, if that is among what is `known`, for good.

        Returns whether a call may have been made of which nothing more is known.
        """
        tried = known.pop(self.record.offset, None)
        if tried is None:
            return False
        self.tries, self.not_before, self.why = tried.tries_at(instant), tried.until_at(instant), tried.why
        self.started, self.used = tried.started_at(instant), tried.used
        return tried.begun

    def billed(self, used: Usage | None) -> Self:
        """An answer to it was billed so."""
        if used is not None:
            self.used = used if self.used is None else self.used + used
        return self


def read_back(one: Parked, place: int, instant: Instant) -> Waiting:
    """A request that was parked at `place`, and is in memory again. One that waited for a limit asks anew: it may have been called back."""
    until = 0.0 if one.why == LIMIT else one.until_at(instant)
    waiting = Waiting(one.record, instant.mono, place, one.tries_at(instant), until, one.why)
    waiting.started, waiting.used = one.started_at(instant), one.used
    return waiting


class LaneQueue:
    """Owned by one Lane. In order: `front` in memory, `awaited` (on their way back), `parked`, `back` in memory: so are the turns.

    Each is in the order of the log, so that one of many thousands is found by halves: those who cancel may cancel them all. Newer
    records queue behind. Of what an earlier owner had parked, some may stand in `back` too, between records that it had not.
    Lists, since most are short or empty, and there are many: an empty deque takes 760 bytes, and moving up 4,000 records one microsecond.
    """

    __slots__ = ("_behind", "_due", "awaited", "back", "front", "parked")

    def __init__(self) -> None:
        self.front: list[Waiting] = []
        self.awaited: tuple[Entry, ...] = ()
        self.parked: list[Entry] = []
        self._due = 0.0  # of the first of `parked`, monotonic
        self.back: list[Waiting | Entry] = []
        self._behind = 0  # parked ones in `back`

    def __len__(self) -> int:
        """How many are in memory."""
        return len(self.front) + len(self.back) - self._behind

    def __contains__(self, offset: int) -> bool:
        return any(find(queue, offset) is not None for queue in (self.front, self.awaited, self.parked, self.back))

    @property
    def aside(self) -> int:
        """How many have left memory: parked, or on their way back."""
        return len(self.awaited) + len(self.parked) + self._behind

    @property
    def first_offset(self) -> int | None:
        """Where the first of all stands in the log."""
        first = self._first
        return None if first is None else offset_of(first)

    def first_key(self, default: bytes | None) -> bytes | None:
        """The key of the first of all; `default` where there is none."""
        first = self._first
        if first is None:
            return default
        return first.record.key if isinstance(first, Waiting) else first.key

    @property
    def first_priority(self) -> int:
        """The priority of the first of all, where it is known before its turn: of what is parked."""
        first = self._first
        return first.priority if isinstance(first, Entry) else PRIORITY_USUAL

    @property
    def _first(self) -> Waiting | Entry | None:
        return next(chain(self.front, self.awaited, self.parked, self.back), None)

    def due(self, instant: Instant) -> float:
        """When the first of all is to be read, where it is parked: monotonic seconds, 0 for at once."""
        del instant
        return self._due if self.parked and not self.front else 0.0

    def is_foremost(self, offset: int, *, has_head: bool) -> bool:
        """Whether that request has nothing before it that has to end first, nor the one whose turn it is, if there is one."""
        return not has_head and self.first_offset == offset

    def passes(self, offset: int) -> bool:
        """Whether the request of that offset, whose turn it is, stands before an older one that has to go first now."""
        del offset
        return False

    # --- turns ----------------------------------------------------------------------------------------------------------------------

    def turn(self, instant: Instant) -> Waiting | Entry | None:
        """Whose turn it is; None where nothing is left, or where it is on its way back."""
        if not self.front and not self.awaited:
            self.refill(instant)
        if self.front:
            return self.front[0]
        return None if self.awaited else next(iter(self.parked), None)

    def take(self, waiting: Waiting) -> None:
        """It has its turn, and leaves the line."""
        assert waiting is self.front[0]
        del self.front[0]

    def put_back(self, waiting: Waiting) -> None:
        """It had its turn, and nothing came of it."""
        self.front.insert(0, waiting)

    def began(self, waiting: Waiting) -> None:
        """Its first call begins, or what takes as long."""

    def next_parked(self, count: int, is_placed: Callable[[int], bool]) -> tuple[Entry, ...]:
        """What of the parked ones has its turn next, in order: so many at most, and only what can be read."""
        return tuple(takewhile(lambda one: is_placed(one.offset), self.parked[:count]))

    def send_for(self, entries: tuple[Entry, ...]) -> None:
        """These of the parked ones, the first, are on their way back from now on."""
        del self.parked[: len(entries)]
        self._due = 0.0
        self.awaited = entries

    def hasten(self) -> None:
        """Whose turn it is, and is parked, is to be read at once."""
        self._due = 0.0

    def came_back(self, waiting: Waiting) -> None:
        """One that was awaited is in memory again; in the order in which they were sent for."""
        self.front.append(waiting)

    def gone(self, offset: int) -> None:
        """One that was awaited will not have its turn."""

    def behind_first(self, keep: int) -> list[Waiting]:
        """What can be moved aside but for the first `keep`: what stands in front."""
        return self.front[keep:]

    # --- the line -------------------------------------------------------------------------------------------------------------------

    def waiting(self) -> Iterator[Waiting]:
        """What is in memory."""
        return (one for one in chain(self.front, self.back) if isinstance(one, Waiting))

    def add(self, waiting: Waiting) -> None:
        """Newer than all that is here."""
        (self.back if self.back or self.parked or self.awaited else self.front).append(waiting)

    def restore(self, entries: Iterable[Entry], instant: Instant) -> None:
        """Parked before, in order: each comes where it stood in the log. Nothing was parked or admitted yet."""
        read: list[Waiting | Entry] = [*self.front]
        parked: list[Waiting | Entry] = [*entries]
        self.back = list(merge(read, parked, key=offset_of))
        self.front.clear()
        self._behind = len(parked)
        self.refill(instant)

    def admit(self, entry: Entry, due: float) -> None:
        """Parked before, and newer than all that is here; `due` in monotonic seconds, 0 for at once."""
        if self.back:
            self.back.append(entry)
            self._behind += 1
            return
        if not self.parked:
            self._due = due
        self.parked.append(entry)

    def refill(self, instant: Instant) -> None:
        """What `back` begins with comes forward, where nothing stands before it any more."""
        if self.parked or self.awaited:
            return
        taken = 0
        for one in self.back:
            if isinstance(one, Entry):
                self.parked.append(one)
            elif not self.parked:
                self.front.append(one)
            else:
                break
            taken += 1
        del self.back[:taken]
        self._behind -= len(self.parked)
        if self.parked:
            self._due = until_at(self.parked[0].due, instant)

    @property
    def has_behind(self) -> bool:
        """Whether something is in memory behind what is parked."""
        return len(self.back) > self._behind

    def move_front(self, keep: int, line: Sequence[tuple[Waiting, Entry | None]]) -> None:
        """Of what stands in front, behind the first `keep`, some is parked now: each with what is kept of it, None where it stays."""
        first = next((n for n, (_, entry) in enumerate(line) if entry is not None), None)
        if first is None:
            return
        self.front[keep:] = [waiting for waiting, _ in line[:first]]
        self._due = line[first][0].not_before
        behind = [*(entry or waiting for waiting, entry in line[first:]), *self.parked, *self.back]
        self.parked.clear()
        self.move_back(behind)

    def move_back(self, back: list[Waiting | Entry]) -> None:
        """This stands behind what is parked now, in order; what it begins with that is parked comes forward."""
        parked = [one for one in takewhile(lambda one: isinstance(one, Entry), back) if isinstance(one, Entry)]
        self.parked += parked
        self.back = back[len(parked) :]
        self._behind = sum(isinstance(one, Entry) for one in self.back)

    def remove(self, offset: int) -> Waiting | None:
        """Take one that is in memory out of the line."""
        for queue in (self.front, self.back):
            place = find(queue, offset)
            if place is not None and isinstance(found := queue[place], Waiting):
                del queue[place]
                return found
        return None

    def remove_parked(self, offset: int) -> Entry | None:
        """Take one that is parked out of the line."""
        for queue in (self.parked, self.back):
            place = find(queue, offset)
            if place is not None and isinstance(found := queue[place], Entry):
                if queue is self.back:
                    self._behind -= 1
                elif place == 0:
                    self._due = 0.0
                del queue[place]
                return found
        return None

    def clear(self) -> None:
        """Forget all."""
        self.front.clear()
        self.parked.clear()
        self.back.clear()
        self.awaited = ()
        self._behind = 0


def offset_of(one: Waiting | Entry) -> int:
    """Where a request stands in the log."""
    return one.record.offset if isinstance(one, Waiting) else one.offset


def find(queue: Sequence[Waiting | Entry], offset: int) -> int | None:
    """Where the request of that offset stands in a queue."""
    place = bisect_left(queue, offset, key=offset_of)
    return place if place < len(queue) and offset_of(queue[place]) == offset else None
