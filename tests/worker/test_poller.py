"""The poller: what it does while a partition is ours and no record of it may be handed over yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from queue import SimpleQueue

import pytest

from dispatcher.adapters.kafka.source import Batch, Committed, Duties, Unsettled
from dispatcher.adapters.logs import logger
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.gap import Gap
from dispatcher.settings import WorkerSettings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Command, Cut, Drained, Pause, Resume, Stop
from dispatcher.worker.poller import Poller
from tests.specimens import alone

BATCH, ROOM = 5, 20


class Log:
    """A source of one partition without an end; `refused` is what the broker says to the commit that raises the epoch."""

    def __init__(self) -> None:
        self.refused: str | None = "NOT_COORDINATOR"
        self.read = 0
        self.paused = False

    def subscribe(self, duties: Duties) -> None:
        duties.on_assigned([0])

    def poll(self, timeout_s: float) -> Batch:
        del timeout_s
        if self.paused:
            return Batch()
        begin, self.read = self.read, self.read + BATCH
        return Batch([Record("requests", 0, offset, b"doc:1", b"{}") for offset in range(begin, self.read)])

    def assign(self, positions: dict[int, int | None]) -> None:
        assert {0: 0} == positions

    def unassign(self, partitions: Iterable[int]) -> None: ...
    def seek(self, partition: int, position: int) -> None: ...
    def restart(self, partition: int, position: int) -> None: ...

    def pause(self, partition: int) -> None:
        self.paused = partition == 0

    def resume(self, partition: int) -> None:
        self.paused = partition != 0

    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]:
        del timeout_s
        return {n: Committed(0, None) for n in partitions}

    def commit(self, positions: dict[int, tuple[int, str]]) -> dict[int, str | None]:
        return dict.fromkeys(positions, self.refused)

    def group(self) -> object:
        return "member"

    def log_ends(self, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.read)

    def edges(self, partition: int, timeout_s: float) -> tuple[int, int]:
        del partition, timeout_s
        return 50, 60

    def member_id(self) -> str:
        return "me"

    def close(self) -> None: ...


class Clock(SystemClock):
    """Every look at it takes a while."""

    mono = 0.0

    def now(self) -> Instant:
        self.mono += 0.05
        return Instant(self.mono, 1_800_000_000)


class Engine:
    """Takes in what the poller posts."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def assigned(self, owner: Owner, position: int, settled: Sequence[Range] = ()) -> None: ...
    def revoke(self, owners: frozenset[Owner]) -> None: ...
    def abandon(self, owners: frozenset[Owner]) -> None: ...
    def measured(self, ends: dict[Owner, int]) -> None: ...
    def stood(self, gaps: Mapping[int, Gap]) -> None: ...
    def passed(self, gap: Gap, owner: Owner | None) -> None: ...

    def delivered(self, records: dict[Owner, list[Record]], ends: dict[Owner, int]) -> None:
        del ends
        self.offsets += [record.offset for batch in records.values() for record in batch]


def test_records_of_a_partition_that_cannot_go_live_are_bounded_and_all_delivered_in_the_end() -> None:
    """A coordinator that is away for long while the partition's leader answers costs one lane's buffer of memory, and no record."""
    log, engine = Log(), Engine()
    mailbox: SimpleQueue[Command] = SimpleQueue()
    poller = Poller(
        WorkerSettings(lane_buffer_max_records=ROOM),
        alone(bytes(16), 1),
        log,
        engine,
        lambda function, *args: function(*args),
        mailbox,
        SimpleQueue(),
        Clock(),
        logger(),
        lambda _: None,
    )
    log.subscribe(poller)
    for _ in range(10 * ROOM):
        poller.step()
    assert ROOM <= log.read < ROOM + BATCH
    log.refused = None
    for _ in range(10):
        poller.step()
    assert log.read > ROOM + BATCH, "it is read on"
    assert list(range(log.read)) == engine.offsets


def test_only_an_assignment_shows_that_the_group_knows_us() -> None:
    """A KIP-848 client has its id before it has joined, and keeps it when it is thrown out."""
    log, mailbox = Log(), SimpleQueue[Command]()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), Clock(), logger(), lambda _: None)
    poller = Poller(WorkerSettings(), alone(bytes(16), 1), log, Engine(), *common)
    poller.step()
    assert poller.unconfirmed == "me"
    log.refused = None
    log.subscribe(poller)
    poller.step()
    assert poller.is_ready
    assert poller.unconfirmed is None
    poller.on_lost([0])
    assert poller.unconfirmed == "me"


def test_a_partition_that_would_go_live_after_sigterm_does_not() -> None:
    """Its end would wait for a call that nobody was told to end: a worker that got SIGTERM while it joined stayed for the whole grace."""
    log, mailbox, clock, went = Log(), SimpleQueue[Command](), Clock(), list[Owner]()
    log.refused = None

    class Wary(Engine):
        def assigned(self, owner: Owner, position: int, settled: Sequence[Range] = ()) -> None:
            del position, settled
            went.append(owner)

    settings = WorkerSettings()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), clock, logger(), lambda _: None)
    poller = Poller(settings, alone(bytes(16), 1), log, Wary(), *common)
    log.subscribe(poller)
    mailbox.put(Stop())
    poller.run()
    assert not went
    assert clock.mono < settings.drain_s


def test_a_pause_asked_for_while_a_partition_is_given_back_does_not_meet_its_next_assignment() -> None:
    """Rebalance callbacks run inside a poll, and a pause is made behind it: the partition came back paused, and stood for ever."""
    log, mailbox = Log(), SimpleQueue[Command]()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), Clock(), logger(), lambda _: None)
    log.refused = None
    poller = Poller(WorkerSettings(), alone(bytes(16), 1), log, Engine(), *common)
    log.subscribe(poller)
    poller.step()
    (owner,) = poller.snapshot.live
    mailbox.put(Pause(owner))
    mailbox.put(Drained(owner))
    poller.on_revoked([0])
    poller.step()
    assert not log.paused


def test_what_is_said_of_an_assignment_that_has_ended_is_not_taken_for_its_next() -> None:
    """Letters come late: to stop, or to go on, was meant of what is not held any more. The partition that came is read on."""

    class Noting(Log):
        note: str | None = None

        def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]:
            del timeout_s
            return {n: Committed(0, self.note) for n in partitions}

        def commit(self, positions: dict[int, tuple[int, str]]) -> dict[int, str | None]:
            self.note = positions[0][1]
            return {0: None}

    log, mailbox = Noting(), SimpleQueue[Command]()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), Clock(), logger(), lambda _: None)
    poller = Poller(WorkerSettings(), alone(bytes(16), 1), log, Engine(), *common)
    log.subscribe(poller)
    poller.step()
    (before,) = poller.snapshot.live
    poller.on_lost([0])
    log.subscribe(poller)
    poller.step()
    (after,) = poller.snapshot.live
    assert before.epoch < after.epoch
    for letter, is_paused in ((Pause(before), False), (Pause(after), True), (Resume(before), True), (Resume(after), False)):
        mailbox.put(letter)
        # Paused is what was asked for before the last poll.
        poller.step()
        poller.step()
        assert is_paused == log.paused, str(letter)


class Died(Exception):
    """The process is gone."""


def test_a_publication_that_does_not_end_is_never_left_behind_with_its_partition() -> None:
    """Exactly once: it names the partition, and its commit would land in the next owner's. So the process ends, and gives nothing back."""
    given_back: list[int] = []

    class Kept(Log):
        def unassign(self, partitions: Iterable[int]) -> None:
            given_back.extend(partitions)

    mailbox: SimpleQueue[Command] = SimpleQueue()

    class Stuck(Engine):
        """Its call in hand ends only when it is cut."""

        def abandon(self, owners: frozenset[Owner]) -> None:
            for owner in owners:
                mailbox.put(Cut(owner))

    def die(why: str) -> None:
        raise Died(why)

    log = Kept()
    log.refused = None
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), Clock(), logger(), die)
    poller = Poller(WorkerSettings(drain_s=1, transaction_timeout_s=1), alone(bytes(16), 1), log, Stuck(), *common)
    log.subscribe(poller)
    poller.step()
    with pytest.raises(Died, match="did not end in time"):
        poller.on_revoked([0])
    assert not given_back


class Unstable(Log):
    """A source whose positions never become stable."""

    def assign(self, positions: dict[int, int | None]) -> None:
        assert {0: None} == positions

    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]:
        raise Unsettled(f"{partitions} timed out after {timeout_s} s")


class Diary:
    """Keeps what is logged as a warning."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, object]] = []

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append({"event": event, **fields})

    def error(self, event: str, **fields: object) -> None: ...


def test_positions_that_stay_unsettled_become_a_warning_that_says_what_to_do() -> None:
    """A crash of the broker can leave a transaction open for good: the worker cannot end it, and must not wait in silence."""
    log, diary, clock, settings = Unstable(), Diary(), Clock(), WorkerSettings()
    mailbox: SimpleQueue[Command] = SimpleQueue()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), clock, diary, lambda _: None)
    poller = Poller(settings, alone(bytes(16), 1), log, Engine(), *common)
    log.subscribe(poller)
    while clock.mono < settings.commit_budget_s - 2:
        poller.step()
    assert not diary.warnings
    while clock.mono < settings.commit_budget_s + 2:
        poller.step()
    assert "find-hanging" in str(diary.warnings[0]["hint"])


class Trimmed(Log):
    """A log whose start is removed before its second half is read."""

    def poll(self, timeout_s: float) -> Batch:
        return super().poll(timeout_s) if self.read < ROOM else Batch(refused=[(0, self.read)])

    def restart(self, partition: int, position: int) -> None:
        assert 0 == partition
        self.read = position


class Told(Engine):
    """Keeps what it is told of gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.stands: list[Mapping[int, Gap]] = []
        self.went_on: list[tuple[int, Owner | None]] = []

    def stood(self, gaps: Mapping[int, Gap]) -> None:
        self.stands.append(gaps)

    def passed(self, gap: Gap, owner: Owner | None) -> None:
        self.went_on.append((gap.goes_on_at, owner))


def trimmed(on_gap: str) -> tuple[Poller, Trimmed, Told, SimpleQueue[Command]]:
    """Run a poller into a gap."""
    log, engine, mailbox = Trimmed(), Told(), SimpleQueue[Command]()
    common = (lambda function, *args: function(*args), mailbox, SimpleQueue[object](), Clock(), logger(), lambda _: None)
    log.refused = None
    poller = Poller(WorkerSettings.model_validate({"on_gap": on_gap}), alone(bytes(16), 1), log, engine, *common)
    log.subscribe(poller)
    for _ in range(10):
        poller.step()
    return poller, log, engine, mailbox


def test_a_partition_at_a_gap_stays_ours_and_stands() -> None:
    """What came before the gap is handed over; a lane that has room again does not make it read on; the next owner begins anew."""
    poller, log, engine, mailbox = trimmed("stop")
    assert (list(range(ROOM)), [[0]], []) == (engine.offsets, [list(gaps) for gaps in engine.stands], engine.went_on)
    assert ((0,), True, 1) == (poller.standing, poller.is_ready, len(poller.snapshot.live))
    mailbox.put(Resume(*poller.snapshot.live))
    poller.step()
    assert log.paused
    poller.on_lost([0])
    poller.step()
    assert ((), {}) == (poller.standing, engine.stands[-1])


def test_a_partition_is_read_on_behind_a_gap_where_the_settings_say_so() -> None:
    """The engine hears of it before the first record that is there."""
    poller, log, engine, _ = trimmed("continue")
    assert [(50, *poller.snapshot.live)] == engine.went_on
    assert (list(range(ROOM)), (), False) == (engine.offsets, poller.standing, log.paused)
