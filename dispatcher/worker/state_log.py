"""The state topic as an assignment wants it: what earlier owners have noted of the tries of requests that have not ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from dispatcher.core.internal.tried import Tried, place_of, read_tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from dispatcher.worker.whole import Log, Reader, Steps, read_whole


class _Fold:
    """A partition while it is read: the last record of a key counts."""

    def __init__(self, topic_id_text: str) -> None:
        self._topic_id_text = topic_id_text
        self.tried: dict[int, Tried] = {}
        self.ignored = 0

    def take(self, record: Record) -> None:
        offset = place_of(record, self._topic_id_text)
        known = read_tried(record, self._topic_id_text)
        if offset is None:
            self.ignored += 1
        elif known is None:
            self.tried.pop(offset, None)
        else:
            self.tried[offset] = known


class StateLog:
    """Owned by the restorer. Keeps nothing: who asked has it."""

    def __init__(self, topic: str, topic_id_text: str, reader: Reader, log: Log) -> None:
        self._topic = topic
        self._topic_id_text = topic_id_text
        self._reader = reader
        self._log = log

    def restore(self, owners: Mapping[int, Owner], restored: Callable[[Owner, list[Tried]], None]) -> Steps:
        """Read partitions whole, and tell `restored` of each what is noted. `owners` as in `read_whole`."""
        return read_whole(self._reader, self._topic, owners, partial(_Fold, self._topic_id_text), partial(self._tell, restored))

    def _tell(self, restored: Callable[[Owner, list[Tried]], None], owner: Owner, fold: _Fold) -> None:
        if fold.ignored:
            hint = "of a request topic that was made anew, or another program's: nothing comes of them"
            self._log.warning("state_ignored", partition=owner.partition, records=fold.ignored, hint=hint)
        restored(owner, [fold.tried[n] for n in sorted(fold.tried)])
