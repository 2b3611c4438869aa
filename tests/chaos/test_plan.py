"""The plan of a chaos run: one seed, one plan; enough of everything, and time to recover between faults."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.plan import CALM_S, CLUSTER, GAPS_S, GROUPS, LASTS_S, UPSTREAM, WAY_FAULTS, draw

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_a_track_leave_time_to_recover(seed: int) -> None:
    """One begins when the one before it has ended, and no sooner after it than the track allows; none while the run begins or ends."""
    plan = draw(seed, 10)
    for track, (least_s, _) in GAPS_S.items():
        faults = plan.of(track)
        assert all(after.at_s >= max(before.at_s + least_s, before.at_s + before.lasts_s) for before, after in pairwise(faults))
        assert CALM_S <= faults[0].at_s
        assert faults[-1].at_s + faults[-1].lasts_s <= plan.load_s - CALM_S
    assert all(LASTS_S[fault.kind][0] <= fault.lasts_s <= LASTS_S[fault.kind][1] for fault in plan.faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_minutes_meet_every_sort_of_fault(seed: int) -> None:
    """Several kills and a freeze in each group, a broker killed, a way harmed, something wrong with the upstream."""
    plan = draw(seed, 3)
    for group in GROUPS:
        kinds = [fault.kind for fault in plan.of(group)]
        assert kinds.count("kill") >= 3
        assert "freeze" in kinds
    kinds = [fault.kind for fault in plan.of(CLUSTER)]
    assert "kill broker" in kinds
    assert not WAY_FAULTS.isdisjoint(kinds)
    assert len(plan.of(UPSTREAM)) >= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_half_an_hour_kills_a_hundred_workers(seed: int) -> None:
    """At least, and meets all kinds of faults that there are."""
    counted = draw(seed, 30).counted()
    assert counted["worker kills"] >= 100
    assert set(LASTS_S) <= set(counted)


def test_a_seed_is_a_plan() -> None:
    """The same seed draws the same plan, another one another; a longer run begins as the shorter one does."""
    assert draw(7, 10) == draw(7, 10)
    assert draw(7, 10).faults != draw(8, 10).faults
    assert draw(7, 3).of("key")[:5] == draw(7, 10).of("key")[:5]
