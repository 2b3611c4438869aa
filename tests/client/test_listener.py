"""Who waits for what, told by a consumer that gives what a test puts; the real one is in e2e."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from queue import Empty, SimpleQueue

import pytest

from dispatcher import BrokerError, ConfigError, DispatcherError
from dispatcher.adapters.kafka.offsets import Place
from dispatcher.adapters.kafka.tail import Batch
from dispatcher.client import listener as room
from dispatcher.client.listener import Listener
from dispatcher.core.messages.record import Record
from dispatcher.settings import Settings
from tests.waiting import eventually_async

P0, P1 = ("replies", 0), ("replies", 1)


class Tail:
    """Stands for the consumer. Belongs to the listener's thread, but for `batches`."""

    made: Tail

    def __init__(self, _settings: Settings) -> None:
        self.batches: SimpleQueue[Batch] = SimpleQueue()
        self.reads: dict[Place, int] = {}
        self.added: list[tuple[Place, int]] = []
        self.closed = False
        self.bug: Exception | None = None
        Tail.made = self

    def add(self, place: Place, offset: int) -> None:
        """Take a partition; twice is an error, as it is to the real one."""
        assert place not in self.reads
        self.reads[place] = offset
        self.added.append((place, offset))

    def drop(self, place: Place) -> None:
        """Leave it."""
        del self.reads[place]

    def read(self, timeout_s: float) -> Batch:
        """Give the next batch, or fail."""
        if self.bug is not None:
            raise self.bug
        try:
            return self.batches.get(timeout=timeout_s) if timeout_s else Batch()
        except Empty:
            return Batch()

    def close(self) -> None:
        """Be closed."""
        self.closed = True


class Ends:
    """Stands for the inquiry: partitions end where they are asked for the nth time."""

    def __init__(self) -> None:
        self.asked: list[list[Place]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: DispatcherError | None = None

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Answer once the gate is open."""
        self.asked.append(list(places))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return dict.fromkeys(self.asked[-1], len(self.asked))


@pytest.fixture
async def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Give the inquiry, and put the consumer into its place."""
    monkeypatch.setattr(room, "Tail", Tail)
    return Ends()


@pytest.fixture
async def listener(ends: Ends) -> AsyncIterator[Listener]:
    """Give a listener, and end it."""
    made = Listener(Settings(), ends)  # type: ignore[arg-type] # it has what is asked
    yield made
    await made.close()


def reply(name: str, place: Place = P0, offset: int = 5) -> Record:
    """Make a reply to a request."""
    return Record(
        *place, offset, b"k", b"{}", (("ce_causationid", name.encode()), ("ce_id", f"requests/0/{offset}@12345678/reply".encode()))
    )


def put(*records: Record, fault: DispatcherError | None = None) -> None:
    """Let the consumer read records, or fail in P0."""
    Tail.made.batches.put(Batch(list(records), {} if fault is None else {P0: fault}))


async def test_each_gets_its_own(listener: Listener) -> None:
    """By id or by position; what nobody waits for is dropped, and so is a reply in a partition where it does not belong."""
    first = await listener.watch("a", [P0])
    second = await listener.watch("b", [P0])
    third = await listener.watch("requests/0/9@12345678", [P0, P1])
    await listener.watch("requests/0/5", [P0])
    put(reply("x"), reply("b", P1), reply("b"), reply("a", offset=6), reply("c", P1, offset=9))
    assert [(await watch.found).offset for watch in (first, second, third)] == [6, 5, 9]
    assert (await second.found).partition == 0


async def test_who_passes_over_hears_the_next(listener: Listener) -> None:
    """What came meanwhile is heard in its order, an error at last; nothing of it is lost."""
    watch = await listener.watch("a", [P0])
    put(reply("a", offset=1), reply("b", offset=2), reply("a", offset=3))
    assert (await watch.found).offset == 1
    watch.pass_over()
    assert (await watch.found).offset == 3
    put(fault=BrokerError("no right"))
    await eventually_async(lambda: watch.later)
    watch.pass_over()
    with pytest.raises(BrokerError):
        await watch.found


async def test_all_that_wait_for_one_name_get_it(listener: Listener) -> None:
    """Two tasks may wait for the same request; one that gave up is not in the other's way."""
    gone, first, second = [await listener.watch("a", [P0]) for _ in range(3)]
    listener.release(gone)
    put(reply("a"))
    assert (await first.found) is (await second.found)
    assert gone.found.cancelled()


async def test_a_partition_is_looked_up_once_and_read_once(listener: Listener, ends: Ends) -> None:
    """Many that need it at the same time wait for one answer; those that come later need none."""
    ends.gate.clear()
    waiting = [asyncio.create_task(listener.watch(str(number), [P0])) for number in range(50)]
    await eventually_async(lambda: ends.asked == [[P0]])
    waiting.pop().cancel()
    ends.gate.set()
    for watch in waiting:
        await watch
    await listener.watch("more", [P0])
    await listener.watch("other", [P0, P1])
    assert ends.asked == [[P0], [P1]]
    await eventually_async(lambda: [(P0, 1), (P1, 2)] == Tail.made.added)


async def test_a_partition_that_nobody_needs_is_dropped_after_a_while(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once: who asks again soon goes on in it; and afterwards it begins anew at its end."""
    monkeypatch.setattr(room, "LINGER_S", 3600.0)
    listener.release(await listener.watch("a", [P0]))
    kept = await listener.watch("b", [P0])
    assert listener.reading == {P0}
    monkeypatch.setattr(room, "LINGER_S", 0.0)
    listener.release(kept)
    await eventually_async(lambda: not listener.reading and not Tail.made.reads)
    await listener.watch("c", [P0])
    await eventually_async(lambda: [(P0, 1), (P0, 2)] == Tail.made.added)


async def test_what_cannot_be_looked_up_is_told_and_tried_again(listener: Listener, ends: Ends) -> None:
    """Kafka was away: everybody who waited hears it, and the next one asks again."""
    ends.failure = BrokerError("away")
    found = await asyncio.gather(*(listener.watch("a", [P0]) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in found] == [BrokerError] * 3
    assert listener.reading == frozenset()
    ends.failure = None
    watch = await listener.watch("a", [P0])
    put(reply("a"))
    assert (await watch.found).offset == 5


async def test_a_lookup_that_fails_leaves_no_timer_behind(listener: Listener, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited gave up before it failed: the next one to wait in that partition is not dropped by what was begun for the first."""
    monkeypatch.setattr(room, "LINGER_S", 0.5)
    ends.gate.clear()
    gone = asyncio.create_task(listener.watch("gone", [P0]))
    await eventually_async(lambda: ends.asked == [[P0]])
    gone.cancel()
    ends.failure = BrokerError("away")
    ends.gate.set()
    await eventually_async(lambda: not listener.reading)
    ends.failure = None
    watch = await listener.watch("a", [P0])
    listener.release(await listener.watch("later", [P1]))
    await eventually_async(lambda: P1 not in listener.reading, what="a timer that was set later has passed")
    assert listener.reading == {P0}
    put(reply("a"))
    assert (await watch.found).offset == 5


async def test_a_partition_that_is_looked_up_twice_is_read_once(listener: Listener, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was dropped while it was looked up, and is wanted again: the first answer counts for nothing."""
    monkeypatch.setattr(room, "LINGER_S", 0.0)
    ends.gate.clear()
    gone = asyncio.create_task(listener.watch("gone", [P0]))
    await eventually_async(lambda: ends.asked == [[P0]])
    gone.cancel()
    await eventually_async(lambda: not listener.reading)
    waiting = asyncio.create_task(listener.watch("a", [P0]))
    await eventually_async(lambda: ends.asked == [[P0], [P0]])
    ends.gate.set()
    watch = await waiting
    put(reply("a"))
    assert (await watch.found).offset == 5
    assert Tail.made.added == [(P0, 2)]


async def test_a_bug_is_told_to_those_who_wait(listener: Listener) -> None:
    """In one sentence, now and later; the consumer is closed."""
    watch = await listener.watch("a", [P0])
    await eventually_async(lambda: Tail.made.reads)
    Tail.made.bug = RuntimeError("bug")
    for _ in range(2):
        with pytest.raises(DispatcherError, match="listener ended: RuntimeError"):
            await watch.found
        watch = await listener.watch("a", [P0])
    assert Tail.made.closed


async def test_a_partition_that_is_gone_is_told_to_those_who_wait_in_it(listener: Listener) -> None:
    """The topic was deleted, say; the others go on."""
    first, second = await listener.watch("a", [P0]), await listener.watch("b", [P1])
    put(fault=ConfigError("topic replies does not exist"))
    with pytest.raises(ConfigError):
        await first.found
    put(reply("b", P1))
    assert (await second.found).partition == 1
    assert listener.reading == {P1}


async def test_a_consumer_that_cannot_be_made_is_told(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that librdkafka refuses, say: nobody waits for ever."""

    def refuse(_settings: Settings) -> Tail:
        raise ConfigError("no such property")

    monkeypatch.setattr(room, "Tail", refuse)
    watch = await listener.watch("a", [P0])
    with pytest.raises(ConfigError, match="no such property"):
        await watch.found


async def test_closing_ends_those_who_wait(ends: Ends) -> None:
    """With an error, whether they listened already or not; and the consumer goes."""
    made = Listener(Settings(), ends)  # type: ignore[arg-type] # it has what is asked
    watch = await made.watch("a", [P0])
    ends.gate.clear()
    waiting = asyncio.create_task(made.watch("b", [P1]))
    await eventually_async(lambda: len(ends.asked) == 2)
    await made.close()
    for open_ in (watch.found, waiting):
        with pytest.raises(DispatcherError, match="closed"):
            await open_
    with pytest.raises(DispatcherError, match="closed"):
        await made.watch("c", [P0])
    assert Tail.made.closed
