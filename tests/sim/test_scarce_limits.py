"""A limit of one call at once for three workers with little memory, whose lanes are parked before it: whoever has his turn uses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.settings import LimitSettings
from tests.guarantees.events import CallStarted, Event
from tests.sim.plan import Plan, draw, with_limit
from tests.sim.world import World

ONE_AT_ONCE = LimitSettings(upstream="sample", concurrency=1, margin_s=0.1)


class LastCall:
    """When the last call began."""

    def __init__(self) -> None:
        self.at = 0.0

    def see(self, event: Event) -> None:
        """Take in calls."""
        if isinstance(event, CallStarted):
            self.at = event.at

    def findings(self) -> list[str]:
        """Nothing is broken by that."""
        return []


def scarce(seed: int) -> Plan:
    """A world in which nothing goes wrong, but that there is not enough for all."""
    fixed = {"ordering": "key", "lane_buffer_max_records": 2, "inflight_max": 1, "publishing": "exactly_once", "shared": False}
    plan = draw(seed, **fixed)
    manners = replace(plan.manners, fails=0.0, hangs=0.0, long_hints=0.0)
    settings = with_limit(plan.settings, ONE_AT_ONCE).model_copy(update={"budgets": {}})
    return replace(plan, settings=settings, manners=manners, starts=(0.1, 0.5, 0.9), faults=(), orders=(), outages=())


@pytest.mark.parametrize("seed", [25, 82, 167])
def test_a_scarce_limit_is_not_left_unused(seed: int) -> None:
    """Some sixty calls, most of them short: the last began after 48 to 88 s, since who had his turn had parked all that wanted it.

    Or had nothing more to do, and kept it for those who might come back.
    """
    world, last = World(scarce(seed)), LastCall()
    world.judges.append(last)
    assert () == tuple(world.run().findings)
    assert last.at < 30
