"""The parked topic as its readers want it: which requests are parked, and the requests themselves.

Both are done in steps, so that one thread can see to several and to other things meanwhile: a step yields whether it waits for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from dispatcher.core.internal.parked import About, Entry, Parked, read_about
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.strand import RequestTopic
from dispatcher.worker.letters import Fetch
from dispatcher.worker.whole import Log, Reader, Steps, read_whole

# Payloads that lie closer to each other than this are read in one go: about what another question to Kafka costs.
GAP_BYTES = 256 * 1024

_T = TypeVar("_T")


class _Fold:
    """A partition while it is read: the last record of a key counts."""

    def __init__(self, read: Callable[[Record], About | None], siblings: Collection[str]) -> None:
        self._read = read
        self._siblings = siblings
        self.entries: dict[int, Entry] = {}
        self.ignored = 0

    def take(self, record: Record) -> None:
        of = self._read(record)
        if of is None:
            self.ignored += (record.key or b"").partition(b"/")[0].decode("ascii", "replace") not in self._siblings
        else:
            _put(self.entries, of.offset, None if of.request is None else of.request.entry(record.offset))


class ParkedLog:
    """Owned by the restorer. Keeps nothing: who asked for an index has it."""

    def __init__(self, topic: str, requests: RequestTopic, siblings: Collection[str], reader: Reader, log: Log) -> None:
        self._topic = topic
        self._requests = requests
        self._siblings = siblings  # ids of request topics that have their records here as well
        self._reader = reader
        self._log = log

    def restore(self, owners: Mapping[int, Owner], restored: Callable[[Owner, list[Entry]], None]) -> Steps:
        """Read partitions whole, and tell `restored` what is parked in each. `owners` as in `read_whole`."""
        return read_whole(self._reader, self._topic, owners, partial(_Fold, self._read, self._siblings), partial(self._tell, restored))

    def _tell(self, restored: Callable[[Owner, list[Entry]], None], owner: Owner, fold: _Fold) -> None:
        if fold.ignored:
            hint = "of a request topic that was made anew, or another program's: nothing is called because of them"
            self._log.warning("parked_ignored", partition=self._requests.label(owner.partition), records=fold.ignored, hint=hint)
        restored(owner, [fold.entries[n] for n in sorted(fold.entries)])

    def fetch(self, fetches: Sequence[Fetch], fetched: Callable[[Owner, list[Parked], list[Entry]], None]) -> Steps:
        """Read parked requests again, and tell `fetched` once for each letter; all letters are of one assignment.

        One whose place is not known, or that is not there any more since it was parked anew, is looked for in the whole partition.
        """
        owner = fetches[0].owner
        wanted = {entry.offset: entry for fetch in fetches for entry in fetch.entries}
        found: dict[int, Parked] = {}
        yield from self._pick(owner, {n: entry for n, entry in wanted.items() if entry.place >= 0}, found)
        if len(found) < len(wanted):
            yield from self._search(owner, wanted, found)
        for fetch in fetches:
            there = [found[entry.offset] for entry in fetch.entries if entry.offset in found]
            fetched(owner, there, [entry for entry in fetch.entries if entry.offset not in found])

    def _pick(self, owner: Owner, entries: Mapping[int, Entry], found: dict[int, Parked]) -> Steps:
        """Read requests at their places. One that is not there is not found: a later record of its key has taken its place."""
        for start, stop in _spans(entries.values()):
            with closing(self._reader.read(self._topic, {owner.partition: (start, stop)})) as items:
                for item in items:
                    of = self._read(item) if isinstance(item, Record) else None
                    entry = None if of is None else entries.get(of.offset)
                    if isinstance(item, Record) and of is not None and entry is not None and entry.place == item.offset:
                        _put(found, of.offset, of.request)
                    yield item is None

    def _search(self, owner: Owner, wanted: Collection[int], found: dict[int, Parked]) -> Steps:
        """Read the partition whole, up to the end that is there now; the last record of a key counts. `wanted`: the originals' offsets."""
        end = (yield from self._reader.ends(self._topic, [owner.partition]))[owner.partition]
        with closing(self._reader.read(self._topic, {owner.partition: (0, end)})) as items:
            for item in items:
                of = self._read(item) if isinstance(item, Record) else None
                if of is not None and of.offset in wanted:
                    _put(found, of.offset, of.request)
                yield item is None

    def _read(self, record: Record) -> About | None:
        return read_about(record, self._requests.id_text, self._requests.name)


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
