"""What a chaos run came to: whatever was found fails it, and is named with its seed, time and request."""

from __future__ import annotations

import json

import pytest

from tests.chaos.drive import Scenery
from tests.chaos.judgement import Judgement
from tests.chaos.plan import draw
from tests.chaos.report import TAKEOVER_MAX_S, TAKEOVER_P99_S, Report
from tests.chaos.scene import Finding, Trouble
from tests.chaos.standstill import Standstill
from tests.chaos.takeover import Takeover


def _report(*findings: Finding, stuck: tuple[str, ...] = (), takeover_s: float = 7.0, quick: int = 200, worst: int = 200) -> Report:
    scenery = Scenery(draw(7, 3), {}, troubles=[Trouble("kill broker", 1.0, 2.0)])
    strict = Judgement("strict", requests=10, replies=10, findings=list(findings), stuck_keys=list(stuck))
    strict.takeovers = [Takeover("worker1", 0, 100.0, 5.0, 6.0)] * quick + [Takeover("worker2", 0, 200.0, takeover_s, 48.0)] * worst
    report = Report(scenery, [strict, Judgement("key", requests=5, replies=5)])
    report.faults["worker kills"] = scenery.plan.counted()["worker kills"]
    return report


def test_a_run_without_findings_passes() -> None:
    """The table has each group's figures and both together, the JSON the same."""
    report = _report()
    assert [] == report.failures
    assert "passed: nothing was broken" == report.verdict()
    assert ["requests", "10", "5", "15"] == report.table().splitlines()[2].split()
    written = json.loads(json.dumps(report.as_json()))
    assert (True, 7, 15, 7.0) == (
        written["passed"],
        written["seed"],
        written["both"]["requests"],
        written["both"]["kill -> next completion p99 s"],
    )
    assert {"kill broker": 1} == {kind: count for kind, count in written["faults"].items() if "broker" in kind}


@pytest.mark.parametrize(
    "what", ["lost", "duplicated", "out of order", "overlaps", "repeats", "replies", "stuck", "other", "worker", "bug"]
)
def test_each_finding_fails_the_run(what: str) -> None:
    """It is printed with the seed, when it was, and which request."""
    report = _report(Finding(what, 1_000_000_000.5, "key-9", "was seen"))
    assert [f"{what}: 1"] == report.failures
    assert f"seed 7, 2001-09-09T01:46:40.500+00:00, request key-9: {what}: was seen" == report.verdict().splitlines()[0]
    assert not report.as_json()["passed"]


def test_what_is_stuck_or_late_fails_the_run() -> None:
    """Keys without a reply, and a takeover that took longer than the promise."""
    assert ["stuck keys: 2"] == _report(stuck=("doc:1", "doc:2")).failures
    assert [] == _report(takeover_s=TAKEOVER_P99_S).failures
    assert ["kill -> next completion p99: 20.1 s, more than 20 s"] == _report(takeover_s=20.1).failures


def test_of_few_takeovers_each_is_as_quick_as_promised() -> None:
    """The 99th percentile of thirty is the slowest one, and one may meet the kill of the coordinator as well."""
    assert [] == _report(takeover_s=TAKEOVER_MAX_S, quick=29, worst=1).failures
    assert ["kill -> next completion max: 26.1 s, more than 26 s"] == _report(takeover_s=26.1, quick=29, worst=1).failures


def test_workers_that_keep_ending_by_themselves_fail_the_run() -> None:
    """Now and then one may say that it cannot go on, and end: two in three minutes, not three."""
    for count, expected in ((2, []), (3, ["workers ended by themselves: 3, more than 2"])):
        report = _report()
        report.faults["workers ended by themselves"] = count
        assert expected == report.failures


def test_a_run_that_killed_few_workers_fails() -> None:
    """It shows less than it says."""
    report = _report()
    planned = report.faults["worker kills"]
    report.faults["worker kills"] = planned // 2
    assert [f"worker kills: {planned // 2}, of {planned} planned"] == report.failures


def test_the_longest_standstill_is_shown() -> None:
    """Of all lanes of both groups."""
    report = _report()
    report.judgements[0].standstills = [Standstill("0", 5.0, 12.0), Standstill("1", 5.0, 30.5)]
    assert 25.5 == report.as_json()["both"]["longest standstill of a lane s"]


def test_the_longest_wait_is_shown_although_it_does_not_fail_the_run() -> None:
    """One takeover of many may be late: table and JSON tell how late it was, until something was completed and until it was seen."""
    report = _report(takeover_s=41.0, worst=1)
    assert [] == report.failures
    both = report.as_json()["both"]
    figures = [both[f"kill -> {what} {how} s"] for what in ("next completion", "visible") for how in ("p99", "max")]
    assert [5.0, 41.0, 6.0, 48.0] == figures
    shown = {line.rsplit(maxsplit=3)[0].strip(): line.split()[-1] for line in report.table().splitlines() if line.startswith("kill")}
    assert ("41.00", "48.00") == (shown["kill -> next completion max s"], shown["kill -> visible max s"])
