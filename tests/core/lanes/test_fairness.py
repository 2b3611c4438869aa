"""Start-time fair queueing: order per agent, shares by weight, and the lone request's bound."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.lanes.fairness import FairQueue

AGENTS = ("", "a", "b", "c")
WEIGHTS = st.fixed_dictionaries({agent: st.sampled_from([0.5, 1.0, 2.0, 4.0]) for agent in AGENTS})


class Server:
    """Serves one after another, in virtual time: one request takes one unit."""

    def __init__(self, weights: dict[str, float] | None = None) -> None:
        self.queue = FairQueue(lambda agent: (weights or {}).get(agent, 1.0))
        self.agents: dict[int, str] = {}
        self.served: list[int] = []
        self.offset = 0

    def add(self, agent: str, count: int = 1) -> int:
        """Queue requests of an agent; the offset of the last one."""
        for _ in range(count):
            self.offset += 1
            self.agents[self.offset] = agent
            self.queue.add(agent, self.offset)
        return self.offset

    def serve(self, count: int = 1) -> list[int]:
        """Serve so many requests, in their turn."""
        served = []
        for _ in range(count):
            offset = self.queue.next()
            if offset is None:
                self.queue.rest()
                break
            self.queue.remove(self.agents[offset], offset)
            self.queue.begin(self.agents[offset])
            served.append(offset)
        self.served += served
        return served

    def turns(self, count: int) -> str:
        """Whose requests the next ones are."""
        return "".join(self.agents[offset] for offset in self.serve(count))


def jain(shares: list[float]) -> float:
    """Jain's index: 1 where all have the same, 1/n where one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def test_agents_take_turns() -> None:
    """However much each has queued, and whoever came first."""
    server = Server()
    server.add("a", 4)
    server.add("b", 2)
    server.add("c", 3)
    assert "abcabcaca" == server.turns(9)


def test_one_agent_alone_is_served_in_its_order() -> None:
    """Nobody waits for nobody."""
    server = Server()
    server.add("a", 5)
    assert [1, 2, 3, 4, 5] == server.serve(9)


@given(st.integers(1, 1000), st.sampled_from([0.01, 1.0, 100.0]))
def test_a_lone_request_behind_a_flood_is_next(begun: int, weight: float) -> None:
    """Behind 1,000 of another agent, wherever that stands and whatever it weighs: it is next, so it waits for one that is being served."""
    server = Server({"flood": weight})
    server.add("flood", 1001)
    server.serve(begun)
    lone = server.add("lone")
    assert [lone] == server.serve(1)


def test_ten_lone_requests_behind_a_flood_are_next() -> None:
    """Each of its own agent: they wait for each other, and not for the flood."""
    server = Server()
    server.add("flood", 1000)
    server.serve(100)
    lone = [server.add(f"agent-{n}") for n in range(10)]
    assert lone == server.serve(10)


@pytest.mark.parametrize(("weight", "rounds"), [(1.0, 400), (3.0, 400)])
def test_one_agent_at_a_hundredfold_load_takes_nothing_from_the_others(weight: float, rounds: int) -> None:
    """Ten agents send one request each four turns, which is more than the server can do, one sends 100 times as many: the others' shares.

    Jain's index over them is at least 0.95, and none of them has less than an equal share of what is left.
    """
    server = Server({"greedy": weight})
    others = [f"agent-{n}" for n in range(10)]
    for turn in range(rounds):
        if turn % 4 == 0:
            server.add("greedy", 100)
            for agent in others:
                server.add(agent)
        server.serve()
    had = Counter(server.agents[offset] for offset in server.served)
    assert 0.95 <= jain([had[agent] for agent in others])
    equal = rounds / (10 + weight)
    assert all(abs(had[agent] - equal) <= 2 for agent in others)
    assert abs(had["greedy"] - weight * equal) <= 1 + weight


def test_who_rested_is_owed_nothing() -> None:
    """An agent that comes after a thousand turns of another has no thousand turns of its own first."""
    server = Server()
    server.add("a", 1500)
    server.serve(1000)
    server.add("b", 100)
    assert "ba" * 10 == server.turns(20)


def test_a_busy_period_that_ends_settles_all_debts() -> None:
    """The one that was served last does not come after everybody else for that."""
    server = Server()
    server.add("a", 3)
    server.serve(4)
    server.add("a")
    server.add("b")
    assert "ab" == server.turns(2)


def test_what_leaves_unserved_costs_its_agent_nothing() -> None:
    """Cancelled, or expired: the next of that agent has the turn that it would have had."""
    server = Server()
    server.add("a", 3)
    server.add("b", 3)
    server.queue.remove("a", 1)
    server.queue.remove("a", 2)
    assert "abbb" == server.turns(6)


def test_the_order_is_foretold() -> None:
    """`order` says what would be served, and changes nothing."""
    server = Server({"b": 2.0})
    server.add("a", 5)
    server.add("b", 5)
    server.serve(3)
    told = list(server.queue.order())
    assert told == list(server.queue.order()) == server.serve(7)


def test_an_offset_may_come_late() -> None:
    """What was put back, or is read again, stands where it stood within its agent."""
    server = Server()
    server.add("a", 3)
    server.queue.remove("a", 1)
    server.queue.add("a", 1)
    assert (True, False) == (server.queue.is_first("a", 1), server.queue.is_first("a", 2))
    assert [1, 2, 3] == server.serve(3)


def test_agents_that_are_gone_are_forgotten() -> None:
    """A hundred thousand agents with one request each leave next to nothing behind."""
    server = Server()
    server.add("flood", 100_001)
    for n in range(100_000):
        server.add(f"agent-{n}")
        server.serve(2)
    assert len(server.queue._flows) < 200
    assert len(server.queue._heap) < 500


class FairQueueMachine(RuleBasedStateMachine):
    """Requests of four agents come, are served and leave, in any order."""

    @initialize(weights=WEIGHTS)
    def begin(self, weights: dict[str, float]) -> None:
        self.server = Server(weights)
        self.weights = weights
        self.queued: dict[str, list[int]] = {agent: [] for agent in AGENTS}
        self.time = 0.0
        # Of each two agents: what was served of each since both have something queued.
        self.since: dict[tuple[str, str], tuple[int, int]] = {}

    @rule(agent=st.sampled_from(AGENTS), count=st.integers(1, 5))
    def add(self, agent: str, count: int) -> None:
        for _ in range(count):
            self.queued[agent].append(self.server.add(agent))

    @precondition(lambda self: any(self.queued.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from([agent for agent in AGENTS if self.queued[agent]]))
        offset = data.draw(st.sampled_from(self.queued[agent]))
        self.queued[agent].remove(offset)
        self.server.queue.remove(agent, offset)

    @rule(count=st.integers(1, 6))
    def serve(self, count: int) -> None:
        for _ in range(count):
            busy = [agent for agent in AGENTS if self.queued[agent]]
            served = self.server.serve()
            assert bool(busy) == bool(served)
            if not served:
                return
            agent = self.server.agents[served[0]]
            assert self.queued[agent].pop(0) == served[0]
            self._judge(agent, busy)

    def _judge(self, served: str, busy: list[str]) -> None:
        """Over any time in which two are busy what they had, by weight, differs by no more than a request of each."""
        for pair in [(one, two) for one in AGENTS for two in AGENTS if one < two]:
            if not set(pair) <= set(busy):
                self.since.pop(pair, None)
                continue
            had = self.since.get(pair, (0, 0))
            self.since[pair] = had = had[0] + (served == pair[0]), had[1] + (served == pair[1])
            shares = [Fraction(n) / Fraction(self.weights[agent]) for n, agent in zip(had, pair, strict=True)]
            most = sum(1 / Fraction(self.weights[agent]) for agent in pair)
            assert abs(shares[0] - shares[1]) <= most

    @invariant()
    def time_never_goes_back(self) -> None:
        if hasattr(self, "server"):
            assert self.time <= self.server.queue.virtual_time
            self.time = self.server.queue.virtual_time
            assert sum(map(len, self.queued.values())) == len(self.server.queue)


TestFairQueueInAnyOrder = FairQueueMachine.TestCase
TestFairQueueInAnyOrder.settings = hypothesis_settings(max_examples=100, stateful_step_count=50, deadline=None)
