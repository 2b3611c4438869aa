"""A partition's log: records, the holes between them, open transactions, and who waits for more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from dispatcher.core.messages.record import Message, Record

State = Literal["there", "open", "aborted", "marker", "compacted"]


@dataclass(slots=True)
class Entry:
    """What stands at one offset."""

    content: Record | Message | None
    state: State
    at: float = 0.0  # when it was written, on the world's clock


@dataclass(slots=True, eq=False)
class Writes:
    """What one transaction has written to logs: those entries become readable, or never do, by a marker in each log."""

    entries: dict[Log, list[Entry]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Log:
    """One partition of a topic. Offsets are indices; `start` is the first one that retention has left."""

    name: str
    partition: int
    start: int = 0
    now: Callable[[], float] = lambda: 0.0
    entries: list[Entry] = field(default_factory=list)
    _open: dict[Writes, int] = field(default_factory=dict)  # open transaction -> its first offset here
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where the next record goes."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """How far readers of committed records get: the last stable offset."""
        return min(self._open.values(), default=self.end)

    def append(self, content: Record | Message | None, state: State = "there", writes: Writes | None = None) -> int:
        """Write one entry, as part of a transaction if there is one; returns its offset."""
        offset = self.end
        entry = Entry(content, state if writes is None else "open", self.now())
        self.entries.append(entry)
        if writes is not None:
            writes.entries.setdefault(self, []).append(entry)
            self._open.setdefault(writes, offset)
        self._tell()
        return offset

    def mark(self, writes: Writes, *, commit: bool) -> None:
        """Write the marker that ends a transaction here."""
        for entry in writes.entries.pop(self, ()):
            entry.state = "there" if commit else "aborted"
        self._open.pop(writes, None)
        self.entries.append(Entry(None, "marker"))
        self._tell()

    def read(self, position: int, most: int) -> tuple[list[tuple[int, Entry]], int]:
        """Committed records from `position` on, and the position behind what was looked at."""
        found: list[tuple[int, Entry]] = []
        stable = self.stable_end
        while position < stable and len(found) < most:
            entry = self.entries[position]
            if entry.state == "there":
                found.append((position, entry))
            position += 1
        return found, position

    def since(self, at: float) -> int:
        """Where the first record of that time or later stands, whatever became of it; where it is stable to, if none stands before that."""
        there = (n for n in range(self.start, self.stable_end) if self.entries[n].at >= at and self.entries[n].state != "marker")
        return next(there, self.stable_end)

    def record(self, offset: int) -> Record:
        """Give what stands at an offset as a reader sees it."""
        content = self.entries[offset].content
        if isinstance(content, Message):
            return Record(content.topic, self.partition, offset, content.key, content.value, content.headers)
        assert content is not None
        return content

    def compact(self) -> None:
        """Remove what a later committed record of its key supersedes. Tombstones stay for longer than any world lasts."""
        seen: set[bytes | None] = set()
        for entry in reversed(self.entries[: self.stable_end]):
            if entry.state == "there" and entry.content is not None:
                if entry.content.key in seen:
                    entry.state = "compacted"
                seen.add(entry.content.key)

    def on_more(self, call: Callable[[], None]) -> None:
        """Call once when something is written, or a transaction ends."""
        self._waiting.append(call)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
