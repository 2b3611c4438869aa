"""The restorer: owns the reader of the topics that outlive workers. It asks no group, and is asked by letters.

First the control topic, whole: no call may start before what was paused and halted is known. Then, at once and beside each other: news of
the control topic, which requests of a partition are parked and which have ended, parked requests when they are due, and recorded replies.

Where Kafka does not answer, what was asked is done again; nothing is answered half.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry, Parked
from dispatcher.core.internal.tried import Noted
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.progress.strand import RequestTopics
from dispatcher.errors import BrokerAway
from dispatcher.settings import Settings
from dispatcher.worker.clock import Clock
from dispatcher.worker.journal_log import JournalLog
from dispatcher.worker.letters import Fetch, Forget, Post, Recall, Restore, Stop
from dispatcher.worker.parked_log import ParkedLog
from dispatcher.worker.state_log import StateLog
from dispatcher.worker.whole import Log, Reader, Steps, beside

# An idle restorer waits for a letter this long, then looks for news: a cancel is to be heard at once, and looking takes 40 us.
IDLE_S = 0.02
# One job's share before the others and the news have theirs.
SHARE_S = 0.02
# Readings at the same time, each with a consumer of its own: of partitions to restore, and of assignments that want requests or replies.
RESTORES_MAX = FETCHES_MAX = RECALLS_MAX = 4
# After Kafka was away: doubled from the first to the last.
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 2.0
# A job that waits this long for Kafka is told of, and again each time.
WAIT_LONG_S = 15.0


class EngineDoor(Protocol):
    """The engine's methods that the restorer posts; they run on the event loop."""

    def commanded(self, records: list[Record]) -> None: ...
    def restored(self, owner: Owner, entries: list[Entry], journal: Journal | None, noted: Noted) -> None: ...
    def fetched(self, owner: Owner, found: list[Parked], missing: list[Entry]) -> None: ...
    def recalled(self, recall: Recall, recorded: Recorded | None) -> None: ...


@dataclass(slots=True)
class _Job:
    """One reading, done in steps. `begin` starts it, and starts it again after Kafka was away. Times are monotonic seconds.

    `owners` are of one topic, by partition.
    """

    what: str
    begin: Callable[[], Steps]
    owners: dict[int, Owner] = field(default_factory=dict)
    steps: Steps | None = None
    again_at: float = 0.0
    pause_s: float = PAUSE_FIRST_S
    waits_since: float | None = None

    def close(self) -> None:
        if self.steps is not None:
            self.steps.close()
        self.steps = None


class Restorer:
    """Runs in its own thread (`run`). `tick` and `is_ready` are read by others: ready once the control topic has been read whole."""

    def __init__(
        self,
        settings: Settings,
        requests: RequestTopics,
        reader: Reader,
        engine: EngineDoor,
        post: Post,
        inbox: SimpleQueue[object],
        clock: Clock,
        log: Log,
    ) -> None:
        topics = settings.topics
        self._control = topics.control
        self._reader = reader
        others = {topic: frozenset(requests.ids) - {topic.id_text} for topic in requests.of}
        self._parked = [ParkedLog(topics.parked, topic, others[topic], reader, log) for topic in requests.of]
        self._journals = [JournalLog(settings, topic, reader, clock, log) for topic in requests.of]
        states = [StateLog(topics.state, topic, others[topic], reader, log) for topic in requests.of]
        # What an assignment has to know before its first call, by request topic, in the order in which the engine is told.
        self._logs: list[tuple[ParkedLog | JournalLog | StateLog, ...]]
        self._logs = list(zip(self._parked, self._journals, states, strict=True))
        self._engine = engine
        self._post = post
        self._inbox = inbox
        self._clock = clock
        self._log = log
        self._restores: dict[int, Owner] = {}
        self._fetches: dict[Owner, list[Fetch]] = {}
        self._recalls: dict[Owner, list[Recall]] = {}
        self._jobs: list[_Job] = [_Job("control", self._begin)]
        self._news_at = 0.0
        # Of the control topic: the next offset that the engine has not been told, and the next one that news can be of.
        self._told = self._heard = 0
        self._stopped = False
        self.tick = clock.now().mono
        self.is_ready = False

    def run(self) -> None:
        """Serve letters until told to stop. Raises BrokerDenied where going on is senseless."""
        try:
            while not self._stopped:
                self.step()
        finally:
            for job in self._jobs:
                job.close()
            self._reader.close()

    def step(self) -> None:
        """One turn: a share for each job, the news, and the letters that are there."""
        self.tick = self._clock.now().mono
        self._plan()
        turned = [self._advance(job) for job in self._jobs]
        self._jobs = [job for job in self._jobs if job.steps is not None or job.again_at > 0]
        self._tell_news()
        self._receive(0 if any(turned) else IDLE_S)

    # --- letters --------------------------------------------------------------------------------------------------------------------

    def _receive(self, wait_s: float) -> None:
        letter = self._clock.take(self._inbox, wait_s)
        with suppress(Empty):
            while letter is not None:
                self._serve(letter)
                letter = self._inbox.get_nowait()

    def _serve(self, letter: object) -> None:
        match letter:
            case Restore(owner):
                self._restores[owner.strand] = owner
            case Fetch(owner):
                self._fetches.setdefault(owner, []).append(letter)
            case Recall(owner):
                self._recalls.setdefault(owner, []).append(letter)
            case Forget(owner):
                self._forget(owner)
            case Stop():
                self._stopped = True
            case _:
                raise AssertionError(f"the restorer has no use for {type(letter).__name__}")

    def _forget(self, owner: Owner) -> None:
        self._fetches.pop(owner, None)
        self._recalls.pop(owner, None)
        if self._restores.get(owner.strand) == owner:
            del self._restores[owner.strand]
        for job in self._jobs:
            if job.owners.get(owner.partition) == owner:
                del job.owners[owner.partition]

    # --- jobs -----------------------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Make jobs of the letters that wait: one for all partitions to restore, one for what each assignment wants to have again.

        Further partitions are read together once what is being read is read, or waits.
        """
        if not self.is_ready:
            return
        kinds = [job.what for job in self._jobs]
        if self._restores and kinds.count("restore") < RESTORES_MAX and all(job.waits_since for job in self._jobs if job.what == "restore"):
            restores, self._restores = self._restores, {}
            for source in sorted({owner.source for owner in restores.values()}):
                owners = {owner.partition: owner for owner in restores.values() if owner.source == source}
                self._jobs.append(_Job("restore", partial(self._restore, source, owners), owners))
        for owner in self._next("fetch", self._fetches, FETCHES_MAX):
            fetch = partial(self._parked[owner.source].fetch, self._fetches.pop(owner), partial(self._post, self._engine.fetched))
            self._jobs.append(_Job("fetch", fetch, {owner.partition: owner}))
        for owner in self._next("recall", self._recalls, RECALLS_MAX):
            recall = partial(self._journals[owner.source].recall, self._recalls.pop(owner), partial(self._post, self._engine.recalled))
            self._jobs.append(_Job("recall", recall, {owner.partition: owner}))

    def _next(self, what: str, waiting: Collection[Owner], most: int) -> list[Owner]:
        """Assignments whose letters of a kind may become jobs now; each has one such job at a time.

        Those that Kafka does not answer take nobody's place.
        """
        busy = {owner for job in self._jobs for owner in job.owners.values() if job.what == what}
        free = most - sum(job.what == what and job.pause_s == PAUSE_FIRST_S for job in self._jobs)
        return [owner for owner in waiting if owner not in busy][: max(0, free)]

    def _advance(self, job: _Job) -> bool:
        """Give a job its share; False where it has to wait for its time. One that is done, or that nobody waits for, has no steps."""
        now = self._clock.now().mono
        if job.what != "control" and not job.owners:
            job.close()
            job.again_at = 0.0
            return True
        if now < job.again_at or (job.steps is None and self._is_crowded(job)):
            return False
        try:
            job.again_at = 0.0
            job.steps = job.steps or job.begin()
            while (waits := next(job.steps)) is False and self._clock.now().mono < now + SHARE_S:
                pass
            self._note(job, now, waits=waits)
        except StopIteration:
            job.steps = None
        except BrokerAway as away:
            job.steps = None
            job.again_at, job.pause_s = self._clock.now().mono + job.pause_s, min(PAUSE_MAX_S, 2 * job.pause_s)
            self._log.warning("restorer_failed", what=job.what, reason=away.message, hint=away.hint)
        return True

    def _is_crowded(self, job: _Job) -> bool:
        """Whether as many readings of its kind go on as may: after an outage all of them would begin at once."""
        most = {"fetch": FETCHES_MAX, "recall": RECALLS_MAX}.get(job.what)
        return most is not None and sum(one.what == job.what and one.steps is not None for one in self._jobs) >= most

    def _note(self, job: _Job, now: float, *, waits: bool) -> None:
        """Say it where Kafka keeps a job waiting."""
        if not waits:
            job.waits_since = None
        elif job.waits_since is None:
            job.waits_since = now
        elif now >= job.waits_since + WAIT_LONG_S:
            job.waits_since = now
            hint = "an open transaction is waited for: if it does not end, see `kafka-transactions.sh find-hanging`"
            self._log.warning("restorer_waits", what=job.what, partitions=sorted(job.owners), hint=hint)

    def _restore(self, source: int, owners: dict[int, Owner]) -> Steps:
        """First what was wanted of these lanes when their last owner let them go: its last transaction may have halted one."""
        end = (yield from self._reader.ends(self._control, [0]))[0]
        yield from self._read_control(end)
        found: dict[Owner, dict[int, object]] = {}
        # Beside each other: an open transaction in one partition's topic holds up no other partition.
        yield from beside(*(log.restore(owners, partial(self._restored, owners, found, n)) for n, log in enumerate(self._logs[source])))

    def _restored(self, owners: dict[int, Owner], found: dict[Owner, dict[int, object]], number: int, owner: Owner, what: object) -> None:
        """One of the logs has been read of this partition; the engine is told once all are."""
        told = found.setdefault(owner, {})
        told[number] = what
        if len(told) == len(self._logs[owner.source]) and owners.get(owner.partition) == owner:
            del owners[owner.partition]
            self._post(self._engine.restored, owner, *(told[n] for n in sorted(told)))

    # --- the control topic ----------------------------------------------------------------------------------------------------------

    def _begin(self) -> Steps:
        end = (yield from self._reader.ends(self._control, [0]))[0]
        yield from self._read_control(end)
        self._reader.follow(self._control, end)
        self._heard, self.is_ready = end, True

    def _read_control(self, end: int) -> Steps:
        """Read on up to `end`, and tell what is there."""
        records: list[Record] = []
        if end < self._told:
            self._begin_anew()
        if self._told < end:
            with closing(self._reader.read(self._control, {0: (self._told, end)})) as items:
                for item in items:
                    if isinstance(item, Record):
                        records.append(item)
                    yield item is None
        self._tell(records, end)

    def _tell(self, records: list[Record], end: int) -> None:
        """Tell what has not been told: news come beside the readings."""
        fresh = [record for record in records if record.offset >= self._told]
        self._told = max(self._told, end)
        if fresh or not self.is_ready:
            self._post(self._engine.commanded, fresh)

    def _tell_news(self) -> None:
        now = self._clock.now().mono
        if not self.is_ready or now < self._news_at:
            return
        try:
            records = self._reader.news(0)
        except BrokerAway as away:
            self._news_at = now + PAUSE_MAX_S
            self._log.warning("restorer_failed", what="control", reason=away.message, hint=away.hint)
        else:
            if records:
                if records[0].offset < self._heard:
                    self._begin_anew()
                self._heard = records[-1].next_offset
                self._tell(records, self._heard)

    def _begin_anew(self) -> None:
        """The topic was made anew, or has lost its end: its offsets begin again, and nothing of it has been told."""
        hint = "who had paused or halted lanes may have to do it again, or to let them go on: see `dispatcher lanes list`"
        self._log.warning("control_anew", told=self._told, hint=hint)
        self._told = self._heard = 0
