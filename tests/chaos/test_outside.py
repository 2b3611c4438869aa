"""What is counted from outside of the workers: the same for ours and a peer's, on histories written by hand."""

from __future__ import annotations

import ast
import doctest
import json
from dataclasses import replace

import pytest

from tests.bench import faults
from tests.chaos import outside, peer
from tests.chaos.outside import ROWS, Figures, History, figures
from tests.chaos.scene import Call, Fate, Trouble
from tests.chaos.takeover import Served

A, B = Fate("worker1"), Fate("worker2")
# A peer's calls: the number of the process stands in the epoch's place, and there is no attempt.
FIRST = Call("requests/0/5", 0, 5, 1, 0, "0", "worker1", 100.0, 101.0, "answered", 200)
AGAIN = replace(FIRST, epoch=2, worker="worker2", start=110.0, end=111.0)
LANES = {(0, 5): "0", (0, 6): "0"}
LATER = replace(FIRST, request_id="requests/0/6", offset=6, start=101.0, end=102.0)


def _history(*calls: Call, **how: object) -> History:
    given = History(LANES, [(0, 5), (0, 6)], [], calls, {0: 7}, [A, B], [], {})
    return replace(given, **how)  # type: ignore[arg-type] # each test names what it changes


def _counted(history: History) -> dict[str, int]:
    """Give what is not zero, but for the plain totals."""
    plain = {"requests", "calls", "replies", "dead letters", "partitions of killed workers"}
    return {name: count for name, count in figures(history).counts.items() if count and name not in plain}


def test_the_examples_are_true() -> None:
    """Every docstring example."""
    found = doctest.testmod(outside)
    assert (0, True) == (found.failed, found.attempted > 0)


def test_a_good_history_has_nothing_to_count() -> None:
    """Two requests of a lane, called and answered in order."""
    assert {} == _counted(_history(FIRST, LATER))


def test_what_has_no_outcome_is_lost_or_not_done() -> None:
    """Lost where its position was committed, else not done, in a lane that is at work or stuck; a dead letter is an outcome."""
    assert {"lost": 1} == _counted(_history(FIRST, LATER, replies=[(0, 5)]))
    for until, which in ((120.0, "still at work"), (140.0, "stuck")):
        seen = _history(FIRST, LATER, replies=[(0, 5)], committed={0: 6}, until=until)
        assert {"not done in the end": 1, f"lanes of these {which}": 1} == _counted(seen)
    assert {} == _counted(_history(FIRST, LATER, replies=[(0, 5)], letters=[(0, 6)]))
    assert {"duplicated replies": 1} == _counted(_history(FIRST, LATER, replies=[(0, 5), (0, 5), (0, 6)]))


def test_what_overtook_is_counted() -> None:
    """The first call, and the first reply, of a request behind one of a later request of its lane; in another lane it may."""
    early = replace(LATER, start=98.0, end=99.0)
    expected = {"first calls out of order": 1, "first replies out of order": 1, "calls that went back behind a later request": 1}
    assert expected == _counted(_history(FIRST, early, replies=[(0, 6), (0, 5)]))
    apart = {(0, 5): "0/a", (0, 6): "0/b"}
    assert {} == _counted(_history(replace(FIRST, lane="0/a"), replace(early, lane="0/b"), lanes=apart, replies=[(0, 6), (0, 5)]))


@pytest.mark.parametrize(
    ("befell", "expected"),
    [
        ({"fates": [replace(A, killed_at=102.0), B]}, "worker killed"),
        ({"fates": [replace(A, frozen=[(100.5, 109.0)]), B]}, "worker frozen"),
        ({"fates": [A, replace(B, frozen=[(100.5, 109.9)])]}, "worker frozen"),
        ({"fates": [replace(A, ended_at=103.0), B]}, "worker ended by itself"),
        ({"fates": [replace(A, terminated_at=103.0), B], "taken": {"worker1": [(103.1, [0])]}}, "worker asked to end"),
        ({"taken": {"worker1": [(105.0, [0, 1])]}, "troubles": [Trouble("kill broker", 90.0, 99.0)]}, "partition moved"),
        ({"taken": {"worker1": [(105.0, [1])]}, "troubles": [Trouble("kill broker", 90.0, 99.0)]}, "broker trouble"),
        ({"taken": {"worker1": [(69.0, [0])]}}, "unexplained"),
    ],
)
def test_a_call_again_has_what_befell_its_worker_first_as_its_cause(befell: dict[str, object], expected: str) -> None:
    """Its own worker's end, then a partition that was taken from it while it was whole, then brokers; else there is none."""
    assert {f"calls again: {expected}": 1} == _counted(_history(FIRST, AGAIN, **befell))


def test_a_failed_call_is_tried_again() -> None:
    """By whatever process, unless the caller itself hung up: then by the same one, or where nothing else is the cause."""
    failed = replace(FIRST, status=500)
    hung_up = replace(FIRST, outcome="client_closed", status=None)
    killed = [replace(A, killed_at=101.0), B]
    assert {"calls again: upstream retry": 1} == _counted(_history(hung_up, replace(AGAIN, worker="worker1")))
    assert {"calls again: worker killed": 1} == _counted(_history(hung_up, AGAIN, fates=killed))
    assert {"calls again: upstream retry": 1} == _counted(_history(failed, AGAIN, fates=killed))
    assert {"calls again: upstream retry": 1} == _counted(_history(failed, replace(AGAIN, worker="worker1")))
    assert {"calls again: upstream retry": 1} == _counted(_history(failed, AGAIN))
    assert {"calls again: unexplained": 1} == _counted(_history(FIRST, replace(AGAIN, worker="worker1")))


def test_calls_side_by_side_are_counted_with_their_cause() -> None:
    """Of one process too: a partition that came back to it while its call went on."""
    beside = replace(LATER, start=100.5)
    moved = {"worker1": [(100.2, [0])]}
    assert {"overlaps: partition moved": 1, "overlaps in one process": 1} == _counted(_history(FIRST, beside, taken=moved))
    assert {"overlaps: unexplained": 1} == _counted(_history(FIRST, replace(beside, worker="worker2")))


def test_a_kill_lasts_until_the_partition_goes_on() -> None:
    """From the kill of the worker that called last to the end of the next call; groups add up."""
    served = [Served(0, 90.0, 101.0, 101.1, 101.2), Served(0, 91.0, 111.0, 111.1, 111.3)]
    found = figures(_history(FIRST, replace(AGAIN, offset=6), fates=[replace(A, killed_at=101.5), B], served=served))
    assert ([9.5], 1) == (found.completed_s, found.counts["partitions of killed workers"])
    both = (found + Figures()).as_json()
    assert set(ROWS) < set(both)
    assert (2, 9.5, 20.3) == (both["requests"], both["kill -> next completion p50 s"], round(both["request -> outcome p99 s"] or 0, 3))


def test_the_peer_has_a_worker_of_its_own() -> None:
    """It imports its library, and nothing of ours: neither the product nor its tests."""
    tree = ast.parse((peer.FOLDER / "worker.py").read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in found}
    theirs = {"aiohttp", "confluent_kafka", "orjson", "pyrallel_consumer"}
    assert theirs == tops - {"__future__", "asyncio", "json", "logging", "signal", "sys", "threading", "typing"}


def test_its_log_tells_what_was_taken_from_it() -> None:
    """In the library's own words."""
    log = "1764470000.25 WARNING pyrallel_consumer.x: Partitions revoked: chaos-7-key.requests-0, chaos-7-key.requests-4\n"
    assert [("1764470000.25", "chaos-7-key.requests-0, chaos-7-key.requests-4")] == peer.REVOKED.findall("noise\n" + log)


def test_the_text_has_both_side_by_side() -> None:
    """One row for each figure; "-" where the peer cannot have one, or there is none."""
    shown = figures(_history(FIRST, LATER)).as_json()
    report = {"seed": 7, "minutes": 5, "ended": "2026-11-30T04:00:00", "cores": 2, "load_average_mean": 1.5, "cpu_percent_mean": 50.0}
    report |= {"versions": {"x": "1"}, "faults": {"kill broker": 1}, "outside": {"strict": shown, "key": shown, "both": shown}}
    rows = [line.split("|") for line in faults.text(report, json.loads(json.dumps(report))).splitlines() if line.startswith("| ")]
    cells = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    assert ["2"] * 4 == cells["requests"]
    assert ["0", "-", "0", "-"] == cells["calls again: worker past its grace"]
    assert ["-"] * 4 == cells["kill -> next completion p99 s"]
