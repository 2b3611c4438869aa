"""The parked topic as its readers want it: which requests are parked, and the requests themselves.

Both are done in steps, so that one thread can see to several and to other things meanwhile: a step yields whether it waits for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from dispatcher.adapters.kafka.compacted import Ended, Items
from dispatcher.core.outcome import Owner
from dispatcher.core.parked import Entry, Parked, read_key, read_parked
from dispatcher.core.record import Record
from dispatcher.worker.letters import Fetch

# Payloads that lie closer to each other than this are read in one go: about what another question to Kafka costs.
GAP_BYTES = 256 * 1024

Steps = Generator[bool, None, None]
_T = TypeVar("_T")


class Reader(Protocol):
    """What reads compacted topics (`dispatcher.adapters.kafka.compacted.CompactedReader`), which the simulator replaces.

    All raise BrokerAway where Kafka does not answer, BrokerDenied where a right is missing. `ends` counts what open transactions hold;
    `read` waits for them, and yields None each time that it has waited a moment, and Ended behind each partition.
    """

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]: ...
    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Items: ...
    def follow(self, topic: str, offset: int) -> None: ...
    def news(self, timeout_s: float) -> list[Record]: ...
    def close(self) -> None: ...


class Log(Protocol):
    """A structured logger."""

    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...


@dataclass(frozen=True, slots=True)
class _Of:
    """What a record of ours is about: the original's offset, and the request; None for that in a tombstone."""

    offset: int
    request: Parked | None


@dataclass(slots=True)
class _Fold:
    """A partition while it is read: the last record of a key counts."""

    entries: dict[int, Entry] = field(default_factory=dict)
    ignored: int = 0

    def take(self, record: Record, of: _Of | None) -> None:
        if of is None:
            self.ignored += 1
        else:
            _put(self.entries, of.offset, None if of.request is None else of.request.entry(record.offset))


@dataclass(slots=True)
class _Index:
    """Where the requests of one assignment are parked: everything up to `position` is taken in. `places` by the originals' offsets."""

    owner: Owner
    position: int = 0
    places: dict[int, int] = field(default_factory=dict)


class ParkedLog:
    """Owned by the restorer. Keeps where things are parked (no payloads) for the assignments that it restored."""

    def __init__(self, topic: str, requests_topic: str, topic_id_text: str, reader: Reader, log: Log) -> None:
        self._topic = topic
        self._requests_topic = requests_topic
        self._topic_id_text = topic_id_text
        self._reader = reader
        self._log = log
        self._indexes: dict[int, _Index] = {}

    def forget(self, owner: Owner) -> None:
        """This assignment is over."""
        index = self._indexes.get(owner.partition)
        if index is not None and index.owner == owner:
            del self._indexes[owner.partition]

    def restore(self, owners: Mapping[int, Owner], restored: Callable[[Owner, list[Entry]], None]) -> Steps:
        """Read partitions whole, up to the end that is there now, and tell `restored` what is parked in each as soon as it is known.

        `owners`, by partition, may lose members meanwhile: assignments that were told, or are over.
        """
        asked = tuple(owners)
        ends = self._reader.ends(self._topic, asked)
        folds = {n: _Fold() for n in asked}
        with closing(self._reader.read(self._topic, {n: (0, ends[n]) for n in asked})) as items:
            for item in items:
                if isinstance(item, Record):
                    folds[item.partition].take(item, self._read(item))
                elif isinstance(item, Ended) and item.partition in owners:
                    self._tell(owners[item.partition], ends[item.partition], folds.pop(item.partition), restored)
                yield item is None
                if not owners:
                    return

    def _tell(self, owner: Owner, end: int, fold: _Fold, restored: Callable[[Owner, list[Entry]], None]) -> None:
        """A partition has been read: keep where everything is, and tell."""
        entries = [fold.entries[n] for n in sorted(fold.entries)]
        self._indexes[owner.partition] = _Index(owner, end, {entry.offset: entry.place for entry in entries})
        if fold.ignored:
            hint = "of a request topic that was made anew, or another program's: nothing is called because of them"
            self._log.warning("parked_ignored", partition=owner.partition, records=fold.ignored, hint=hint)
        restored(owner, entries)

    def fetch(self, fetches: Sequence[Fetch], fetched: Callable[[Owner, list[Parked], list[Entry]], None]) -> Steps:
        """Read parked requests again, and tell `fetched` once for each letter; all letters are of one assignment.

        One whose place is not known, or that is not there any more, was written after the index was made: what has come since is read.
        """
        owner = fetches[0].owner
        wanted = {entry.offset: entry for fetch in fetches for entry in fetch.entries}
        found: dict[int, Parked] = {}
        yield from self._pick(owner, {n: entry for n, entry in wanted.items() if entry.place >= 0}, found)
        if len(found) < len(wanted):
            places = (yield from self._catch_up(owner, wanted, found)).places
            moved = {n: replace(entry, place=places[n]) for n, entry in wanted.items() if n in places and n not in found}
            yield from self._pick(owner, moved, found)
        for fetch in fetches:
            there = [found[entry.offset] for entry in fetch.entries if entry.offset in found]
            fetched(owner, there, [entry for entry in fetch.entries if entry.offset not in found])

    def _catch_up(self, owner: Owner, wanted: Collection[int], found: dict[int, Parked]) -> Generator[bool, None, _Index]:
        """Bring the index up to now, and give it; what is wanted, by the originals' offsets, and comes by is taken along."""
        n = owner.partition
        index = self._indexes.setdefault(n, _Index(owner))
        end = self._reader.ends(self._topic, [n])[n]
        with closing(self._reader.read(self._topic, {n: (index.position, end)})) as items:
            for item in items:
                of = self._read(item) if isinstance(item, Record) else None
                if isinstance(item, Record) and of is not None:
                    _put(index.places, of.offset, None if of.request is None else item.offset)
                    _put(found, of.offset, of.request if of.offset in wanted else None)
                yield item is None
        index.position = end
        return index

    def _read(self, record: Record) -> _Of | None:
        """What a record says; None where it is nothing of ours."""
        parked = read_parked(record, self._topic_id_text, self._requests_topic)
        if parked is not None:
            return _Of(parked.record.offset, parked)
        if record.value is None and (key := read_key(record.key)) and key[:2] == (self._topic_id_text, record.partition):
            return _Of(key[2], None)
        return None

    def _pick(self, owner: Owner, entries: Mapping[int, Entry], found: dict[int, Parked]) -> Steps:
        """Read requests at their places. One that is not there is not found: a later record of its key has taken its place."""
        for start, stop in _spans(entries.values()):
            with closing(self._reader.read(self._topic, {owner.partition: (start, stop)})) as items:
                for item in items:
                    of = self._read(item) if isinstance(item, Record) else None
                    if isinstance(item, Record) and of is not None and of.request is not None:
                        entry = entries.get(of.offset)
                        if entry is not None and entry.place == item.offset:
                            found[of.offset] = of.request
                    yield item is None


def _put(into: dict[int, _T], offset: int, what: _T | None) -> None:
    if what is None:
        into.pop(offset, None)
    else:
        into[offset] = what


def _spans(entries: Collection[Entry]) -> Iterator[tuple[int, int]]:
    """Where to read for these entries: their places, those near to each other together."""
    places = sorted(entry.place for entry in entries)
    if not places:
        return
    gap = max(1, GAP_BYTES * len(places) // sum(entry.size_bytes for entry in entries))
    start = last = places[0]
    for place in places[1:]:
        if place - last > gap:
            yield start, last + 1
            start = place
        last = place
    yield start, last + 1
