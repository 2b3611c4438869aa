"""Workers whose request topics are classes: every lane spans them all, and they share it by their weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from dispatcher.core.progress.strand import source_of, strand_of
from dispatcher.settings import ClassSettings, LimitSettings
from tests.core.turns import turns_max
from tests.guarantees.budgets import AGENT_CENTS, CALL_CENTS, DAY_CENTS
from tests.guarantees.events import CallEnded, CallStarted, Event, Queued, ReplyVisible
from tests.sim.plan import Fault, Plan, Write, draw, staged, with_budgets, with_limit
from tests.sim.test_shared_budgets import NEVER_S
from tests.sim.test_shared_budgets import watched as spending
from tests.sim.world import World, run

NAMES = ("generation", "analysis", "monitoring")
WEIGHTS = (3, 2, 1)
BACKLOG = 120
SEEDS = range(25)


class Watched:
    """Which class each call was of, by the epoch of its owner; and how many of each are open at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []  # epoch, class
        self.most: Counter[int] = Counter()
        self._open: dict[int, int] = {}
        self._read: dict[tuple[int, int], int] = {}  # how many calls there were when it was read first
        self.waited: dict[tuple[int, int], int] = {}  # and how many until its own, from when it was its class's first
        self._own: Counter[int] = Counter()  # behind the last call of each class

    def see(self, event: Event) -> None:
        """As a judge."""
        match event:
            case CallStarted():
                source = source_of(event.partition)
                place = event.partition, event.offset
                self.waited.setdefault(place, len(self.calls) - max(self._read[place], self._own[source]))
                self._own[source] = len(self.calls) + 1
                self.calls.append((event.epoch, source))
                self._open[event.call] = source
                self.most[source] = max(self.most[source], Counter(self._open.values())[source])
            case Queued(partition, offset):
                self._read.setdefault((partition, offset), len(self.calls))
            case CallEnded(call):
                self._open.pop(call, None)
            case _:
                pass

    def findings(self) -> list[str]:
        """As a judge."""
        return []


class SpentByKey:
    """What the calls of each key had cost when somebody was told for the first time that it is spent."""

    def __init__(self, world: World) -> None:
        self.told: dict[str, int] = {}
        self._world = world
        self._keys: dict[int, str] = {}
        self._spent: Counter[str] = Counter()

    def see(self, event: Event) -> None:
        """As a judge."""
        match event:
            case CallStarted(call, key=key):
                self._keys[call] = key
            case CallEnded(call, charged=charged):
                self._spent[self._keys[call]] += charged
            case ReplyVisible(partition, offset, says=says) if "budget_exhausted" in says:
                key = self._world.cluster.key_of(partition, offset)
                self.told.setdefault(key, self._spent[key])
            case _:
                pass

    def findings(self) -> list[str]:
        """As a judge."""
        return []


def planned(
    writes: tuple[Write, ...], faults: tuple[Fault, ...] = (), caps: tuple[int | None, ...] = (None,) * 3, ordering: str = "partition"
) -> Plan:
    """A world with three classes, each with its weight."""
    plan = staged(7, writes, faults, classes=NAMES, ordering=ordering, lane_buffer_max_records=4000)
    of = {name: ClassSettings(weight=w, concurrency=cap) for name, w, cap in zip(NAMES, WEIGHTS, caps, strict=True)}
    return replace(plan, settings=plan.settings.model_copy(update={"classes": of}))


def watched(plan: Plan) -> Watched:
    """Run a world; every guarantee holds in it."""
    world, watching = World(plan), Watched()
    world.cluster.slow_share = world.cluster.lost_share = 0.0  # who waits for an answer of Kafka's has nothing to call meanwhile
    world.judges.append(watching)
    assert [] == world.run().findings
    return watching


def backlog(count: int = BACKLOG) -> tuple[Write, ...]:
    """So much of every class, in one partition."""
    return tuple(Write(0.5, strand_of(source, 0), "request", count=count) for source in range(3))


def test_under_backlog_a_strict_lane_is_shared_as_the_weights_say() -> None:
    """3 : 2 : 1, within one call at any time while all have something."""
    seen = watched(planned(backlog()))
    order = [source for _, source in seen.calls]
    assert 3 * BACKLOG == len(order)
    for calls in range(6, 2 * BACKLOG, 6):
        assert {0: calls / 2, 1: calls / 3, 2: calls / 6} == pytest.approx(Counter(order[:calls]), abs=1)


def test_the_shares_hold_where_a_limit_keeps_the_lane() -> None:
    """Whoever has the lane's turn keeps it while it stands at the gate: the gate's line is in the order in which lanes came."""
    plan = planned(backlog(40))
    limit = LimitSettings.model_validate({"upstream": "sample", "requests": 4, "window_s": 0.5, "margin_s": 0.0})
    order = [source for _, source in watched(replace(plan, settings=with_limit(plan.settings, limit))).calls]
    assert {0: 30, 1: 20, 2: 10} == pytest.approx(Counter(order[:60]), abs=1)


def test_a_class_that_comes_late_has_its_turn_within_the_bound() -> None:
    """One request of the lightest class behind a backlog of the others."""
    late = tuple(Write(2.0 + 0.7 * n, strand_of(2, 0), "request") for n in range(5))
    waited = [turns for (strand, _), turns in watched(planned((*backlog()[:2], *late))).waited.items() if source_of(strand) == 2]
    assert len(late) == len(waited)
    assert max(waited) <= turns_max(WEIGHTS, 2)


def test_the_shares_hold_where_every_key_is_a_lane_and_workers_die() -> None:
    """Each owner begins anew; what a lane's classes have had of it is as the weights say, as long as all have something."""
    faults = tuple(Fault(1.5 + 2.0 * n, "kill", 0, 1) for n in range(2))
    seen = watched(planned(backlog(), faults, ordering="key"))
    by_epoch = defaultdict[int, list[int]](list)
    for epoch, source in seen.calls:
        by_epoch[epoch].append(source)
    assert len(by_epoch) >= 2
    first = Counter(next(iter(by_epoch.values()))[:12])
    # Three keys, each a lane of its own.
    assert {0: 6, 1: 4, 2: 2} == pytest.approx(first, abs=3)


def test_a_class_has_no_more_calls_at_once_than_it_may() -> None:
    """In one worker, over all its lanes; the others have what it leaves."""
    seen = watched(planned(backlog(30), caps=(2, 1, None), ordering="key"))
    assert seen.most[0] <= 2
    assert seen.most[1] == 1
    assert 90 == len(seen.calls)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_guarantee_holds_with_classes(seed: int) -> None:
    """One call of a key at a time, whatever its class; order of each key and class; and all the rest, with faults of every kind."""
    assert [] == run(draw(seed, classes=NAMES)).findings


def test_siblings_have_one_owner_even_where_they_come_and_go_one_by_one() -> None:
    """The group gives and takes partitions as it likes: nobody lives with some of them."""
    tally = Counter[str]()
    for seed in range(40, 52):
        result = run(draw(seed, classes=NAMES, protocol="consumer"))
        assert [] == result.findings
        tally += result.tally
    assert tally["siblings_gone"]


# In the last two a class was told that its key had spent what was only set aside for a call of another class.
@pytest.mark.parametrize("seed", [*range(15), 76, 117])
def test_classes_have_one_book_of_budgets(seed: int) -> None:
    """A key's requests stand in several topics and an agent's in several partitions as well: all spend from one budget, whoever dies."""
    assert [] == run(draw(seed, classes=NAMES, budgets=True, publishing="exactly_once")).findings


@pytest.mark.parametrize("seed", range(4))
def test_all_of_a_budget_is_there_for_requests_of_all_classes(seed: int) -> None:
    """None of it is kept for a class; what is left pays no call."""
    writes = tuple(Write(0.5 + 0.2 * n, strand_of(n % 3, n % 2), "request", count=3) for n in range(24))
    plan = planned(writes, ordering="key")
    plan = replace(plan, seed=seed, settings=with_budgets(plan.settings, NEVER_S, waits=False, of_keys=False, shared=True))
    assert AGENT_CENTS - CALL_CENTS < spending(plan).told[0] <= AGENT_CENTS


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("seed", range(4))
def test_all_that_a_key_may_spend_is_there_for_its_requests_in_all_classes(seed: int, ordering: str) -> None:
    """What is set aside for a call of one class is not spent for another: it may come back."""
    writes = tuple(Write(0.5 + 0.2 * n, strand_of(n % 3, 0), "request", count=2) for n in range(24))
    plan = planned(writes, ordering=ordering)
    world = World(replace(plan, seed=seed, settings=with_budgets(plan.settings, NEVER_S, waits=False)))
    spending = SpentByKey(world)
    world.judges.append(spending)
    assert [] == world.run().findings
    assert len(spending.told) > 1
    assert all(DAY_CENTS - CALL_CENTS < cents <= DAY_CENTS for cents in spending.told.values())


def test_a_lane_that_is_gone_takes_nobodys_turn() -> None:
    """A timer of a lane that had nothing left moved it once more: it took the place of the next lane of its key, and left with it."""
    assert [] == run(draw(2026, classes=("fast", "mid", "slow"), budgets=True, shared=True, publishing="exactly_once")).findings
