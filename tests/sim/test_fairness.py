"""A worker whose lanes are shared by their agents, one of which sends a hundred times as much as each of the others."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.guarantees.events import CallStarted, Event, Queued, Submitted
from tests.sim.plan import Fault, Write, staged
from tests.sim.world import World

FLOOD = 500
OTHERS = tuple(f"agent-{n}" for n in range(10))


class Watched:
    """Whose calls began in which order, and how many of the flood's each request of another agent has waited for."""

    def __init__(self, *, by_key: bool) -> None:
        self._by_key = by_key
        self.agents: dict[tuple[int, int], str] = {}
        self.calls: list[str] = []
        self._lanes: dict[tuple[int, int], str] = {}
        self._flood: Counter[str] = Counter()  # calls of it that have begun, by lane
        self._came: dict[tuple[int, int, int], int] = {}  # how many of them, when the owner of an epoch has read a request
        self.waited: dict[tuple[int, int, int], int] = {}  # by partition, offset and epoch, in the order of the calls

    def see(self, event: Event) -> None:
        """As a judge."""
        match event:
            case Submitted(partition, offset, key):
                self.agents[partition, offset] = event.agent
                self._lanes[partition, offset] = key if self._by_key else ""
            case Queued(partition, offset, epoch):
                self._came.setdefault((partition, offset, epoch), self._flood[self._lanes[partition, offset]])
            case CallStarted(partition=partition, offset=offset, epoch=epoch):
                agent, lane = self.agents[partition, offset], self._lanes[partition, offset]
                self.waited.setdefault((partition, offset, epoch), self._flood[lane] - self._came[partition, offset, epoch])
                self.calls.append(agent)
                self._flood[lane] += agent == "flood"
            case _:
                pass

    def findings(self) -> list[str]:
        """As a judge."""
        return []


def watched(writes: tuple[Write, ...], faults: tuple[Fault, ...] = (), ordering: str = "partition") -> Watched:
    """Run a world in which agents share lanes; every guarantee holds in it."""
    world = World(staged(7, writes, faults, fairness="agent", ordering=ordering))
    watching = Watched(by_key=ordering == "key")
    world.judges.append(watching)
    assert [] == world.run().findings
    return watching


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_lone_request_waits_for_two_calls_of_a_flood_at_most(ordering: str) -> None:
    """From the moment at which its lane knows of it: one in hand, and one that begins since it was about to. It comes at any time."""
    lone = tuple(Write(1.0 + 0.37 * n, 0, "request", agent=agent) for n, agent in enumerate(OTHERS))
    seen = watched((Write(0.5, 0, "request", count=FLOOD, agent="flood"), *lone), ordering=ordering)
    waited = [turns for place, turns in seen.waited.items() if seen.agents[place[:2]] != "flood"]
    assert len(OTHERS) == len(waited)
    assert max(waited) <= 1
    assert FLOOD + len(OTHERS) == len(seen.calls)


def test_one_agent_at_a_hundredfold_load_leaves_the_others_their_shares() -> None:
    """One of eleven agents has 100 times the requests of each other: while all have some, Jain's index over the others is at least 0.95."""
    writes = tuple(Write(0.5, 0, "request", count=5, agent=agent) for agent in OTHERS)
    seen = watched((Write(0.5, 0, "request", count=FLOOD, agent="flood"), *writes))
    for calls in (33, 44, 52):
        had = Counter(seen.calls[:calls])
        shares = [had[agent] for agent in OTHERS]
        assert 0.95 <= sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)), had
        assert had["flood"] <= calls / 11 + 3


def test_the_shares_hold_through_crashes() -> None:
    """A worker that is killed again and again: a new owner begins with everybody even, and whom it has read does not wait for the flood."""
    faults = tuple(Fault(1.5 + 2.0 * n, "kill", 0, 1) for n in range(3))
    writes = (Write(0.5, 0, "request", count=60, agent="flood"), Write(0.6, 0, "request", count=12, agent="other"))
    seen, firsts = watched(writes, faults), dict[int, int]()
    for (partition, offset, epoch), turns in seen.waited.items():
        if seen.agents[partition, offset] == "other":
            firsts.setdefault(epoch, turns)
    assert len(firsts) >= 2
    assert max(firsts.values()) <= 1
