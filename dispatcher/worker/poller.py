"""The poller: owns the consumer and with it the answer to "what is ours?".

    assigned   find the stable committed position, raise the epoch by a commit, only then hand over records
    revoked    the partition stays ours while this callback blocks: let the calls in hand and their publication end, then give it up
    lost       somebody else may own it already: commit nothing, forget it at once

Outside `on_revoked` it never waits for a call: one of twice `max.poll.interval.ms` causes no rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Protocol

from dispatcher.adapters.kafka.source import Batch, Duties
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.gap import Gap
from dispatcher.core.progress.strand import RequestTopics, number_of
from dispatcher.errors import BrokerError
from dispatcher.settings import WorkerSettings
from dispatcher.worker import joining
from dispatcher.worker.brakes import Brakes
from dispatcher.worker.clock import Clock
from dispatcher.worker.gaps import Gaps
from dispatcher.worker.joining import Joined, Joining
from dispatcher.worker.letters import Barrier, Command, Commit, Cut, Drained, Pause, Post, PublisherEnded, Resume, Snapshot, Stop, Taken
from dispatcher.worker.topic_watch import grown

# A poll is short, so that commands are served soon; a waiting record ends it at once.
POLL_S = 0.05
MEASURE_S = 1.0


class Source(joining.Source, Protocol):
    """What the poller needs of `dispatcher.adapters.kafka.source.Source`, which the simulator replaces. Its partitions are strands."""

    def subscribe(self, duties: Duties) -> None: ...
    def poll(self, timeout_s: float) -> Batch: ...
    def assign(self, positions: dict[int, int | None]) -> None: ...
    def unassign(self, partitions: Iterable[int]) -> None: ...
    def group(self) -> object: ...
    def log_ends(self, partitions: list[int]) -> dict[int, int]: ...
    def edges(self, partition: int, timeout_s: float) -> tuple[int, int]: ...
    def member_id(self) -> str: ...
    def close(self) -> None: ...


class EngineDoor(Protocol):
    """The engine's methods that the poller posts; they run on the event loop."""

    def assigned(self, owner: Owner, position: int, settled: tuple[Range, ...]) -> None: ...
    def delivered(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None: ...
    def revoke(self, owners: frozenset[Owner]) -> None: ...
    def abandon(self, owners: frozenset[Owner]) -> None: ...
    def measured(self, ends: dict[Owner, int]) -> None: ...
    def stood(self, gaps: Mapping[int, Gap]) -> None: ...
    def passed(self, gap: Gap, owner: Owner | None) -> None: ...


class Log(Protocol):
    """A structured logger."""

    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...


class Poller:
    """Runs in its own thread (`run`). `snapshot`, `tick`, `is_ready`, `member_id`, `unconfirmed`, `leaving_since`: others read them."""

    def __init__(
        self,
        settings: WorkerSettings,
        topics: RequestTopics,
        source: Source,
        engine: EngineDoor,
        post: Post,
        mailbox: SimpleQueue[Command],
        publisher: SimpleQueue[object],
        clock: Clock,
        log: Log,
        die: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._source = source
        self._engine = engine
        self._post = post
        self._mailbox = mailbox
        self._publisher = publisher
        self._clock = clock
        self._log = log
        # Ends the process at once, without leaving the group: for the one case in which leaving would break a promise.
        self._die = die
        self._gaps = Gaps(source, log, topics, passes=settings.on_gap == "continue")
        self._told_standing = self._gaps.standing
        self._brakes = Brakes(source, topics.strand)
        self._joining = Joining(settings, topics, source, self._gaps, self._brakes, clock, log)
        self._live: dict[int, Owner] = {}
        self._drained: set[Owner] = set()
        self._uncut: set[Owner] = set()  # given up, and a call of theirs may still run
        self._publisher_ended = False
        self._stopping = False
        self._stopped_at: float | None = None
        self.drain_s = settings.drain_s
        self._measured = clock.now().mono
        self._fault: BrokerError | None = None
        self.snapshot = Snapshot()
        self.tick = clock.now().mono
        self.is_ready = False
        # Our member id, and the same as long as no partition shows that the group knows it.
        self.member_id = ""
        self.unconfirmed: str | None = ""
        self.leaving_since: float | None = None

    def run(self, may_join: Callable[[], bool] = lambda: True) -> None:
        """Poll until told to stop, then drain and leave the group. Raises BrokerError where going on is senseless.

        Joins the group only once `may_join`: a member that cannot publish would make calls for nothing, and hold partitions back.
        """
        try:
            while not may_join() and not self._stopping:
                self._serve(POLL_S)
            if not self._stopping:
                self._source.subscribe(self)
            while not self._stopping:
                self.step()
            self._drain_all()
        finally:
            # After a fault nothing is drained, but what is being published ends before the partitions are given away.
            self._stopping = True
            self._give_up(frozenset(self._live.values()))
            self.leaving_since = self._clock.now().mono
            self._source.close()

    def step(self) -> None:
        """One round: commands, joining partitions, one poll, hand over."""
        self._serve(0)
        if not self._stopping:
            self._join()
        batch = self._poll()
        self._hand_over(batch)
        self._brakes.took(batch)
        self._cross_gaps()
        self._refresh()
        self._measure()
        if self._fault is not None:
            raise self._fault

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, or cannot go on: from then on no call begins."""
        return self._stopping

    @property
    def standing(self) -> tuple[int, ...]:
        """Our partitions that stand at a gap."""
        return tuple(sorted(self._gaps.standing))

    def _poll(self) -> Batch:
        wait_s = self._brakes.wait_s(self._clock.now().mono)
        if wait_s <= 0:
            return self._source.poll(POLL_S)
        self._serve(wait_s)
        return Batch(is_all=False)

    # --- duties, called by the source inside poll and close -----------------------------------------------------------------------

    def on_assigned(self, partitions: list[int]) -> None:
        """Take the partitions: from their stable committed position where it is known in time, else paused."""
        self._log.info("assigned", partitions=self._topics.labels(partitions))
        if any(number_of(n) >= self._topics.partitions for n in partitions):
            self._fault = grown(self._topics.partitions)
        found = self._joining.committed(partitions) if partitions and not self._stopping else {}
        self._source.assign({n: found[n].position if n in found else None for n in partitions})
        if not self._stopping:
            self._joining.begin(partitions, found)
        self._refresh()

    def on_revoked(self, partitions: list[int]) -> None:
        """Let what is in hand end, at most `drain_s`; then give up. Returning is what gives the partitions away."""
        self._log.info("revoked", partitions=self._topics.labels(partitions))
        self._joining.forget(partitions)
        self._gaps.forget(partitions)
        left = self._left_of(partitions)
        owners = frozenset(self._live[n] for n in (*partitions, *left) if n in self._live)
        if owners:
            self._post(self._engine.revoke, owners)
            began = self._clock.now().mono
            while not owners <= self._drained and self._clock.now().mono < began + self.drain_s:
                self._serve(POLL_S)
                self._refresh()
            self._give_up(owners)
        # Not before: a pause may have been asked for meanwhile, and would be made behind the poll that this runs in.
        self._brakes.forget(partitions)
        self._source.unassign(partitions)
        self._log.info("handed_over", partitions=self._topics.labels(partitions))
        self._wait_again(left)

    def on_lost(self, partitions: list[int]) -> None:
        """Forget at once: nothing of these assignments may be committed any more."""
        self._log.warning("lost", partitions=self._topics.labels(partitions))
        self._joining.forget(partitions)
        self._gaps.forget(partitions)
        self._brakes.forget(partitions)
        left = self._left_of(partitions)
        owners = frozenset(self._live.pop(n) for n in partitions if n in self._live)
        self._refresh()
        if owners:
            self._post(self._engine.abandon, owners)
        self._give_up(frozenset(self._live[n] for n in left))
        self._source.unassign(partitions)
        self._wait_again(left)

    def _left_of(self, partitions: Iterable[int]) -> list[int]:
        """Those of ours that live, and whose siblings these are: without them they may not."""
        gone = set(partitions)
        return sorted({one for n in gone for one in self._topics.siblings(n) if one in self._live} - gone)

    def _wait_again(self, partitions: list[int]) -> None:
        """These are given up, and still assigned to us: they live again once all their siblings are ours."""
        if partitions and not self._stopping:
            self._log.info("siblings_gone", partitions=self._topics.labels(partitions))
            self._gaps.forget(partitions)
            self._joining.begin_again(partitions)
            self._refresh()

    # --- steps ----------------------------------------------------------------------------------------------------------------------

    def _serve(self, wait_s: float) -> None:
        """Serve the commands that wait; wait up to `wait_s` for a first one."""
        self.tick = self._clock.now().mono
        command = self._clock.take(self._mailbox, wait_s)
        while command is not None:
            self._obey(command)
            try:
                command = self._mailbox.get_nowait()
            except Empty:
                command = None

    def _obey(self, command: Command) -> None:
        match command:
            case Pause(owner) | Resume(owner):
                self._flow(owner, is_pause=isinstance(command, Pause))
            case Taken():
                self._brakes.taken()
            case Drained(owner):
                if self._live.get(owner.strand) == owner:
                    self._drained.add(owner)
            case Cut(owner):
                self._uncut.discard(owner)
            case Commit(positions, answer):
                answer.put(self._commit(positions))
            case Stop(drain):
                self._stop(self.drain_s if drain else 0.0)
            case PublisherEnded():
                self._publisher_ended = True
                self._stop(0.0)

    def _stop(self, drain_s: float) -> None:
        """From here on no call begins, and the time of those in hand runs: also while partitions are being handed over."""
        self._stopping = True
        self.drain_s = drain_s
        self._stopped_at = self._stopped_at or self._clock.now().mono
        self._post(self._engine.revoke, frozenset(self._live.values()))

    def _flow(self, owner: Owner, *, is_pause: bool) -> None:
        if self._live.get(owner.strand) != owner:
            return
        if is_pause:
            self._brakes.pause(owner.strand, self._clock.now().mono)
        elif not self._stopping and owner.strand not in self._gaps.standing:
            self._brakes.resume(owner.strand)

    def _commit(self, positions: Mapping[Owner, tuple[int, str]]) -> dict[Owner, str]:
        """Commit what is still ours; returns what was refused. The broker would take it for any partition: ownership is checked here."""
        ours = {owner.strand: to for owner, to in positions.items() if self._live.get(owner.strand) == owner}
        errors = self._source.commit(ours) if ours else {}
        answers = {owner: errors.get(owner.strand, "not answered") if owner.strand in ours else "not ours" for owner in positions}
        return {owner: error for owner, error in answers.items() if error is not None}

    def _join(self) -> None:
        """Let those go live that may."""
        joined, passed = self._joining.join(self._live)
        for gap in passed:
            self._pass(gap, None)
        for one in joined:
            self._go_live(one)

    def _cross_gaps(self) -> None:
        """See to positions that the log does not hold, and tell which partitions stand."""
        now = self._clock.now().mono
        if not self._stopping:
            for gap in self._gaps.bridge(self._live, now):
                self._pass(gap, self._live[gap.partition])
        self._gaps.remind(now)
        if self._told_standing is not self._gaps.standing:
            self._told_standing = self._gaps.standing
            self._post(self._engine.stood, self._told_standing)

    def _pass(self, gap: Gap, owner: Owner | None) -> None:
        self._log.error("gap_passed", **{**gap.fields(), "partition": self._topics.label(gap.partition)}, lost=gap.lost)
        self._post(self._engine.passed, gap, owner)

    def _go_live(self, joined: Joined) -> None:
        owner = joined.owner
        self._live[owner.strand] = owner
        self._refresh()
        self._log.info("live", partition=self._topics.label(owner.strand), epoch=owner.epoch, position=joined.position)
        self._post(self._engine.assigned, owner, joined.position, joined.settled)
        if joined.held or joined.end is not None:
            self._deliver({owner: joined.held}, {} if joined.end is None else {owner: joined.end})

    def _hand_over(self, batch: Batch) -> None:
        """Records of live assignments to the engine, those of joining ones aside; others' are dropped: they are not ours any more."""
        records: dict[Owner, list[Record]] = {}
        for record in batch.records:
            n = self._topics.strand(record)
            if (owner := self._live.get(n)) is not None:
                records.setdefault(owner, []).append(record)
            elif n in self._joining:
                self._joining.hold(n, record)
        for n, position in batch.refused:
            if n in self._live or n in self._joining:
                self._gaps.refuse(n, position)
        ends: dict[Owner, int] = {}
        for n, offset in batch.ends:
            if (owner := self._live.get(n)) is not None:
                ends[owner] = offset
            elif n in self._joining:
                self._joining.ended(n, offset)
        if (records or ends) and not self._stopping:
            self._deliver(records, ends)

    def _deliver(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None:
        self._brakes.handed(self._clock.now().mono)
        self._post(self._engine.delivered, records, ends)
        # Runs on the event loop after that one, so it comes after what the engine has to say of it.
        self._post(self._mailbox.put, Taken())

    def _refresh(self) -> None:
        """Publish what the publisher may act on. Only this thread may ask for group metadata, so it does so all the time."""
        self.snapshot = Snapshot(self.snapshot.version + 1, self._source.group(), frozenset(self._live.values()))
        self.member_id = member_id = self._source.member_id()
        self.is_ready = bool(member_id) and not self._joining and not self._stopping
        # A member without partitions hears nothing of its group: whether it belongs there has to be asked.
        self.unconfirmed = None if self._live or self._joining else member_id

    def _measure(self) -> None:
        """Once a second: where the logs of our partitions end, for the metrics."""
        now = self._clock.now().mono
        if now - self._measured >= MEASURE_S:
            self._measured = now
            ends = self._source.log_ends(list(self._live))
            self._post(self._engine.measured, {self._live[n]: end for n, end in ends.items()})

    def _give_up(self, owners: frozenset[Owner]) -> None:
        """End the assignments. After this no call of theirs runs, and no publication that names them may be under way."""
        if not owners:
            return
        late = owners - self._drained
        self._post(self._engine.abandon, owners)
        end = self._clock.now().mono + self._settings.commit_budget_s
        barrier = Barrier()
        if late:
            self._log.warning("drain_expired", partitions=self._topics.labels(owner.strand for owner in late), drain_s=self.drain_s)
            self._await_cut(late, end)
            # What has ended is still ours to publish: whatever is not, the next owner does again.
            self._publisher.put(barrier)
            self._await_publisher(barrier, (self._clock.now().mono + end) / 2)
        for owner in owners:
            self._live.pop(owner.strand, None)
        self._drained -= owners
        self._refresh()
        # At least once, positions go through this thread, which commits for nobody who has ended.
        is_past = self._settings.publishing == "at_least_once" or not late or self._await_publisher(barrier, end)
        if self._uncut or not is_past:
            # Returning now would let a commit of ours land in another owner's partition: that is the one thing we must not do.
            self._die("a call or a publication did not end in time while partitions were taken away")

    def _await_cut(self, owners: frozenset[Owner], end: float) -> None:
        """Wait until the engine has let go of these assignments, at most until `end`."""
        self._uncut = set(owners)
        while self._uncut and self._clock.now().mono < end:
            self._serve(POLL_S)
            self._refresh()

    def _await_publisher(self, barrier: Barrier, end: float) -> bool:
        """Wait until the publisher has come past `barrier`, at most until `end`; True also when it has been there before."""
        while not self._publisher_ended and self._clock.now().mono < end:
            self._serve(0)
            if self._clock.take(barrier.answer, POLL_S) is not None:
                barrier.answer.put("past")
                return True
            self._refresh()
        return self._publisher_ended

    def _drain_all(self) -> None:
        """SIGTERM: as if all were revoked, but polling on, so that a rebalance meanwhile is answered."""
        self._refresh()
        owners = frozenset(self._live.values())
        self._joining.clear()
        for owner in owners:
            self._source.pause(owner.strand)
        began = self._stopped_at or self._clock.now().mono
        while not (left := frozenset(self._live.values()) & owners) <= self._drained and self._clock.now().mono < began + self.drain_s:
            self._serve(0)
            self._source.poll(POLL_S)
            self._refresh()
        self._give_up(left)
