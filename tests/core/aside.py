"""The parked topic as lanes and partitions meet it: what was moved aside stands at a place, and is read back from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dispatcher.core.internal.parked import Entry, Parked, read_key, read_parked
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.record import Record
from tests.specimens import REQUESTS, TOPIC_ID

PARKED = "dispatcher.parked"


class Aside:
    """All records that were written, and the last place of each request that is parked."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self._places: dict[int, int] = {}

    def publish(self, outcome: Outcome) -> Outcome:
        """Write what an outcome has for this topic, and give it as the publisher does: with the place of what it parks."""
        for message in outcome.messages():
            if message.topic == PARKED:
                self._write(Record(PARKED, message.partition, len(self.log), message.key, message.value, message.headers))
        return replace(outcome, place=len(self.log) - 1) if outcome.parks else outcome

    def _write(self, written: Record) -> None:
        self.log.append(written)
        key = read_key(written.key)
        assert key is not None
        if written.value is None:
            self._places.pop(key[2], None)
        else:
            self._places[key[2]] = written.offset

    @property
    def offsets(self) -> list[int]:
        """Where what is parked stood in the log."""
        return sorted(self._places)

    def entries(self) -> list[Entry]:
        """What a new owner reads: all that is parked, in the order of the log."""
        return [self._at(self._places[offset]).entry(self._places[offset]) for offset in self.offsets]

    def read(self, entries: Iterable[Entry], lost: Iterable[int] = ()) -> tuple[list[Parked], list[Entry]]:
        """The requests of these entries, and the entries of those that are not there; `lost` ones are not, either.

        A place that is known must be the last one of its request: an older record would tell of fewer tries.
        """
        found, missing = [], []
        for entry in entries:
            place = self._places.get(entry.offset)
            if place is None or entry.offset in lost:
                missing.append(entry)
            else:
                assert entry.place in {-1, place}
                found.append(self._at(place))
        return found, missing

    def _at(self, place: int) -> Parked:
        read = read_parked(self.log[place], TOPIC_ID, REQUESTS)
        assert read is not None
        return read
