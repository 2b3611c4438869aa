"""The engine on a real event loop: slots and turns of thousands of lanes, what people want, what comes back, and how an assignment ends."""

from __future__ import annotations

import itertools

import pytest

from dispatcher.core.internal.control import HALTED, PAUSED, RUNNING, key_target, partition_target
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.room import Room
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import Range
from dispatcher.settings import Settings
from dispatcher.worker import engine as engine_module
from dispatcher.worker.letters import Cut, Drained, Fetch, Restore
from tests.core.keyed import KEY, park
from tests.core.keyed import keyed as lane_of
from tests.specimens import record, settings, value
from tests.waiting import eventually_async
from tests.worker.engine_stage import Stage, keyed

pytestmark = pytest.mark.filterwarnings("error")


def keys(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    """Requests of as many keys, one after another in the log."""
    return [(first + n, b"k%d" % n) for n in range(count)]


async def staged(of: Settings | None = None, room: Room | None = None) -> tuple[Stage, Owner]:
    """A stage with one partition of which nothing is parked."""
    stage = Stage(of) if room is None else Stage(of, room)
    owner = stage.assign()
    await stage.play()
    return stage, owner


# --- slots and turns ------------------------------------------------------------------------------------------------------------------


async def test_thousands_of_lanes_share_the_slots_in_turn() -> None:
    """3,000 keys with two requests each and 100 slots: every key has had its first call before any has its second."""
    stage, owner = await staged(keyed(inflight_max=100))
    count = 3000
    stage.deliver(owner, *keys(count), *keys(count, first=count))
    while len(stage.callee.started) < 2 * count or stage.callee.calls:
        await stage.play()
        assert len(stage.callee.calls) <= 100
        stage.answer_all()
    await stage.play()
    assert 100 == stage.callee.most
    assert set(range(count)) == set(stage.callee.started[:count])
    assert 2 * count == len(stage.answered())
    assert not stage.engine.partitions[0].lanes


async def test_two_busy_lanes_take_turns_over_one_slot() -> None:
    """`inflight_max = 1`: a and b alternate, each in its own order."""
    stage, owner = await staged(keyed(inflight_max=1))
    stage.deliver(owner, *[(n, b"a") for n in range(5)], *[(n, b"b") for n in range(5, 10)])
    for _ in range(10):
        await stage.play()
        assert 1 == len(stage.callee.calls)
        stage.answer_all()
    await stage.play()
    assert [0, 5, 1, 6, 2, 7, 3, 8, 4, 9] == stage.callee.started


async def test_who_waits_holds_no_slot() -> None:
    """100 keys that were told to come again later, and a single slot: the 101st key is called at once."""
    stage, owner = await staged(keyed(inflight_max=1))
    stage.deliver(owner, *keys(101))
    for n in range(100):
        await stage.play()
        stage.callee.answer(n, 429, retry_after_s=100)
    await stage.play()
    assert [100] == list(stage.callee.calls)


async def test_a_partition_has_slots_of_its_own() -> None:
    """One of two may not take all: with two slots each of its own, another partition's lanes find theirs."""
    stage, first = await staged(keyed(inflight_max=4, partition_inflight_max=2))
    second = stage.assign(1)
    await stage.play()
    stage.deliver(first, *keys(10))
    stage.deliver(second, *keys(10, first=100))
    await stage.play()
    assert [0, 1, 100, 101] == sorted(stage.callee.calls)
    while stage.callee.calls:
        stage.answer_all()
        await stage.play()
    assert 20 == len(stage.answered())


async def test_who_is_paused_in_line_leaves_its_turn() -> None:
    """One slot of the partition: z is called, x and y wait for it, x is paused. When z has to wait, y is called: x held nothing."""
    stage, owner = await staged(keyed(partition_inflight_max=1))
    stage.deliver(owner, (0, b"z"), (1, b"x"), (2, b"y"))
    await stage.play()
    stage.want(key_target(b"x"), PAUSED)
    stage.callee.answer(0, 503, retry_after_s=100)
    await stage.play()
    assert [2] == list(stage.callee.calls)


async def test_nothing_is_called_before_it_is_known_what_is_parked() -> None:
    """Records that came meanwhile wait; then all slots are taken at once, in order, and no lane is forgotten."""
    stage = Stage(keyed(partition_inflight_max=2))
    owner = stage.assign()
    stage.deliver(owner, *keys(9))
    await stage.play(restore=False)
    assert [] == stage.callee.started
    for _ in range(9):
        await stage.play()
        stage.callee.answer(next(iter(stage.callee.calls)), 429, retry_after_s=100)
    assert list(range(9)) == stage.callee.started


async def test_a_flood_of_refusals_leaves_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that only refuses has its share of time, then others have theirs."""
    stage, owner = await staged()
    monkeypatch.setattr(engine_module, "TURN_S", 0.0005)
    stage.engine.delivered({owner: [record(b"{", n, key=b"bad") for n in range(2000)]}, {})
    assert 0 < len(stage.engine.partitions[0].lanes[b"bad"]) < 2000
    stage.deliver(owner, (2000, b"good"))
    await eventually_async(lambda: b"bad" not in stage.engine.partitions[0].lanes)
    await stage.play()
    assert [2000] == list(stage.callee.calls)
    assert 2000 == len(stage.answered())


async def test_a_bug_of_an_adapter_costs_an_attempt() -> None:
    """Not the lane: the call counts as one whose end is not known, and is tried again."""
    stage, owner = await staged()
    stage.deliver(owner, *keys(1))
    await stage.play()
    stage.callee.calls[0].set_exception(KeyError("bug"))
    await stage.play()
    await eventually_async(lambda: [0, 0] == stage.callee.started)
    assert [("http", "KeyError")] == [(where, type(error).__name__) for where, error in stage.ear.bugs]


async def test_a_wait_that_ends_sooner_than_one_before_is_not_missed() -> None:
    """The head was to wait 100 s and is skipped; the next one has to wait 0.1 s, and does not wait 100."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"a"))
    await stage.play()
    stage.callee.answer(0, 503, retry_after_s=100)
    await stage.play()
    stage.skip(0)
    await stage.play()
    stage.callee.answer(1, 503, retry_after_s=0.1)
    await stage.until(lambda: [0, 1, 1] == stage.callee.started)


# --- what people want -----------------------------------------------------------------------------------------------------------------


async def test_a_paused_key_waits_alone_and_goes_on_when_resumed() -> None:
    """In front of its first call, and in a wait between two calls; a partition's pause holds all its keys."""
    stage, owner = await staged()
    stage.want(key_target(b"k1"), PAUSED)
    stage.deliver(owner, *keys(3))
    await stage.play()
    assert [0, 2] == sorted(stage.callee.calls)
    stage.callee.answer(0, 503, retry_after_s=0.1)
    stage.want(partition_target(0), PAUSED)
    stage.answer_all([2])
    await stage.play()
    stage.want(key_target(b"k1"), RUNNING)
    await stage.play()
    assert {} == stage.callee.calls
    stage.want(partition_target(1), RUNNING)
    stage.want(partition_target(0), RUNNING)
    await eventually_async(lambda: [0, 0, 1, 2] == sorted(stage.callee.started))


async def test_a_request_that_halts_its_key() -> None:
    """Its dead letter goes out with the halt of its key, which holds at once and ends when somebody resumes it."""
    stage, owner = await staged()
    content = value(attempts_max=1, after_failure="halt_key")
    stage.engine.delivered({owner: [record(content, 0, key=b"a"), record(offset=1, key=b"a"), record(offset=2, key=b"b")]}, {})
    await stage.play()
    stage.callee.answer(0, 500)
    await stage.play()
    halt = next(message for message in stage.published[0].extra if message.topic == "dispatcher.control")
    assert [(0, "dead")] == stage.answered()
    assert [2] == list(stage.callee.calls)
    assert ("key:a", HALTED) == (stage.published[0].halt and stage.published[0].halt.target, stage.engine.desired.why_held(b"a", 0))
    stage.engine.commanded([Record(halt.topic, 0, 0, halt.key, halt.value, halt.headers)])
    stage.want(key_target(b"a"), RUNNING)
    await stage.play()
    assert [1, 2] == sorted(stage.callee.calls)


# --- parked -----------------------------------------------------------------------------------------------------------------------------

TIGHT = Room(records=8, size_bytes=1 << 20, unpublished_s=1000)


async def test_a_key_that_waits_long_gives_its_memory_back() -> None:
    """Half the room is taken by a key that has to wait: its requests are moved aside, the position passes them, all else goes on."""
    stage, owner = await staged(room=TIGHT)
    stage.deliver(owner, *[(n, b"slow") for n in range(5)], (5, b"b"))
    await stage.play()
    stage.callee.answer(0, 503, retry_after_s=100)
    await stage.until(lambda: [0, 1, 2, 3, 4] == stage.parked())
    stage.answer_all([5])
    await stage.play()
    held = stage.engine.partitions[0]
    assert (0, 5, 6) == (held.held_records, held.parked, held.progress.acknowledged)
    stage.deliver(owner, (6, b"slow"), (7, b"b"))
    await stage.play()
    assert [7] == list(stage.callee.calls)


async def test_what_was_parked_is_called_in_order_when_it_may() -> None:
    """A paused key is parked, resumed, read again and called: what came meanwhile comes behind; each tombstone goes with its reply."""
    stage, owner = await staged(room=TIGHT)
    stage.want(key_target(b"a"), PAUSED)
    stage.deliver(owner, *[(n, b"a") for n in range(6)])
    await stage.play()
    stage.deliver(owner, (6, b"a"))
    await stage.until(lambda: list(range(6)) == stage.parked()[:6])
    stage.want(key_target(b"a"), RUNNING)
    for n in range(7):
        await stage.until(lambda n=n: [n] == list(stage.callee.calls))  # type: ignore[misc]
        stage.answer_all()
    await stage.play()
    assert [(n, "ok") for n in range(7)] == stage.answered()
    assert [] == stage.parked()
    assert not stage.engine.partitions[0].lanes


async def restored_stage(log: list[tuple[int, bytes]], parked: list[int], settled: list[Range] | None = None) -> tuple[Stage, Owner]:
    """A stage whose partition begins at 10, with requests of `KEY` parked from before; the log is read before that is known."""
    stage = Stage(keyed())
    park(lane_of(*parked), stage.asides[0])
    owner = Owner(0, 8)
    stage.engine.assigned(owner, 10, settled or [])
    stage.deliver(owner, *log)
    return stage, owner


async def test_an_earlier_owner_s_parked_requests_come_first() -> None:
    """In order of the log, though records of their key came before that was known. A copy of what still stands in the log is void."""
    stage, _ = await restored_stage([(10, KEY), (11, b"b")], [3, 4, 10])
    await stage.play()
    assert [3, 11] == sorted(stage.callee.calls)
    for _ in range(3):
        stage.answer_all([n for n in stage.callee.calls if n != 11])
        await stage.play()
    assert [3, 4, 10] == [n for n in stage.callee.started if n != 11]
    assert [] == stage.parked()
    assert 0 == stage.engine.partitions[0].parked


@pytest.mark.parametrize("behind", [[], [(14, b"c")]], ids=["it is the last of the log so far", "the log goes on"])
async def test_a_parked_request_is_skipped_wherever_it_stands(behind: list[tuple[int, bytes]]) -> None:
    """Below the mark, and above it in the commit's map, as soon as the log is read up to there: read again and answered, never called."""
    stage, owner = await restored_stage([(10, KEY)], [3, 13], [(13, 14)])
    stage.skip(13)
    stage.skip(3)
    await stage.play()
    stage.deliver(owner, (12, b"b"), (13, KEY), *behind)
    await stage.play()
    stage.answer_all()
    await stage.play()
    assert [(3, "cancelled"), (13, "cancelled")] == sorted(one for one in stage.answered() if one[1] == "cancelled")
    assert not {3, 13} & set(stage.callee.started)
    assert [] == stage.parked()


async def test_what_is_lost_from_the_parked_topic_is_told_and_passed() -> None:
    """Somebody else deleted it: its lane goes on behind it."""
    stage, owner = await restored_stage([(10, KEY)], [3, 4])
    assert Restore(owner) == stage.wishes.get_nowait()
    stage.engine.restored(owner, stage.asides[0].entries())
    asked = stage.wishes.get_nowait()
    assert isinstance(asked, Fetch)
    stage.engine.fetched(owner, *stage.asides[0].read(asked.entries, lost=[3]))
    await stage.play()
    assert [(owner, 3)] == stage.ear.lost
    assert [4] == list(stage.callee.calls)


async def test_a_full_map_is_told_and_clears_again() -> None:
    """Two ranges at most: a key that is in a call keeps the mark; others stop once its map is full, and go on when the call has ended."""
    stage, owner = await staged(room=Room(records=1000, size_bytes=1 << 20, unpublished_s=1000, ranges=2))
    stage.deliver(owner, *[(n, b"slow%d" % (n // 2 % 2) if n % 2 == 0 else b"k%d" % n) for n in range(12)])
    await stage.play()
    slow = [n for n in stage.callee.calls if n % 2 == 0]
    stage.answer_all([n for n in stage.callee.calls if n % 2])
    await stage.play()
    assert [0, 2] == slow
    stage.deliver(owner, (12, b"slow0"), (13, b"late"))
    await stage.play()
    assert ([0, 2], [(owner, True)]) == (list(stage.callee.calls), stage.ear.full)
    while stage.callee.calls:
        stage.answer_all()
        await stage.play()
    assert 13 not in stage.callee.started[: stage.callee.started.index(4)]
    assert 14 == len(stage.answered())
    assert 14 == stage.engine.partitions[0].progress.acknowledged
    # Room is looked for now and then.
    await stage.until(lambda: [(owner, True), (owner, False)] == stage.ear.full)


async def test_who_could_not_start_before_fills_its_gap() -> None:
    """The map is full, and c would add to it. Then e ends, which was in a call, and c lies beside it: it may start.

    Nothing else happens, and the map stays full, since the calls of b and w last. d, which touches nothing, waits for that.
    """
    stage, owner = await staged(room=Room(records=1000, size_bytes=1 << 20, unpublished_s=1000, ranges=1))
    stage.want(key_target(b"c"), PAUSED)
    stage.deliver(owner, (0, b"b"), (1, b"x"), (2, b"w"), (3, b"c"), (4, b"e"))
    await stage.play()
    stage.answer_all([1])
    await stage.play()
    stage.want(key_target(b"c"), RUNNING)
    stage.deliver(owner, (5, b"v"), (6, b"d"))
    await stage.play()
    assert [0, 2, 4] == list(stage.callee.calls)
    stage.answer_all([4])
    await stage.until(lambda: {0, 2, 3, 5} == set(stage.callee.calls))
    assert (owner, True) == stage.ear.full[-1]
    stage.answer_all([0, 2, 3, 5])
    await stage.until(lambda: [6] == list(stage.callee.calls))


async def test_nothing_ends_before_it_is_known_what_is_parked() -> None:
    """Not even what is refused without a call: the parked copy of it would be taken for one that is still to be executed."""
    stage = Stage()
    owner = stage.assign()
    stage.deliver(owner, (0, b"a"), content=b"{")
    stage.want(key_target(b"a"), PAUSED)
    stage.want(key_target(b"a"), RUNNING)
    await stage.play(restore=False)
    assert [] == stage.answered()
    await stage.play()
    assert [(0, "dead")] == stage.answered()


# --- assignments end ------------------------------------------------------------------------------------------------------------------


async def test_a_revoked_partition_is_drained_once_its_calls_and_publications_are() -> None:
    """Nothing new starts; Drained is said once, when the last reply is acknowledged."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"a"), (2, b"b"))
    await stage.play()
    stage.engine.revoke([owner])
    stage.answer_all([0])
    await stage.play()
    assert [] == stage.told(Drained)
    stage.answer_all([2])
    await stage.play(publish=False)
    assert [] == stage.told(Drained)
    await stage.play()
    assert [Drained(owner)] == stage.told(Drained)
    assert [0, 2] == stage.callee.started


@pytest.mark.parametrize("retry", [True, False], ids=["a call that has to be repeated", "nothing in flight"])
async def test_what_has_nothing_to_publish_is_drained_at_once(*, retry: bool) -> None:
    """A retry is the next owner's, and so is what was queued, parked or waiting."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"), (1, b"b"))
    await stage.play()
    stage.callee.answer(1, 503, retry_after_s=100)
    stage.answer_all([] if retry else [0])
    await stage.play()
    stage.engine.revoke([owner])
    if retry:
        assert [] == stage.told(Drained)
        stage.callee.answer(0, 503, retry_after_s=1)
        await stage.play()
    assert [Drained(owner)] == stage.told(Drained)


async def test_a_cut_call_keeps_only_its_own_key_waiting() -> None:
    """An assignment is over with a call in hand: the next one calls other keys at once, and that key when the old call has ended."""
    stage, owner = await staged()
    stage.deliver(owner, (0, b"a"))
    await stage.play()
    stage.callee.lets_go.clear()
    stage.engine.abandon([owner])
    after = stage.assign(epoch=8)
    await stage.play()
    stage.deliver(after, (0, b"a"), (1, b"b"))
    await stage.play()
    assert [0, 1] == stage.callee.started
    assert [] == stage.told(Cut)
    stage.callee.lets_go.set()
    await stage.play()
    assert [0, 1, 0] == stage.callee.started
    assert [Cut(owner)] == stage.told(Cut)


async def test_an_assignment_without_calls_is_cut_at_once_and_leaves_nothing() -> None:
    """Told once; its slots and its place in line are free, its late letters land on nothing."""
    stage, owner = await staged(keyed(inflight_max=1))
    stage.deliver(owner, *keys(5))
    await stage.play()
    stage.answer_all()
    await stage.play(publish=False)
    late = [stage.outcomes.get_nowait() for _ in range(stage.outcomes.qsize())]
    stage.answer_all()
    await stage.play(publish=False)
    stage.engine.abandon([owner])
    await stage.play(publish=False)
    stage.engine.acknowledged([one for one in late if not isinstance(one, tuple) and hasattr(one, "number")])  # type: ignore[misc]
    stage.engine.fetched(owner, [], [])
    stage.engine.restored(owner, [])
    assert [Cut(owner)] == stage.told(Cut)
    after = stage.assign(epoch=8, position=10)
    await stage.play()
    stage.deliver(after, *keys(1, first=10))
    await stage.play()
    assert [10] == list(stage.callee.calls)


async def test_strict_ordering_is_one_lane() -> None:
    """The same engine with `ordering = "partition"`: one call at a time whatever the keys, nothing is moved aside."""
    stage, owner = await staged(settings(worker={"on_wrong_partition": "warn"}), TIGHT)
    stage.deliver(owner, *keys(8))
    for n in range(8):
        await stage.play()
        assert [n] == list(stage.callee.calls)
        stage.callee.answer(n, 503, retry_after_s=0.1)
        await stage.until(lambda n=n: [n, n] == stage.callee.started[-2:])  # type: ignore[misc]
        stage.answer_all()
    await stage.play()
    assert [n for n in range(8) for _ in range(2)] == stage.callee.started
    assert [] == stage.ear.aside
    assert all(a[0] < b[0] for a, b in itertools.pairwise(stage.answered()))
