"""Partitions that the group has given to this worker and that are not live yet: their positions are looked for and their epochs raised.

Numbers are those of strands (`core/progress/strand.py`). Siblings go live together, once all of them are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dispatcher.adapters.kafka.source import Committed, Unsettled
from dispatcher.core.lanes.outcome import Owner, owner_of
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import FOREIGN, MISSING, WITHOUT_NOTE, CommitNote, Range, decode, next_epoch
from dispatcher.core.progress.gap import Gap
from dispatcher.core.progress.strand import RequestTopics
from dispatcher.settings import WorkerSettings
from dispatcher.worker.brakes import Brakes
from dispatcher.worker.clock import Clock
from dispatcher.worker.gaps import Gaps
from dispatcher.worker.whole import Log

# A rebalance callback may ask for committed positions this long; what is not stable by then is resolved in later polls.
COMMITTED_S = 1.0
# A coordinator that refuses to raise an epoch is asked again so much later.
JOIN_AGAIN_S = 0.25


class Source(Protocol):
    """What is needed of the poller's source."""

    def pause(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...
    def seek(self, partition: int, position: int) -> None: ...
    def restart(self, partition: int, position: int) -> None: ...
    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]: ...
    def commit(self, positions: dict[int, tuple[int, str]]) -> dict[int, str | None]: ...


@dataclass(slots=True)
class _Joining:
    """An assigned partition whose first record may not be handed over yet."""

    found: Committed | None
    since: float  # monotonic seconds
    held: list[Record] = field(default_factory=list)
    held_bytes: int = 0
    is_full: bool = False
    end: int | None = None

    @property
    def position(self) -> int | None:
        return None if self.found is None else self.found.position


@dataclass(frozen=True, slots=True)
class Joined:
    """One that is live from now on. `held` came meanwhile, `end` is where the log ended behind it, if that was seen."""

    owner: Owner
    position: int
    settled: tuple[Range, ...]
    held: list[Record]
    end: int | None


class Joining:
    """Owned by the poller, on its thread."""

    def __init__(
        self, settings: WorkerSettings, topics: RequestTopics, source: Source, gaps: Gaps, brakes: Brakes, clock: Clock, log: Log
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._source = source
        self._gaps = gaps
        self._brakes = brakes
        self._clock = clock
        self._log = log
        self._of: dict[int, _Joining] = {}
        self._due = clock.now().mono

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, strand: int) -> bool:
        return strand in self._of

    def committed(self, strands: list[int]) -> dict[int, Committed]:
        """Their positions, as far as they are stable by now."""
        try:
            return self._source.committed(strands, COMMITTED_S)
        except Unsettled as reason:
            self._log.info("positions_unsettled", partitions=self._topics.labels(strands), reason=str(reason))
            return {}

    def begin(self, strands: Iterable[int], found: Mapping[int, Committed]) -> None:
        """These came; where the position is not known the source has paused them."""
        now = self._clock.now().mono
        self._of.update({n: _Joining(found.get(n), now) for n in strands})

    def begin_again(self, strands: Sequence[int]) -> None:
        """These have lived, and are ours still: they are read anew from where they have come to, once that is settled."""
        self._brakes.forget(strands)
        for n in strands:
            self._source.pause(n)
        self.begin(strands, {})

    def forget(self, strands: Iterable[int]) -> None:
        """These are not ours any more."""
        for n in strands:
            self._of.pop(n, None)

    def clear(self) -> None:
        """Nothing goes live any more."""
        self._of.clear()

    def hold(self, strand: int, record: Record) -> None:
        """Keep a record until its partition goes live; as many as the engine would, since the coordinator may be away for long."""
        joining = self._of[strand]
        joining.held.append(record)
        joining.held_bytes += record.size_bytes
        joining.end = None
        room, share = self._settings, len(self._of)
        records = min(room.lane_buffer_max_records, room.buffer_max_records // share)
        size_bytes = min(room.lane_buffer_max_bytes, room.buffer_max_bytes // share)
        if not joining.is_full and (len(joining.held) >= records or joining.held_bytes >= size_bytes):
            joining.is_full = True
            self._brakes.pause(strand, self._clock.now().mono)

    def ended(self, strand: int, offset: int) -> None:
        """The log ends there, behind what is held."""
        self._of[strand].end = offset

    def join(self, live: Mapping[int, Owner]) -> tuple[list[Joined], list[Gap]]:
        """Resolve positions that were unsettled, then raise the epoch of every partition whose position is known, if it is time.

        Gives those that are live from now on, beside those that live already, and the gaps that were passed for that.
        """
        if not self._of or self._clock.now().mono < self._due:
            return [], []
        unsettled = [n for n, joining in self._of.items() if joining.found is None]
        if unsettled:
            self._resolve(unsettled)
        known, passed = self._sound()
        whole = [n for n in known if all(one in known or one in live or one in self._gaps.standing for one in self._topics.siblings(n))]
        notes = self._notes({n: known[n] for n in whole})
        positions = {n: (position, notes[n].encode()) for n in whole if (position := known[n].position) is not None}
        return (self._raised(positions, notes) if positions else []), passed

    def _raised(self, positions: dict[int, tuple[int, str]], notes: Mapping[int, CommitNote]) -> list[Joined]:
        """Commit positions with new epochs. Those go live whose siblings were all taken."""
        answers = self._source.commit(positions)
        refused = {n: error for n, error in answers.items() if error is not None}
        if refused:
            self._due = self._clock.now().mono + JOIN_AGAIN_S
            self._log.info("epoch_refused", partitions={self._topics.label(n): error for n, error in refused.items()})
        done = [n for n in answers if n in self._of and not refused.keys() & set(self._topics.siblings(n))]
        return [self._joined(n, notes[n], positions[n][0]) for n in done]

    def _joined(self, strand: int, note: CommitNote, position: int) -> Joined:
        joining = self._of.pop(strand)
        if joining.is_full:
            self._brakes.introduce(strand)
        return Joined(owner_of(strand, note.epoch), position, note.settled, joining.held, joining.end)

    def _sound(self) -> tuple[dict[int, _Joining], list[Gap]]:
        """The partitions that may go live from their position; those that have none that counts stand, or are looked at again."""
        found = {n: joining.found for n, joining in self._of.items() if joining.found is not None}
        sound, passed = self._gaps.sound(found)
        for gap in passed:
            n = gap.partition
            self._of[n] = _Joining(Committed(gap.goes_on_at, gap.metadata), self._of[n].since)
            self._source.restart(n, gap.goes_on_at)
            self._brakes.resume(n)
        for n in self._gaps.standing:
            self._of.pop(n, None)
        if found.keys() - sound.keys() - self._gaps.standing.keys():
            self._due = self._clock.now().mono + JOIN_AGAIN_S
        return {n: self._of[n] for n in sound}, passed

    def _resolve(self, strands: list[int]) -> None:
        try:
            found = self._source.committed(strands, COMMITTED_S)
        except Unsettled as reason:
            labels = self._topics.labels(strands)
            if self._clock.now().mono < min(self._of[n].since for n in strands) + self._settings.commit_budget_s:
                self._log.info("positions_unsettled", partitions=labels, reason=str(reason))
            else:
                # Longer than any transaction of ours: it does not end by itself, and no worker can go on before it has.
                hint = "is the group's coordinator away? if not, a transaction hangs: `kafka-transactions.sh find-hanging`, then `abort`"
                self._log.warning("positions_unsettled", partitions=labels, reason=str(reason), hint=hint)
            return
        for n, committed in found.items():
            if self._of[n].is_full:
                self._brakes.forget([n])
            # What came before it was paused is read again.
            self._of[n] = _Joining(committed, self._of[n].since)
            if committed.position is not None:
                self._source.seek(n, committed.position)
                self._source.resume(n)

    def _notes(self, known: Mapping[int, _Joining]) -> dict[int, CommitNote]:
        """What is committed beside their positions. Siblings have one epoch, so that it rises for whoever is called for any of them."""
        notes = {n: self._next_note(n, joining) for n, joining in known.items()}
        epochs = {n: max(notes[one].epoch for one in self._topics.siblings(n) if one in notes) for n in notes}
        return {n: replace(note, epoch=epochs[n]) for n, note in notes.items()}

    def _next_note(self, strand: int, joining: _Joining) -> CommitNote:
        label, topic_id = self._topics.label(strand), self._topics.topic_id(strand)
        text = joining.found.metadata if joining.found else None
        note = decode(text, topic_id)
        if note is None:
            (self._log.warning if text else self._log.info)(FOREIGN if text else MISSING, partition=label, hint=WITHOUT_NOTE)
        position = joining.position
        settled = () if note is None else note.settled_at(position)
        if note is not None and note.settled and not settled:
            self._log.warning("commit_map_ignored", partition=label, hint="the position was moved by another tool: it counts, alone")
        return CommitNote(topic_id, next_epoch(note, self._clock.now().wall), 0, position or 0, settled)
