"""The worker in simulated worlds: 2,000 seeds of this commit, and what the simulator itself must be."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dispatcher.worker import exactly_once
from dispatcher.worker.exactly_once import ExactlyOnce
from dispatcher.worker.ready import Ready
from tests.sim.__main__ import told
from tests.sim.plan import FAULTS, ORDERS, Write, draw, staged
from tests.sim.seeds import TEST_RUN, Failure, first_seed, run_seeds
from tests.sim.shrink import shrink
from tests.sim.world import World, run

ROOT = Path(__file__).parents[2]
# What a run of many worlds must have met, else it proves little: every fault, and the worker's rarer ways.
RARE = (
    *("lost", "drain_expired", "died", "positions_unsettled", "epoch_refused", "bug"),
    *("transaction_failed", "send_offsets_failed", "commit_failed", "abort_failed", "open_failed", "produce_failed"),
    *("outcome_unknown", "outage", "breaker_open", "breaker_half_open", "breaker_closed"),
    *("shared", "parked", "halted", "map_full", "gap_passed", "restorer_failed", *ORDERS),
)


@pytest.mark.long
def test_no_world_of_this_commit_breaks_a_guarantee() -> None:
    """2,000 seeds from the commit's hash: every guarantee holds in each, and every fault and rare way was met."""
    tally, failures = run_seeds(first_seed(), TEST_RUN, 2)
    assert not failures, "\n".join(told(failure) for failure in failures[:3])
    assert [] == [name for name in (*FAULTS, *RARE) if not tally[name]]


def test_a_producer_that_rested_is_made_anew_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of rest played as half a second: in 150 worlds producers are replaced between transactions, and every guarantee holds."""
    monkeypatch.setattr(exactly_once, "IDLE_MAX_S", 0.5)
    publish, opened = ExactlyOnce.publish, Counter[str]()

    def watched(self: ExactlyOnce, pending: list[Ready]) -> None:
        opened["rested"] += self._number > 0 and self._steps.clock.now().mono - self._began > exactly_once.IDLE_MAX_S
        publish(self, pending)

    monkeypatch.setattr(ExactlyOnce, "publish", watched)
    for seed in range(150):
        assert [] == run(draw(seed, publishing="exactly_once")).findings, f"seed {seed}"
    assert 150 < opened["rested"]


def test_the_same_seed_is_the_same_world() -> None:
    """Two processes with different hash seeds trace the same world, event by event."""
    command = [sys.executable, "-m", "tests.sim", "--seed", "11"]
    traces = {
        subprocess.run(command, cwd=ROOT, env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert 1 == len(traces)
    assert b"CallStarted" in traces.pop()


@pytest.mark.parametrize("seed", range(20))
def test_settings_can_be_fixed(seed: int) -> None:
    """A plan takes what it is told and draws the rest."""
    plan = draw(seed, protocol="eager", publishing="at_least_once")
    assert ("eager", "at_least_once") == (plan.broker.protocol, plan.settings.worker.publishing)


def test_a_failing_plan_shrinks_to_what_matters() -> None:
    """Of a whole plan only the one write and the one fault are left that make it fail."""
    plan = next(plan for plan in map(draw, range(1000)) if any(f.kind == "freeze" for f in plan.faults) and len(plan.faults) > 3)
    left = shrink(plan, lambda plan: any(f.kind == "freeze" for f in plan.faults) and any(w.kind == "request" for w in plan.writes))
    assert ["freeze"] == [fault.kind for fault in left.faults]
    assert ["request"] == [write.kind for write in left.writes]


def test_a_broken_promise_is_told_with_its_seed() -> None:
    """A world whose events break a promise has findings, and the report names the command that shows it."""
    plan = staged(3, (Write(0.0, 0, "request", 0.0, 3),))
    world = World(plan)
    world.schedule.after(0.05, world.cluster.positions.commit, {0: (2, "")})
    assert any("CommitAfterAcknowledgement" in finding for finding in world.run().findings)
    assert [] == run(plan).findings
    assert "make sim SEED=3" in told(Failure(3, ("CommitAfterAcknowledgement: planted",)))
