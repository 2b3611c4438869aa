"""The journal as the restorer reads it: what has ended within the dedup window; and recorded replies, which it tells the places of.

In steps, as `ParkedLog`: a step yields whether it waits for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from dispatcher.adapters.kafka.compacted import Ended
from dispatcher.core.internal.finished import read_finished
from dispatcher.core.internal.journal import Journal
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.envelope import TOPIC_ID_SHOWN, position_id
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded, read_recorded
from dispatcher.core.messages.reply import reply_id
from dispatcher.core.progress.strand import RequestTopic
from dispatcher.errors import BrokerAway, BrokerDenied, PartitionAway, TopicAway
from dispatcher.settings import Settings
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Recall
from dispatcher.worker.whole import Log, Reader, Steps

# A reply is written when its request has ended, by the same clock, or the broker's. Where those differ by more, it is looked for once more
# from well before.
MARGIN_S, CLOCKS_DIFFER_S = 5.0, 3600.0
# Replies that are closer to each other than this are looked for in one go.
TOGETHER_S = 5.0
# Of an entry's offsets, at most so many are a transaction's markers: each marker has an entry before it.
OFFSETS_PER_ENTRY = 2


class JournalLog:
    """Owned by the restorer. Keeps nothing."""

    def __init__(self, settings: Settings, topic: RequestTopic, reader: Reader, clock: Clock, log: Log) -> None:
        self._topics = settings.topics
        self._worker = settings.worker
        self._topic = topic
        self._reader = reader
        self._clock = clock
        self._log = log

    def restore(self, owners: Mapping[int, Owner], restored: Callable[[Owner, Journal | None], None]) -> Steps:
        """Read the window of partitions, up to the end that is there now, and tell `restored` what is in each as soon as it is known.

        No more is read than can be kept. `owners`, by partition, may lose members meanwhile: assignments that were told, or are over.
        """
        asked = tuple(owners)
        if self._worker.dedup_window_s == 0:
            for n in asked:
                if n in owners:
                    restored(owners[n], None)
            return
        topic, most = self._topics.journal, OFFSETS_PER_ENTRY * self._worker.dedup_max_entries
        ends = yield from self._reader.ends(topic, asked)
        # Clocks of workers differ, and the entries' times are theirs.
        since_ms = round((self._clock.now().wall - self._worker.dedup_window_s - 60) * 1000)
        starts = yield from self._reader.since(topic, dict.fromkeys(asked, max(0, since_ms)))
        journals = {n: self._journal() for n in asked}
        ranges = {n: (max(starts[n], ends[n] - most), ends[n]) for n in asked}
        with closing(self._reader.read(topic, ranges)) as items:
            for item in items:
                if isinstance(item, Record):
                    self._take(journals[item.partition], item)
                elif isinstance(item, Ended) and item.partition in owners:
                    n = item.partition
                    self._tell(journals.pop(n), owners[n], restored, is_cut=starts[n] < ends[n] - most)
                yield item is None
                if not owners:
                    return

    def _journal(self) -> Journal:
        worker = self._worker
        return Journal(worker.dedup_window_s, worker.dedup_max_entries, is_fenced=worker.publishing == "exactly_once")

    def _take(self, journal: Journal, record: Record) -> None:
        finished = read_finished(record, self._topic.id_text[:TOPIC_ID_SHOWN])
        if finished is not None:
            journal.add(finished, self._clock.now().wall)

    def _tell(self, journal: Journal, owner: Owner, restored: Callable[[Owner, Journal | None], None], *, is_cut: bool) -> None:
        label = self._topic.label(owner.partition)
        self._log.info("journal_read", partition=label, entries=len(journal), is_cut=is_cut or journal.dropped > 0)
        restored(owner, journal)

    # --- recorded replies -----------------------------------------------------------------------------------------------------------

    def recall(self, recalls: list[Recall], recalled: Callable[[Recall, Recorded | None], None]) -> Steps:
        """Read recorded replies again, and tell `recalled` once for each letter, which is taken out of `recalls`; all of one assignment.

        What Kafka does not tell now is left there, and raised once the others are told: those of another topic or partition wait for none.
        """
        failed: BrokerAway | None = None
        for together in list(_spans(recalls)):
            wanted = {self._reply_id(recall): recall for recall in together}
            try:
                for margin_s in (MARGIN_S, CLOCKS_DIFFER_S):
                    if wanted:
                        yield from self._look(wanted, margin_s, partial(_told, recalls, recalled))
            except (BrokerAway, BrokerDenied) as fault:
                if not self._is_over(fault, together[0].known.reply_topic):
                    if isinstance(fault, BrokerDenied):
                        raise
                    failed = fault
                    continue
            for recall in wanted.values():
                label = self._topic.label(recall.owner.partition)
                self._log.warning("reply_gone", partition=label, offset=recall.offset, original=recall.known.offset)
                _told(recalls, recalled, recall, None)
        if failed is not None:
            raise failed

    def _is_over(self, fault: BrokerAway | BrokerDenied, topic: str) -> bool:
        """Whether nothing is waited for: our own topic will be there again; a sender's may be gone for good, or not be ours to read."""
        return isinstance(fault, PartitionAway) or (isinstance(fault, TopicAway | BrokerDenied) and topic != self._topics.replies)

    def _look(self, wanted: dict[bytes, Recall], margin_s: float, recalled: Callable[[Recall, Recorded | None], None]) -> Steps:
        """Read on from a while before the first of these replies was written, until all are found, which are told and taken out."""
        first = next(iter(wanted.values())).known
        topic, n = first.reply_topic, first.reply_partition
        start = (yield from self._reader.since(topic, {n: max(0, round((first.at - margin_s) * 1000))}))[n]
        end = (yield from self._reader.ends(topic, [n]))[n]
        with closing(self._reader.read(topic, {n: (start, end)})) as items:
            for item in items:
                recall = wanted.pop(_id_of(item), None) if isinstance(item, Record) else None
                if isinstance(item, Record) and recall is not None:
                    recalled(recall, read_recorded(item))
                    if not wanted:
                        return
                yield item is None

    def _reply_id(self, recall: Recall) -> bytes:
        place = Record(self._topic.name, recall.owner.partition, recall.known.offset, None, None)
        return reply_id(position_id(place, self._topic.id_text)).encode()


def _told(recalls: list[Recall], recalled: Callable[[Recall, Recorded | None], None], recall: Recall, recorded: Recorded | None) -> None:
    recalls.remove(recall)
    recalled(recall, recorded)


def _id_of(record: Record) -> bytes:
    return next((content or b"" for name, content in record.headers or () if name == "ce_id"), b"")


def _spans(recalls: Sequence[Recall]) -> Iterator[list[Recall]]:
    """Those whose replies stand in one partition near to each other in time, the oldest first."""
    span: list[Recall] = []
    for recall in sorted(recalls, key=lambda one: (one.known.reply_topic, one.known.reply_partition, one.known.at)):
        if span and (_place(span[0]) != _place(recall) or recall.known.at - span[0].known.at > TOGETHER_S):
            yield span
            span = []
        span.append(recall)
    if span:
        yield span


def _place(recall: Recall) -> tuple[str, int]:
    return recall.known.reply_topic, recall.known.reply_partition
