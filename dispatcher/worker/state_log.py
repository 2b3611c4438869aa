"""The state topic as an assignment wants it: what earlier owners have noted of requests that have not ended, and of what keys spend.

Where the request topic ends is asked behind the end of the notes that are read: whoever wrote one had read its request before, so that what
a note is about stood there, unless the log has lost it since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from dispatcher.core.internal.account import Account, fold
from dispatcher.core.internal.tried import Noted, Tried, place_of, read_tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.classes import book_of
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.strand import RequestTopic
from dispatcher.worker.whole import Log, Reader, Steps, read_up_to


class _Fold:
    """A partition while it is read: the last record of a key counts."""

    def __init__(self, topic_id_text: str, book: str, siblings: Collection[str]) -> None:
        self._topic_id_text = topic_id_text
        self._book = book
        self._siblings = siblings
        self.tried: dict[int, Tried] = {}
        self.accounts: dict[str, Account] = {}
        self.ignored = 0

    def take(self, record: Record) -> None:
        if fold(self.accounts, record, self._book):
            return
        offset = place_of(record, self._topic_id_text)
        known = read_tried(record, self._topic_id_text)
        if offset is None:
            self.ignored += not any(f"/{other}/".encode() in (record.key or b"") for other in self._siblings)
        elif known is None:
            self.tried.pop(offset, None)
        else:
            self.tried[offset] = known


class StateLog:
    """Owned by the restorer. Keeps nothing: who asked has it."""

    def __init__(self, topic: str, requests: RequestTopic, siblings: Collection[str], reader: Reader, log: Log) -> None:
        self._topic = topic
        self._requests = requests
        self._book = book_of(requests.id_text, has_classes=bool(requests.kind))
        self._siblings = siblings  # ids of request topics that have their records here as well
        self._reader = reader
        self._log = log

    def restore(self, owners: Mapping[int, Owner], restored: Callable[[Owner, Noted], None]) -> Steps:
        """Read partitions whole, and tell `restored` of each what is noted. `owners` as in `read_whole`."""
        asked = tuple(owners)
        ends = yield from self._reader.ends(self._topic, asked)
        log_ends = yield from self._reader.ends(self._requests.name, asked)
        kept, tell = partial(_Fold, self._requests.id_text, self._book, self._siblings), partial(self._tell, restored, log_ends)
        yield from read_up_to(self._reader, self._topic, ends, owners, kept, tell)

    def _tell(self, restored: Callable[[Owner, Noted], None], log_ends: Mapping[int, int], owner: Owner, kept: _Fold) -> None:
        if kept.ignored:
            hint = "of a request topic that was made anew, or another program's: nothing comes of them"
            self._log.warning("state_ignored", partition=self._requests.label(owner.partition), records=kept.ignored, hint=hint)
        log_end = log_ends[owner.partition]
        if lost := sum(offset >= log_end for offset in kept.tried):
            hint = "the broker has lost the end of the log (unclean election, power loss), and others get those offsets: the notes are void"
            self._log.warning("state_beyond_end", partition=self._requests.label(owner.partition), records=lost, log_end=log_end, hint=hint)
        restored(owner, Noted([kept.tried[n] for n in sorted(kept.tried)], log_end, tuple(kept.accounts.values())))
