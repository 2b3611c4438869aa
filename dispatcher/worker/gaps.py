"""The gaps of one worker's partitions: which of them stand, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from dispatcher.adapters.kafka.source import Committed, Unsettled
from dispatcher.core.progress.commit_note import decode
from dispatcher.core.progress.gap import Cause, Gap, cut_off, former, gap_at
from dispatcher.core.progress.strand import RequestTopics, number_of, source_of
from dispatcher.errors import BrokerError
from dispatcher.worker.topic_watch import grown

# Who looks into the log of the last minutes sees every partition that stands.
REMIND_S = 60.0
# Asking where a log begins and ends, and what others have committed: one question that a broker answers in milliseconds; and how soon
# one that was not answered is asked again.
ANSWER_S, ASK_AGAIN_S = 1.0, 1.0


class Source(Protocol):
    """What is needed of the poller's source."""

    def pause(self, partition: int) -> None: ...
    def restart(self, partition: int, position: int) -> None: ...
    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]: ...
    def edges(self, partition: int, timeout_s: float) -> tuple[int, int]: ...


class Log(Protocol):
    """A structured logger."""

    def info(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...


class Gaps:
    """Owned by the poller. `standing`: the partitions that stand, replaced whenever one begins or ends to, never altered.

    Partitions are known by their strands. `passes`: whether reading goes on behind a gap where that loses and repeats nothing more.
    """

    def __init__(self, source: Source, log: Log, topics: RequestTopics, *, passes: bool) -> None:
        self.standing: Mapping[int, Gap] = {}
        self._source = source
        self._log = log
        self._topics = topics
        self._passes = passes
        self._refused: dict[int, int] = {}  # positions that the broker refused and nobody has looked at yet
        self._ask_at = self._remind_at = 0.0  # monotonic seconds

    def refuse(self, partition: int, position: int) -> None:
        """Take in that the log does not hold this position."""
        if partition not in self.standing:
            self._refused[partition] = position

    def forget(self, partitions: Iterable[int]) -> None:
        """These are not ours any more."""
        gone = set(partitions)
        self._refused = {n: position for n, position in self._refused.items() if n not in gone}
        if not gone.isdisjoint(self.standing):
            self.standing = {n: gap for n, gap in self.standing.items() if n not in gone}

    def sound(self, found: Mapping[int, Committed]) -> tuple[dict[int, int], list[Gap]]:
        """Where to begin with the partitions that may go live, and the gaps that were passed for that.

        Others stand from now on, or have to be asked about again. Raises BrokerError where the group has no position at all, and where
        the topic has grown since it had its positions.
        """
        topics = self._topics
        sound = {n: one.position for n, one in found.items() if one.position is not None}
        stale = [gap for n, at in sound.items() if (gap := former(n, at, found[n].metadata, topics.topic_id(n))) is not None]
        unset = found.keys() - sound.keys()
        passed: list[Gap] = []
        for gap in stale:
            del sound[gap.partition]
        notes = {n: decode(found[n].metadata, topics.topic_id(n)) for n in sound}
        mapped = {n: note for n, note in notes.items() if note is not None and note.settled_at(sound[n])}
        unsure = {n: sound.pop(n) for n in mapped}
        try:
            for n, at in unsure.items():
                cut = cut_off(n, at, mapped[n], *self._source.edges(n, ANSWER_S))
                if cut is not None and not self._passes:
                    self._stand([cut])
                    continue
                sound[n] = at
                passed += [] if cut is None else [cut]
            if unset:
                self._refuse_others(unset)
                self._stand(Gap(n, Cause.NO_POSITION, None) for n in sorted(unset))
            if not self._passes:
                self._stand(stale)
                return sound, passed
            for gap in stale:
                passed.append(replace(gap, start=self._source.edges(gap.partition, ANSWER_S)[0]))
                sound[gap.partition] = passed[-1].goes_on_at
        except Unsettled as reason:
            self._log.info("positions_unsettled", partitions=topics.labels(found.keys() - sound.keys()), reason=str(reason))
        return sound, passed

    def bridge(self, live: Iterable[int], now: float) -> list[Gap]:
        """Look at what the broker refused of the partitions that live: each stands, or is read on behind the gap, which is returned."""
        passed: list[Gap] = []
        if now < self._ask_at:
            return passed
        for n in sorted(self._refused.keys() & set(live)):
            position = self._refused[n]
            try:
                gap = gap_at(n, position, *self._source.edges(n, ANSWER_S))
                if gap is not None and gap.may_be_passed and self._is_settled(gap):
                    position, gap = gap.goes_on_at, None
            except Unsettled as reason:
                self._log.info("edges_unsettled", partition=self._topics.label(n), reason=str(reason))
                self._ask_at = now + ASK_AGAIN_S
                break
            del self._refused[n]
            if gap is None:
                self._source.restart(n, position)  # the log has changed since, or nothing was lost
            elif self._passes and gap.may_be_passed:
                self._source.restart(n, gap.goes_on_at)
                passed.append(gap)
            else:
                self._stand([gap])
        return passed

    def _is_settled(self, gap: Gap) -> bool:
        """Whether the group has committed all that was removed. The position counts holes that a partition which is paused has not read."""
        committed = self._source.committed([gap.partition], ANSWER_S)[gap.partition].position
        return committed is not None and committed >= gap.goes_on_at

    def remind(self, now: float) -> None:
        """Say what stands: at once, and then once a minute."""
        if now >= self._remind_at:
            self._remind_at = now + REMIND_S
            for gap in self.standing.values():
                self._log.error("gap", **{**gap.fields(), "partition": self._topics.label(gap.partition)}, hint=gap.hint)

    def _refuse_others(self, unset: Iterable[int]) -> None:
        """Refuse what only looks like a gap: a group that was never started on this topic, and partitions that were added to it."""
        count = self._topics.partitions
        for source in sorted({source_of(n) for n in unset}):
            everywhere = self._source.committed(self._topics.strands(source), ANSWER_S)
            numbers = {number_of(n) for n, one in everywhere.items() if one.position is None}
            if len(numbers) == count:
                hint = "run `dispatcher topics init`: it sets the first positions"
                raise BrokerError("the group has no committed position in the request topic", hint)
            if numbers == set(range(count - len(numbers), count)):
                raise grown(count - len(numbers))

    def _stand(self, gaps: Iterable[Gap]) -> None:
        for gap in gaps:
            self._source.pause(gap.partition)
            self.standing = {**self.standing, gap.partition: gap}
        self._remind_at = 0.0
