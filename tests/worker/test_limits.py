"""Lanes that wait for a limit, on the event loop: no more begin than may, all begin in the end, and whoever waits can be ended."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.lanes.room import Room
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Drained
from tests.specimens import MONO, WALL, settings, value
from tests.worker.engine_stage import ROOM, Stage

pytestmark = pytest.mark.filterwarnings("error")
BY_KEY = {"ordering": "key", "on_wrong_partition": "warn"}


def of(limits: dict[str, dict[str, Any]], **worker: Any) -> Settings:
    """Settings with these limits, and lanes per key."""
    return settings(worker={**BY_KEY, **worker}, limits=limits)


def at_once(count: int, **fields: Any) -> dict[str, dict[str, Any]]:
    """So many calls at once to `openai`."""
    return {"openai": {"upstream": "openai", "concurrency": count, "margin_s": 0, **fields}}


async def staged(made: Settings, count: int, room: Room = ROOM, **fields: Any) -> Stage:
    """A stage of one partition with a request for each of so many keys, which all want to begin."""
    stage = Stage(made, room)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, *[(n, b"k%d" % n) for n in range(count)], **fields)
    await stage.play()
    return stage


def reasons(stage: Stage) -> set[str]:
    """Why lanes stand."""
    lanes = [lane for partition in stage.engine.partitions.values() for lane in partition.lanes.values()]
    return {lane.why(SystemClock().now())[0] for lane in lanes}


async def serve(stage: Stage, count: int) -> None:
    """Answer what is called, until so many are answered."""

    def served() -> bool:
        stage.answer_all()
        return len(stage.answered()) == count

    await stage.until(served)


async def test_three_at_once_serve_thirty() -> None:
    """In the order in which they came, one after another, and none fails; they say why they stand."""
    stage = await staged(of(at_once(3)), 30)
    assert {"calling", "limit"} == reasons(stage)
    assert [0, 1, 2] == list(stage.callee.calls)
    stage.callee.answer(1)
    await stage.until(lambda: [0, 2, 3] == list(stage.callee.calls))
    await serve(stage, 30)
    assert (3, list(range(30))) == (stage.callee.most, stage.callee.started)
    assert {"ok"} == {status for _, status in stage.answered()}


async def test_five_in_a_window_wait_for_the_next() -> None:
    """Each is answered at once; the sixth begins a window behind the first. And each waiting was told."""
    stage = await staged(of({"openai": {"upstream": "openai", "requests": 5, "window_s": 0.3, "margin_s": 0}}), 12)
    assert 5 == len(stage.callee.started)
    await serve(stage, 12)
    assert list(range(12)) == stage.callee.started


async def test_who_waits_for_a_limit_holds_no_slot() -> None:
    """One slot: 20 keys wait for one upstream, and a key of another one is called at once."""
    stage = await staged(of({"openai": {"upstream": "openai", "requests": 1, "window_s": 1000}}, inflight_max=1), 20)
    stage.answer_all()
    stage.deliver(stage.engine.partitions[0].owner, (20, b"other"), content=b'{"upstream":"bare"}')
    await stage.play()
    assert [20] == list(stage.callee.calls)


async def test_limits_and_slots_are_both_scarce() -> None:
    """Two slots, one call at once of one upstream, and many of another beside: all are served."""
    stage = await staged(of(at_once(1), inflight_max=2), 20)
    stage.deliver(stage.engine.partitions[0].owner, *[(n, b"b%d" % n) for n in range(20, 60)], content=b'{"upstream":"bare"}')
    await serve(stage, 60)
    assert stage.callee.most <= 2


async def test_a_limit_of_a_credential_is_of_all_upstreams_that_take_it() -> None:
    """One at once, over two: whose call ends lets one of the other upstream begin."""
    upstreams = {"second": {"base_url": "http://127.0.0.1:3", "credentials": ["team-a"]}}
    limits = {"key": {"credential": "team-a", "concurrency": 1, "margin_s": 0}}
    stage = Stage(settings(worker=BY_KEY, upstreams=upstreams, limits=limits))
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, *[(n, b"a%d" % n) for n in range(5)], content=value(credential="team-a"))
    stage.deliver(owner, *[(n, b"b%d" % n) for n in range(5, 10)], content=b'{"upstream":"second","credential":"team-a"}')
    await stage.play()
    assert [0] == list(stage.callee.calls)
    await serve(stage, 10)
    assert (1, {*range(10)}) == (stage.callee.most, {*stage.callee.started})
    assert {5, 6} & {*stage.callee.started[:4]}, "they take turns"


class Watch(SystemClock):
    """A clock that a test sets: both of its times, or its wall clock alone."""

    later_s = wall_s = 0.0

    def now(self) -> Instant:
        """See Clock."""
        return Instant(MONO + self.later_s, WALL + self.later_s + self.wall_s)


async def test_what_waits_for_a_limit_expires_by_its_deadline() -> None:
    """It fails nobody else, and is not called."""
    watch = Watch()
    stage = Stage(of(at_once(1)), clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"))
    stage.deliver(owner, (1, b"b"), content=value(deadline=Instant(MONO, WALL).rfc3339(5)))
    stage.deliver(owner, (2, b"c"))
    await stage.play()
    watch.later_s = 6
    stage.engine.delivered({owner: []}, {})
    await stage.until(lambda: [(1, "expired")] == stage.answered())
    await serve(stage, 3)
    assert [0, 2] == stage.callee.started


@pytest.mark.parametrize("wall_s", [-86_400, 86_400])
async def test_a_clock_that_somebody_sets_lets_nobody_through(wall_s: float) -> None:
    """A day back or forth: windows are of the monotonic clock."""
    watch = Watch()
    stage = Stage(of({"openai": {"upstream": "openai", "requests": 1, "window_s": 10, "margin_s": 0}}), clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"), (1, b"b"))
    await stage.play()
    stage.answer_all()
    await stage.play()
    watch.wall_s = wall_s
    stage.deliver(owner, (2, b"c"))
    await stage.play()
    assert [0] == stage.callee.started
    watch.later_s = 10
    stage.deliver(owner, (3, b"d"))
    await stage.until(lambda: [0, 1] == stage.callee.started)


async def test_what_waits_for_a_limit_is_skipped_and_cancelled() -> None:
    """At once; the next of its key stands in line."""
    stage = await staged(of(at_once(1)), 3)
    stage.skip(1)
    stage.cancel(2, "k2")
    await stage.play()
    assert {(1, "cancelled"), (2, "cancelled")} == {*stage.answered()}
    assert [0] == stage.callee.started


async def test_a_cancelled_call_frees_its_place() -> None:
    """When its connection is closed."""
    stage = await staged(of(at_once(1)), 2)
    stage.cancel(0, "k0")
    await stage.until(lambda: [1] == list(stage.callee.calls))
    assert [(0, "cancelled")] == stage.answered()


async def test_a_partition_that_goes_takes_nothing_with_it() -> None:
    """Its call is cut off, its lanes stand in line no more, and the lanes of another one have their turn."""
    stage = Stage(of(at_once(1)))
    first, second = stage.assign(0), stage.assign(1)
    await stage.play()
    stage.deliver(first, *[(n, b"a%d" % n) for n in range(5)])
    stage.deliver(second, *[(n, b"b%d" % n) for n in range(10, 13)])
    await stage.play()
    stage.engine.abandon([first])
    await stage.until(lambda: [10] == list(stage.callee.calls))
    await serve(stage, 3)
    assert [0, 10, 11, 12] == stage.callee.started


async def test_a_partition_that_is_revoked_waits_for_no_limit() -> None:
    """It is drained when its call has ended: what stood in line is the next owner's."""
    stage = await staged(of(at_once(1)), 4)
    owner = stage.engine.partitions[0].owner
    stage.engine.revoke([owner])
    await stage.play()
    assert [] == stage.told(Drained)
    stage.answer_all()
    await stage.play()
    assert [Drained(owner)] == stage.told(Drained)
    assert [0] == stage.callee.started


async def test_a_call_counts_from_when_it_is_made() -> None:
    """A turn of the loop, or a stall, may pass behind the moment at which it is let through: 10 s here."""
    watch = Watch()
    stage = Stage(of({"openai": {"upstream": "openai", "requests": 1, "window_s": 30, "margin_s": 0}}), clock=watch)
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"), (1, b"b"))
    assert [] == stage.callee.started
    watch.later_s = 10
    await stage.play()
    assert [0] == stage.callee.started
    lane = stage.engine.partitions[0].lanes[b"b"]
    assert ("limit", MONO + 40) == lane.why(watch.now())


async def test_an_intent_has_its_place_and_gives_it_back() -> None:
    """A request that must not be called twice: until its intent stands the limit is its own, and where it is cancelled the next one's."""
    stage = Stage(of(at_once(1, requests=2, window_s=1000)))
    owner = stage.assign()
    await stage.play()
    stage.deliver(owner, (0, b"a"), (1, b"b"), content=value(repeat="never"))
    await stage.play(publish=False)
    assert [] == stage.callee.started
    stage.cancel(0, "a")
    await stage.until(lambda: [1] == list(stage.callee.calls))
    stage.answer_all()
    await stage.play()
    stage.deliver(owner, (2, b"c"))
    await stage.until(lambda: [2] == list(stage.callee.calls))


async def test_what_waits_for_its_turn_is_parked_under_pressure_alone() -> None:
    """200 keys in the room of a hundred records or of a thousand, before a limit that lets one through in ever so long."""
    limits = {"openai": {"upstream": "openai", "requests": 1, "window_s": 1000}}
    for records, expected in ((100, 199), (1000, 0)):
        stage = await staged(of(limits), 200, Room(records=records, size_bytes=1 << 30, unpublished_s=1000))
        await stage.until(lambda stage=stage, expected=expected: len(stage.parked()) == expected)  # type: ignore[misc]
        assert [0] == stage.callee.started
