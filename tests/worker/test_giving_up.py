"""Giving partitions up, at least once: what the simulator found there, at the one moment that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, TypeVar

from dispatcher.adapters.kafka.sink import Undelivered
from dispatcher.adapters.kafka.source import Batch, Committed, Duties
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message, Record
from dispatcher.settings import Settings, WorkerSettings
from dispatcher.worker.at_least_once import AtLeastOnce
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import Insistence
from dispatcher.worker.letters import Barrier, Command, Commit, Cut, Snapshot
from dispatcher.worker.poller import Poller
from dispatcher.worker.ready import Ready
from tests.specimens import alone

_T = TypeVar("_T")
TAKES_MAX = 1000


class Clock(SystemClock):
    """Time passes when it is looked at; a wait that nobody will end is an error."""

    mono = 0.0
    takes = 0

    def now(self) -> Instant:
        self.mono += 0.01
        return Instant(self.mono, 1_800_000_000)

    def take(self, queue: SimpleQueue[_T], wait_s: float) -> _T | None:
        self.takes += 1
        assert self.takes < TAKES_MAX, "it waits for ever"
        self.mono += wait_s
        return None if queue.empty() else queue.get_nowait()

    def pause(self, wait_s: float) -> None:
        self.mono += wait_s


class Source:
    """One partition, without records."""

    def subscribe(self, duties: Duties) -> None:
        duties.on_assigned([0])

    def poll(self, _: float) -> Batch:
        return Batch()

    def committed(self, partitions: list[int], _: float) -> dict[int, Committed]:
        return {n: Committed(0, None) for n in partitions}

    def commit(self, positions: dict[int, tuple[int, str]]) -> dict[int, str | None]:
        return dict.fromkeys(positions)

    def group(self) -> object:
        return "member"

    def log_ends(self, _: object) -> dict[int, int]:
        return {}

    def member_id(self) -> str:
        return "me"

    def ignore(self, *_: object) -> None: ...

    assign = unassign = pause = resume = seek = close = ignore


class Engine:
    """Has a call in hand that does not end before it is cut."""

    def __init__(self, poller: SimpleQueue[Command]) -> None:
        self._poller = poller

    def abandon(self, owners: frozenset[Owner]) -> None:
        for owner in owners:
            self._poller.put(Cut(owner))

    def ignore(self, *_: object) -> None: ...

    assigned = delivered = revoke = measured = stood = passed = ignore


class Publisher:
    """Commits what it still has, and then says that it is past the barrier."""

    def __init__(self, poller: SimpleQueue[Command]) -> None:
        self.commit: Commit | None = None
        self._poller = poller

    def put(self, item: object) -> None:
        assert isinstance(item, Barrier)
        self.commit = Commit({OWNER: (1, "")})
        self._poller.put(self.commit)
        item.answer.put("past")


OWNER = Owner(0, 1_800_000_000)


class Diary:
    """Keeps the names of what is logged."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **_: object) -> None:
        self.events.append(event)

    warning = error = info


def test_what_has_ended_is_published_before_a_partition_is_given_up() -> None:
    """The drain expires and the call is cut; what ended before is committed while the partition is still ours: no reply comes twice.

    Replies that were acknowledged, and whose commit was under way, were left uncommitted.
    """
    mailbox: SimpleQueue[Command] = SimpleQueue()
    diary, publisher = Diary(), Publisher(mailbox)
    settings = WorkerSettings(publishing="at_least_once", drain_s=0.1)
    source: Any = Source()
    letters: Any = publisher
    common = (lambda function, *args: function(*args), mailbox, letters, Clock(), diary, lambda _: None)
    poller = Poller(settings, alone(bytes(16), 1), source, Engine(mailbox), *common)
    poller.on_assigned([0])
    poller.step()
    assert frozenset({OWNER}) == poller.snapshot.live
    poller.on_revoked([0])
    assert "drain_expired" in diary.events
    assert publisher.commit is not None
    assert {} == publisher.commit.answer.get_nowait(), "the commit was refused: not ours"
    assert not poller.snapshot.live


class Sink:
    """Takes everything."""

    undelivered: tuple[Undelivered, ...] = ()

    def open(self) -> None: ...
    def forget(self) -> None: ...
    def produce(self, messages: list[Message]) -> None: ...

    def flush(self) -> bool:
        return True

    def limits(self) -> Mapping[str, int] | None:
        return None

    def take_places(self) -> dict[bytes, int]:
        return {}


class Quiet:
    """Hears nothing."""

    def publish_failed(self, what: str, name: str) -> None: ...


def test_a_commit_that_nobody_is_left_to_answer_is_not_waited_for() -> None:
    """The partitions are lost while a commit waits for the poller, which may be gone: the outcomes are the next owner's to publish.

    The publisher waited for ever, and its worker never ended.
    """
    snapshots = [Snapshot(n, "member", frozenset({OWNER})) for n in range(3)]
    nobody: SimpleQueue[Command] = SimpleQueue()
    done: list[Outcome] = []
    steps = Insistence(lambda: snapshots.pop(0) if snapshots else Snapshot(9, None, frozenset()), Quiet(), Clock())
    sink: Any = Sink()
    way = AtLeastOnce(Destinations(Settings(), {}), Frontier(alone(bytes(16), 1)), sink, steps, done.extend, nobody)
    record = Record("requests", 0, 0, b"doc:1", b"{}")
    way.publish([Ready(Outcome(OWNER, record, None, position=1), ())])
    assert isinstance(nobody.get_nowait(), Commit)
    assert [] == done
