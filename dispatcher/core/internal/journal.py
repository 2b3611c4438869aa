"""What a partition remembers of requests that ended, for as long as the dedup window: whether one that comes is a duplicate, and of what.

Only requests whose sender gave them an id are remembered: others have the name of their place, which nothing else can have. Within a
lane key, an id is one request. Under another key the same id is another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

from dispatcher.core.internal.finished import Finished
from dispatcher.core.messages.fingerprint import SIZE_BYTES
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.status import Status

# An entry: name, fingerprint, offset, time, status, calls (0, 1: some), where the reply is, redrive. With its place in a dictionary and in
# the line it takes about 230 bytes, where objects would take 900.
_ROW = Struct(f">{SIZE_BYTES}s{SIZE_BYTES}sqdBBI8s")
_NAME = slice(0, SIZE_BYTES)
_STATUSES = tuple(Status)
# The callee has answered for good. Other ends leave something to be wished, and whoever redrives a request wishes it.
_ANSWERED = frozenset({Status.OK, Status.ERROR})
_NO_REDRIVE = bytes(8)
# Where a request stood whose offset is another one's by now.
_BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose turn it is, as far as it matters here."""

    request_id: str
    key: bytes
    offset: int
    fingerprint: bytes
    redrive_id: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """It is a duplicate: the request at `offset` of this partition ended so at `at`, and its reply is in that partition of that topic."""

    offset: int
    status: Status
    at: float
    reply_topic: str
    reply_partition: int


@dataclass(frozen=True, slots=True)
class Coming:
    """It is a duplicate of the request at `offset`, whose end is not published yet: its reply is not to be read before that."""

    offset: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """It is a duplicate of a younger one that has ended, which cannot be published before this one has: what that reply will say."""

    known: Known
    recorded: Recorded | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another request had that id."""


CONFLICT = Conflict()
# Tells of a request, at a wall-clock time, whether it is a duplicate.
Find = Callable[[Asked, float], Known | Coming | Ahead | Conflict | None]
IsSettled = Callable[[int], bool]


def _in_order(_: int) -> bool:
    """Nothing behind a request has ended before it."""
    return False


class Journal:
    """Owned by one Partition, and by who reads it back before. Times are wall clock, seconds; it holds `entries_max` entries at most.

    `is_fenced`: a request and its end are committed together, so that one that is read again is meant to be executed again.
    """

    __slots__ = (
        "_coming",
        "_entries_max",
        "_is_fenced",
        "_last",
        "_line",
        "_lost",
        "_place_of",
        "_places",
        "_rows",
        "_window_s",
        "dropped",
    )

    def __init__(self, window_s: float, entries_max: int, *, is_fenced: bool = True) -> None:
        self._window_s = window_s
        self._entries_max = entries_max
        self._is_fenced = is_fenced
        self._rows: dict[bytes, bytes] = {}
        self._line: deque[bytes] = deque()  # the same rows, the oldest first; some of them have been superseded
        self._coming: dict[bytes, Finished] = {}  # not published yet
        self._places: list[tuple[str, int]] = []
        self._place_of: dict[tuple[str, int], int] = {}
        self._last = -1  # the highest offset of an entry
        self._lost: frozenset[bytes] = frozenset()  # the rows of requests that the log has lost
        self.dropped = 0  # entries that went before their time, since there were more than it may hold

    def __len__(self) -> int:
        return len(self._rows) + len(self._coming)

    def find(self, asked: Asked, now: float, is_settled: IsSettled = _in_order) -> Known | Coming | Conflict | None:
        """Whether a request is a duplicate, of what, and how that ended; None for one that is to be executed.

        `is_settled` tells of lanes out of the order of the log whether the request at an offset has ended under this position.
        """
        name = _name(asked.key, asked.request_id)
        coming = self._coming.get(name)
        if coming is not None and self._answers(coming.offset, coming.status, _redrive(coming.redrive_id), asked, is_settled):
            return Coming(coming.offset) if coming.fingerprint == asked.fingerprint else CONFLICT
        row = self._rows.get(name)
        if row is None:
            return None
        _, fingerprint, offset, at, status, _, place, redrive = _ROW.unpack(row)
        stood_at = _BEFORE_ALL if row in self._lost else offset
        if at + self._window_s <= now or not self._answers(stood_at, _STATUSES[status], redrive, asked, is_settled):
            return None
        if fingerprint != asked.fingerprint:
            return CONFLICT
        return Known(offset, _STATUSES[status], at, *self._places[place])

    def expect(self, finished: Finished, is_settled: IsSettled = _in_order) -> bool:
        """A request has ended so, which will be published; False where that is not to be told, as another end of its id counts.

        What ends without a call and behind its original is no execution: a duplicate that was cancelled must not hide the answer.
        """
        if finished.calls == 0 and self.find(_asked(finished), finished.at, is_settled) is not None:
            return False
        self._coming[_name(finished.key, finished.request_id)] = finished
        return True

    def confirm(self, finished: Finished) -> None:
        """That end is published, perhaps as something else than was expected."""
        name = _name(finished.key, finished.request_id)
        expected = self._coming.get(name)
        if expected is not None and expected.offset == finished.offset:
            del self._coming[name]
        self.add(finished, finished.at)

    def add(self, finished: Finished, now: float) -> None:
        """An end that stands in the journal; they come in the order of the log. `now` decides what is too old to be kept."""
        name = _name(finished.key, finished.request_id)
        if finished.at + self._window_s <= now or (finished.calls == 0 and self._is_answered(name, finished)):
            return
        redrive, place = _redrive(finished.redrive_id), self._place(finished.reply_topic, finished.reply_partition)
        status = _STATUSES.index(finished.status)
        row = _ROW.pack(name, finished.fingerprint, finished.offset, finished.at, status, finished.calls > 0, place, redrive)
        self._last = max(self._last, finished.offset)
        self._rows[name] = row
        self._line.append(row)
        self._forget(now)
        if len(self._line) > 2 * self._entries_max:
            # Behind one that stays, many may have been superseded.
            self._line = deque(one for one in self._line if self._rows.get(one[_NAME]) is one)

    def lose(self, log_end: int) -> None:
        """The log ends there: what has ended at or beyond it, its broker has lost. It was before whatever comes, and answers that."""
        if self._last >= log_end:
            self._lost = frozenset(row for row in self._rows.values() if _ROW.unpack(row)[2] >= log_end)

    def _is_answered(self, name: bytes, finished: Finished) -> bool:
        """Whether an end without a call says nothing beside what is known."""
        row = self._rows.get(name)
        if row is None:
            return False
        _, _, _, _, status, was_called, _, redrive = _ROW.unpack(row)
        return bool(was_called) and _counts(_STATUSES[status], redrive, finished.redrive_id)

    def _forget(self, now: float) -> None:
        """Let go of what is too old, and of the oldest where there are too many."""
        rows, line = self._rows, self._line
        while line:
            oldest = line[0]
            is_current = rows.get(oldest[_NAME]) is oldest
            if is_current and len(rows) <= self._entries_max and _ROW.unpack(oldest)[3] + self._window_s > now:
                return
            line.popleft()
            if is_current:
                del rows[oldest[_NAME]]
                self.dropped += _ROW.unpack(oldest)[3] + self._window_s > now

    def _answers(self, offset: int, status: Status, redrive: bytes, asked: Asked, is_settled: IsSettled) -> bool:
        """Whether an end of this id answers this request: one of a request before it, or its own where nothing says that it was published.

        A position may have been moved back: what stands before the original, or is it, is executed again then. Where lanes are not in the
        order of the log the original may stand behind: it will not be executed again if it has ended under this position.
        """
        if (offset > asked.offset and not is_settled(offset)) or (offset == asked.offset and self._is_fenced):
            return False
        return _counts(status, redrive, asked.redrive_id)

    def _place(self, topic: str, partition: int) -> int:
        place = self._place_of.get((topic, partition))
        if place is None:
            place = self._place_of[topic, partition] = len(self._places)
            self._places.append((topic, partition))
        return place


def _counts(status: Status, redrive: bytes, redrive_id: str) -> bool:
    """Whether an end answers a request with that redrive id: what was redriven is executed anew, unless the callee has answered since."""
    return status in _ANSWERED or not redrive_id or redrive == _redrive(redrive_id)


def _asked(finished: Finished) -> Asked:
    return Asked(finished.request_id, finished.key, finished.offset, finished.fingerprint, finished.redrive_id)


def _name(key: bytes, request_id: str) -> bytes:
    """One name for an id under a key. The key's length keeps the two apart."""
    return blake2b(len(key).to_bytes(4) + key + request_id.encode(), digest_size=SIZE_BYTES).digest()


def _redrive(redrive_id: str) -> bytes:
    return blake2b(redrive_id.encode(), digest_size=8).digest() if redrive_id else _NO_REDRIVE
