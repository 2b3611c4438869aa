"""What a worker tells of its lanes is what they are: held, waiting and parked ones, and why a partition stands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import HALTED, PAUSED, RUNNING, Command, Desired, key_target, message, partition_target
from dispatcher.core.internal.lane_report import LaneReport, PartitionReport, decode, encode
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.gap import Cause, Gap
from dispatcher.worker import lane_view
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.lane_view import LaneView
from tests.specimens import MONO, OWNER, REQUESTS, TOPIC_ID, WALL, answer, decoder, now, record, settings, settled, topics_of

SETTINGS = settings(worker={"ordering": "key", "slot": "a", "report_interval_s": 3})
TOPICS = topics_of(REQUESTS, TOPIC_ID)
VIEW = LaneView(SETTINGS.worker, TOPICS)
ROOM = Room(records=100, size_bytes=1 << 20, unpublished_s=10)


def wanted(*commands: tuple[str, str]) -> Desired:
    """What is wanted after these commands: targets and states."""
    desired = Desired()
    for offset, (target, state) in enumerate(commands):
        written = message(Command(f"id-{offset}", target, state, "", ""), "dispatcher.control")
        desired.apply(Record(written.topic, 0, offset, written.key, written.value, written.headers))
    return desired


def assignment(desired: Desired, *entries: Entry, restored: bool = True) -> Partition:
    """A fresh assignment from offset 50 on, with what is parked of before."""
    held = Partition(OWNER, 50, decoder(SETTINGS), ROOM, (), partial(_why_held, desired))
    if restored:
        held.restore(entries, now())
    return held


def _why_held(desired: Desired, key: bytes | None) -> str:
    return desired.why_held(key, OWNER.partition)


class Stopped(SystemClock):
    """A clock that stands at the test's instant, or later."""

    def __init__(self, later_s: float) -> None:
        self._now = now(later_s)

    def now(self) -> Instant:
        """The same instant, always."""
        return self._now


def told(
    held: Partition, desired: Desired, later_s: float = 0, gaps: dict[int, Gap] | None = None, view: LaneView = VIEW
) -> PartitionReport:
    """What is told of this partition, as a reader has it."""
    *steps, whole = view.report({0: held}, gaps or {}, desired, Stopped(later_s))
    assert [None] == steps
    assert whole is not None
    report = decode(encode(whole))
    assert report is not None
    assert ("a", 3.0, desired.position) == (report.slot, report.interval_s, report.control)
    return report.partitions[0]


def start(held: Partition, key: bytes, later_s: float = 0) -> None:
    """Start the next call of a lane."""
    lane = held.lane_of(key)
    assert lane is not None
    assert isinstance(lane.next(now(later_s)), Start)


def test_each_lane_is_told_as_it_stands() -> None:
    """One that is called, one that waits for its next try, one that somebody halted, and one of which everything is parked."""
    desired = wanted((key_target(b"halted"), HALTED))
    held = assignment(desired, Entry(41, b"parked", 3, 100, WALL + 60, "retry_after"), Entry(43, b"parked", 4, 100, 0, "queued"))
    keys = [b"called", b"tried", b"halted", b"called"]
    named = (("ce_id", b"id-1"),)
    held.accept([record(key=key, offset=50 + n, headers=named if n == 1 else ()) for n, key in enumerate(keys)], MONO)
    start(held, b"called", 1)
    start(held, b"tried", 1)
    tried = held.lane_of(b"tried")
    assert tried is not None
    tried.answered(answer(503, headers=(("retry-after", "30"),)), now(2), 0.5)
    report = told(held, desired, 4)
    lanes = {lane.key: lane for lane in report.notable}
    place = f"dispatcher.requests/0/{{}}@{TOPIC_ID[:8]}"
    assert LaneReport("called", "", None, True, 2, 0, place.format(50), 50, 1, 4.0) == lanes["called"]  # noqa: FBT003 - a report
    assert LaneReport("tried", "retry_after", WALL + 32, False, 1, 0, "id-1", 51, 1, 4.0) == lanes["tried"]  # noqa: FBT003
    assert LaneReport("halted", "halted", None, False, 1, 0, place.format(52), 52, 0, 4.0) == lanes["halted"]  # noqa: FBT003
    parked = lanes["parked"]
    assert ("parked", 0, 2, place.format(41), 41) == (parked.key, parked.queued, parked.parked, parked.head, parked.offset)
    assert WALL + 60 == parked.until
    assert "halted" == report.notable[0].key
    assert (50, 4, 2, 4, "") == (report.position, report.held, report.parked, report.lanes, report.why)


def test_a_partition_says_why_it_stands() -> None:
    """What is parked is not known yet; it is being given up; somebody paused it; it stands at a gap; nothing can be published."""
    paused = wanted((partition_target(0), PAUSED))
    none = wanted()
    assert "restoring" == told(assignment(none, restored=False), none).why
    assert "" == told(assignment(none), none).why
    assert PAUSED == told(assignment(paused), paused).why
    assert "gap" == told(assignment(none), none, gaps={0: Gap(0, Cause.RETENTION, 50, 60, 70)}).why
    closing = assignment(none)
    closing.close()
    assert "closing" == told(closing, none).why
    stuck = assignment(none)
    stuck.accept([record(offset=50)], MONO)
    start(stuck, b"doc:42")
    lane = stuck.lane_of(b"doc:42")
    assert lane is not None
    lane.answered(answer(), now(), 0.5)
    step: Any = lane.next(now())
    settled(stuck, step.outcome, MONO)
    assert "unpublished" == told(stuck, none, 11).why


def test_a_partition_where_no_more_can_be_parked_says_so() -> None:
    """What waits long fills its memory, and nothing else of it is read."""
    none = wanted()
    room = replace(ROOM, records=4, parked=1)
    held = Partition(OWNER, 50, decoder(SETTINGS), room, (), lambda _: PAUSED)
    held.restore([Entry(7, b"old", 3, 100, 0.0, "queued")], now())
    held.accept([record(key=b"a", offset=50)], MONO)
    assert "" == told(held, none).why
    held.accept([record(key=b"b", offset=51), record(key=b"c", offset=52)], MONO)
    assert "parked limit" == told(held, none).why


def test_a_paused_partition_holds_its_lanes() -> None:
    """Until it is resumed; the lanes say so themselves."""
    desired = wanted((partition_target(0), PAUSED))
    held = assignment(desired)
    held.accept([record(offset=50)], MONO)
    assert [PAUSED] == [lane.why for lane in told(held, desired).notable]
    resumed = wanted((partition_target(0), PAUSED), (partition_target(0), RUNNING))
    held = assignment(resumed)
    held.accept([record(offset=50)], MONO)
    assert [""] == [lane.why for lane in told(held, resumed).notable]


def test_a_strict_partition_tells_of_its_one_lane() -> None:
    """By the key of the request whose turn it is; all that waits behind it is its queue."""
    strict = settings(worker={"ordering": "partition", "slot": "a", "report_interval_s": 3})
    desired = wanted((key_target(b"first"), PAUSED))
    held = Partition(OWNER, 50, decoder(strict), ROOM, (), partial(_why_held, desired))
    held.restore((), now())
    held.accept([record(key=b"first", offset=50), record(key=b"second", offset=51)], MONO)
    report = told(held, desired, view=LaneView(strict.worker, TOPICS))
    assert [("first", PAUSED, 2)] == [(lane.key, lane.why, lane.queued) for lane in report.notable]


def test_a_partition_that_goes_meanwhile_is_left_out() -> None:
    """Between two steps anything may happen to what is told of."""
    none = wanted()
    partitions = {0: assignment(none), 1: assignment(none)}
    steps = VIEW.report(partitions, {}, none, Stopped(0))
    assert next(steps) is None
    del partitions[1]
    report = next(steps)
    assert report is not None
    assert 1 == len(report.partitions)


def test_of_many_lanes_those_are_looked_at_that_have_been_there_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that somebody holds, wherever they stand; the number of all is told."""
    monkeypatch.setattr(lane_view, "LOOK_MAX", 2)
    desired = wanted((key_target(b"key-7"), HALTED), (key_target(b"no lane"), HALTED))
    held = assignment(desired)
    held.accept([record(key=b"key-%d" % n, offset=50 + n) for n in range(9)], MONO)
    report = told(held, desired)
    assert (9, {"key-0", "key-1", "key-7"}) == (report.lanes, {lane.key for lane in report.notable})


def test_a_partition_that_never_went_live_is_told_of_too() -> None:
    """It has no position that counts: it is ours, and stands."""
    none = wanted()
    gaps = {n: Gap(n, cause, position) for n, cause, position in ((0, Cause.RETENTION, 50), (3, Cause.NO_POSITION, None))}
    *_, whole = VIEW.report({0: assignment(none)}, gaps, none, Stopped(0))
    assert whole is not None
    assert [(0, OWNER.epoch, 50, "gap"), (3, 0, 0, "gap")] == [
        (one.partition, one.epoch, one.position, one.why) for one in whole.partitions
    ]
