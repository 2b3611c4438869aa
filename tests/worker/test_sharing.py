"""Limits that two workers share, on the event loop: what one of them may begin is what it has read back, and only while its lease lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dispatcher.core.callees.shares import LEASE_S
from dispatcher.core.instant import Instant
from dispatcher.core.internal.stakes_record import read
from dispatcher.core.lanes.room import Room
from dispatcher.core.messages.call import Call, CallResult
from dispatcher.core.messages.record import Message, Record
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.engine import Engine
from dispatcher.worker.sharing import Sharing
from tests.specimens import MONO, WALL, settings
from tests.worker.engine_stage import ROOM, Callee, Stage

pytestmark = pytest.mark.filterwarnings("error")
WORKERS = "dispatcher.workers"


class Watch(SystemClock):
    """A clock that a test sets."""

    later_s = 0.0

    def now(self) -> Instant:
        """See Clock."""
        return Instant(MONO + self.later_s, WALL + self.later_s)


class Topic:
    """The log of what workers tell; each reads it when the test says so."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.heard: dict[Sharing, int] = {}

    def put(self, message: Message) -> None:
        """It is written."""
        self.records.append(Record(WORKERS, 0, len(self.records), message.key, message.value))

    def tell(self, sharing: Sharing) -> None:
        """One worker reads what is new to it."""
        known = self.heard.get(sharing, 0)
        self.heard[sharing] = len(self.records)
        sharing.told(self.records[known:])


class Pair:
    """Two workers of one group, with a partition each; their clocks are one."""

    def __init__(self, room: Room = ROOM, worker: dict[str, Any] | None = None, **limit: Any) -> None:
        self.watch, self.topic = Watch(), Topic()
        limits = {"openai": {"upstream": "openai", "margin_s": 0, **limit}}
        made = settings(worker={"ordering": "key", "on_wrong_partition": "warn", **(worker or {})}, limits=limits)
        self.stages = [Stage(made, room, clock=self.watch) for _ in range(2)]
        self.sharings = [stage.engine.share(f"w{n}/1", self.topic.put) for n, stage in enumerate(self.stages)]

    async def submit(self, worker: int, count: int) -> None:
        """So many requests, a key each."""
        stage = self.stages[worker]
        owner = stage.assign(worker)
        await stage.play()
        stage.deliver(owner, *[(n, b"k%d" % n) for n in range(count)])
        await stage.play()

    async def go_on(self, *workers: int, times: int = 4) -> None:
        """These read what is told, and tell something themselves, until all is quiet."""
        for _ in range(times):
            for worker in workers:
                self.topic.tell(self.sharings[worker])
                await self.stages[worker].play()

    def calls(self) -> list[int]:
        """How many each has open."""
        return [len(stage.callee.calls) for stage in self.stages]


async def test_nothing_begins_before_it_is_known_what_is_ours() -> None:
    """First what others have told is read, then our own first record; alone we have all of it."""
    pair = Pair(concurrency=3)
    await pair.submit(0, 5)
    assert [0, 0] == pair.calls()
    pair.topic.tell(pair.sharings[0])
    await pair.stages[0].play()
    assert [0, 0] == pair.calls(), "it is told, and not read back"
    await pair.go_on(0)
    assert [3, 0] == pair.calls()


async def test_who_comes_later_has_its_share_when_the_others_gave_it_up() -> None:
    """Of four at once two are free for the other as calls end; never are there more than four."""
    pair = Pair(concurrency=4)
    await pair.submit(0, 9)
    await pair.go_on(0)
    assert [4, 0] == pair.calls()
    await pair.submit(1, 9)
    await pair.go_on(1, 0)
    assert [4, 0] == pair.calls(), "its calls go on"
    for _ in range(2):
        pair.stages[0].callee.answer(next(iter(pair.stages[0].callee.calls)))
        await pair.stages[0].play()
    pair.watch.later_s += 0.2
    await pair.go_on(0, 1)
    assert [2, 2] == pair.calls()
    assert [{("openai", "concurrency"): 2}] * 2 == [stage.ear.shares for stage in pair.stages], "as it is shown"
    pair.sharings[0].leave()
    assert {("openai", "concurrency"): 0} == pair.stages[0].ear.shares


async def test_nothing_begins_when_the_lease_has_ended() -> None:
    """A worker that reads nothing of its own for five seconds stands still, and goes on when it does."""
    pair = Pair(concurrency=2)
    await pair.submit(0, 9)
    await pair.go_on(0)
    pair.watch.later_s += LEASE_S
    pair.stages[0].answer_all()
    await pair.stages[0].play()
    assert [0, 0] == pair.calls()
    await pair.go_on(0)
    assert [2, 0] == pair.calls()


class Connecting(Callee):
    """A callee to whom it takes a while to connect: until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.connect: list[Callable[[], None]] = []

    async def call(self, call: Call, sent: Callable[[], None]) -> CallResult:
        """As an HTTP engine does."""
        self.connect.append(sent)
        return await super().call(call, lambda: None)


async def test_what_is_not_ours_any_more_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was about to go out when the lease ended: withheld, spends no attempt, and is made when there is a lease again."""
    pair = Pair(concurrency=1)
    stage, sent = pair.stages[0], Engine.sent
    late = [True]

    def after_the_lease(self: Engine, *arguments: Any) -> None:
        pair.watch.later_s += LEASE_S if late.pop() else 0.0
        late.append(False)
        sent(self, *arguments)

    monkeypatch.setattr(Engine, "sent", after_the_lease)
    await pair.submit(0, 1)
    await pair.go_on(0, times=2)
    assert [0, 0] == pair.calls()
    await pair.go_on(0)
    assert [1, 0] == pair.calls()
    stage.answer_all()
    await stage.play()
    assert [("ok", 1)] == [(status, 1) for _, status in stage.answered()]


async def test_who_leaves_says_so() -> None:
    """The other has all of it without waiting for a lease to end."""
    pair = Pair(concurrency=2)
    await pair.submit(1, 9)
    await pair.go_on(0, 1)
    pair.topic.put(pair.sharings[0].leave())
    assert {"openai/concurrency": 0} == {name: stake.claim for name, stake in read(pair.topic.records[-1]).of.items()}  # type: ignore[union-attr]
    await pair.go_on(1)
    assert [0, 2] == pair.calls()


async def test_who_is_dead_is_forgotten_and_taken_out() -> None:
    """His part is free after lease and longest call, and his record gone a minute after that."""
    pair = Pair(concurrency=2)
    await pair.submit(0, 9)
    await pair.go_on(0)
    pair.sharings[0]._has_left = True  # it tells nothing any more
    await pair.submit(1, 9)
    await pair.go_on(1)
    assert [2, 0] == pair.calls()
    for step_s in (4, 4, 4, 60):
        pair.watch.later_s += step_s
        await pair.go_on(1)
    assert [2, 2] == pair.calls(), "the longest call is a minute"
    for _ in range(16):
        pair.watch.later_s += 4
        await pair.go_on(1)
    assert "w0/1" in [read(record) for record in pair.topic.records]
