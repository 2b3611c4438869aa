"""The board of lanes: commands, committed positions and what workers tell, as rows; what nobody tells is None and not 0."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.internal.control import HALTED, PAUSED, Command
from dispatcher.core.internal.lane_report import LaneReport, PartitionReport, WorkerReport
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.operations.lane_board import (
    Edges,
    Facts,
    LaneRow,
    PartitionRow,
    in_force,
    lane_report,
    lane_rows,
    partition_rows,
    report_of,
    slot_of,
)
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway

KEY = "doc:42"
HOME = partition_for(KEY.encode(), 2)
AWAY = 1 - HOME
LANE = LaneReport(KEY, "retry_after", 99.5, calling=False, queued=3, parked=2, head="id-1", offset=41, attempts=2, waited_s=12.5)
REPORT = PartitionReport(HOME, epoch=7, position=40, held=5, in_flight=1, parked=2, lanes=4, why="", notable=(LANE,))


def worker(slot: str, *partitions: PartitionReport) -> WorkerReport:
    """A report of a worker."""
    return WorkerReport(slot, "2026-11-29T10:00:00.000Z", "key", 2.0, 17, partitions)


def command(target: str, state: str) -> Command:
    """A command of somebody."""
    return Command("id-1", target, state, "2026-11-29T10:00:00.000Z", "ana@desk", "why not")


FACTS = Facts(
    edges={0: Edges(0, 50), 1: Edges(0, 50)},
    headways={0: Headway(40), 1: Headway(40)},
    owners={HOME: "dispatcher-a"},
    reports={"a": worker("a", REPORT)},
    commands={},
)


def test_a_partition_is_told_of_by_its_owner() -> None:
    """Position and lag are Kafka's; held, in flight and parked the owner's. Nobody's partition has only the former, and stands."""
    rows = {row.partition: row for row in partition_rows(FACTS)}
    assert PartitionRow(HOME, "a", 40, 10, 5, 1, 2, 0, 0, "") == rows[HOME]
    assert PartitionRow(AWAY, None, 40, 10, None, None, None, 0, 0, "no_worker") == rows[AWAY]


def test_lag_counts_what_is_not_settled() -> None:
    """Above the position as well; a group that has committed nothing has all before it, from the first record that is there."""
    note = CommitNote(bytes(16), 1, 1, position=40, settled=((42, 45),))
    facts = replace(FACTS, headways={HOME: Headway(40, note), AWAY: Headway()}, edges={HOME: Edges(0, 50), AWAY: Edges(30, 50)})
    rows = {row.partition: row for row in partition_rows(facts)}
    assert (7, 20, None) == (rows[HOME].lag, rows[AWAY].lag, rows[AWAY].position)
    empty = replace(FACTS, edges={HOME: Edges(60, 60), AWAY: Edges(0, 0)})
    assert {0} == {row.lag for row in partition_rows(empty)}


def test_held_keys_are_counted_where_they_are() -> None:
    """By the partition of each key; a partition that is paused stands, whoever has it."""
    keys = [command(f"key:{name}", state) for name, state in ((KEY, PAUSED), ("doc:1", HALTED), ("doc:2", HALTED), ("doc:3", HALTED))]
    facts = replace(FACTS, commands=in_force([*keys, command(f"partition:{AWAY}", PAUSED), command("request:t/0/1@AbCdEfGh", "skip")]))
    rows = partition_rows(facts)
    expected = {n: sum(partition_for(key, 2) == n for key in (b"doc:1", b"doc:2", b"doc:3")) for n in (0, 1)}
    assert expected == {row.partition: row.halted_keys for row in rows}
    assert {HOME: 1, AWAY: 0} == {row.partition: row.paused_keys for row in rows}
    assert {HOME: "", AWAY: PAUSED} == {row.partition: row.why for row in rows}


def test_what_a_worker_says_of_its_whole_partition_is_shown() -> None:
    """Such as that it is still restoring what is parked."""
    facts = replace(FACTS, reports={"a": worker("a", replace(REPORT, why="restoring"))})
    assert ["restoring"] == [row.why for row in partition_rows(facts) if row.partition == HOME]


def test_who_has_a_partition_is_for_the_group_to_say() -> None:
    """Reports of those who had it before stand there too; a worker that calls itself something else is known by its later epoch."""
    before = worker("b", replace(REPORT, epoch=6, held=99))
    facts = replace(FACTS, reports={"b": before, "a": worker("a", REPORT)})
    assert ("a", REPORT) == report_of(facts, HOME)
    assert ("a", REPORT) == report_of(replace(facts, owners={HOME: "my-name"}), HOME)
    assert report_of(replace(facts, owners={}), HOME) is None
    assert report_of(replace(facts, reports={}), HOME) is None
    row = next(row for row in partition_rows(replace(facts, reports={})) if row.partition == HOME)
    assert ("a", None) == (row.owner, row.held)


@pytest.mark.parametrize(("client_id", "slot"), [("dispatcher-a", "a"), ("dispatcher-dispatcher-0", "dispatcher-0"), ("x", "x")])
def test_a_worker_calls_itself_by_its_slot(client_id: str, slot: str) -> None:
    """As `client.id` shows it."""
    assert slot == slot_of(client_id)


@pytest.mark.parametrize(
    ("lane", "target", "state", "why", "until"),
    [
        (LANE, None, "waiting", "retry_after", 99.5),
        (LANE, f"key:{KEY}", PAUSED, PAUSED, None),
        (LANE, f"partition:{HOME}", PAUSED, PAUSED, None),
        (replace(LANE, why="", until=None, calling=True), None, "calling", "", None),
        (replace(LANE, why="", until=None), None, "queued", "", None),
    ],
)
def test_a_lane_says_why_it_stands(lane: LaneReport, target: str | None, state: str, why: str, until: float | None) -> None:
    """What somebody wants of it counts before what its worker tells, which may be some seconds old."""
    given = [] if target is None else [command(target, PAUSED)]
    facts = replace(FACTS, reports={"a": worker("a", replace(REPORT, notable=(lane,)))}, commands=in_force(given))
    expected = LaneRow(KEY, HOME, state, why, until, 3, 2, "id-1", 41, 2, 12.5, lane.calling, given[0] if given else None)
    assert [expected] == lane_rows(facts)


def test_held_keys_have_a_row_without_any_worker() -> None:
    """What is halted must not be forgotten because nobody runs; their own command is named, not their partition's."""
    halted = command(f"key:{KEY}", HALTED)
    facts = replace(FACTS, owners={}, reports={}, commands=in_force([halted, command(f"partition:{HOME}", PAUSED)]))
    assert [LaneRow(KEY, HOME, HALTED, HALTED, None, None, None, None, None, None, None, None, halted)] == lane_rows(facts)


def test_a_lane_whose_key_is_no_text_has_a_row() -> None:
    """Such records are refused, but may stand a while in a paused partition."""
    odd = replace(LANE, key={"base64": "/w=="})
    facts = replace(FACTS, reports={"a": worker("a", replace(REPORT, notable=(LANE, odd)))})
    assert [KEY, {"base64": "/w=="}] == [row.key for row in lane_rows(facts)]


def test_one_lane_is_found_by_its_key() -> None:
    """Where its worker tells of it."""
    assert lane_report(FACTS, HOME, KEY.encode()) == LANE
    assert lane_report(FACTS, HOME, b"doc:7") is None
    assert lane_report(FACTS, AWAY, KEY.encode()) is None
