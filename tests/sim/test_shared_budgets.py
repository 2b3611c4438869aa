"""Workers whose partitions share a budget: all of it is there for whoever has something to do, and is told to be spent only when it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.guarantees.budgets import AGENT_CENTS, CALL_CENTS
from tests.guarantees.events import CallEnded, Event, ReplyVisible
from tests.sim.plan import Fault, Plan, Write, staged, with_budgets
from tests.sim.world import World

# No day begins in these worlds.
NEVER_S = 10_000.0


class Watched:
    """What calls have cost, and how much of it before somebody was told that all is spent."""

    def __init__(self) -> None:
        self.spent = 0
        self.told: list[int] = []

    def see(self, event: Event) -> None:
        """As a judge."""
        match event:
            case CallEnded(charged=charged):
                self.spent += charged
            case ReplyVisible(says=says) if "budget_exhausted" in says:
                self.told.append(self.spent)
            case _:
                pass

    def findings(self) -> list[str]:
        """As a judge."""
        return []


def shared(seed: int, writes: tuple[Write, ...], faults: tuple[Fault, ...] = (), ordering: str = "key") -> Plan:
    """A plan in which all requests are one agent's, whose budget is shared."""
    plan = staged(seed, writes, faults, workers=2, ordering=ordering)
    return replace(plan, settings=with_budgets(plan.settings, NEVER_S, waits=False, of_keys=False, shared=True))


def watched(plan: Plan) -> Watched:
    """Run it; every guarantee holds in it."""
    world, watching = World(plan), Watched()
    world.judges.append(watching)
    assert [] == world.run().findings
    return watching


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("seed", range(4))
def test_all_of_it_is_there_for_the_one_who_has_something_to_do(seed: int, ordering: str) -> None:
    """One partition has all the requests: it is given what others do not use, until less than a call's reserve is left of all together."""
    watching = watched(shared(seed, (Write(0.5, 1, "request", count=60),), ordering=ordering))
    assert watching.told, "60 calls of 15 cents cost more than the budget"
    assert AGENT_CENTS - CALL_CENTS < watching.told[0] <= AGENT_CENTS


@pytest.mark.parametrize("seed", range(4))
def test_all_of_it_is_spent_where_all_have_something_to_do(seed: int) -> None:
    """Whoever asks, in whichever partition, and whoever dies: what is left pays no call. Who died in a call may have left its reserve."""
    writes = tuple(Write(0.5 + 0.3 * n, n % 2, "request", count=3) for n in range(20))
    deaths = (Fault(2.0, "kill", 0, 1), Fault(4.0, "kill", 1, 1))
    assert AGENT_CENTS - CALL_CENTS < watched(shared(seed, writes)).told[0] <= AGENT_CENTS
    assert AGENT_CENTS - (1 + 2 * len(deaths)) * CALL_CENTS < watched(shared(seed, writes, deaths)).told[0]
