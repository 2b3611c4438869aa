"""What a worker still knows once nothing is left to know: after storms of rebalances, and when it has ended in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sized
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.core.progress.strand import strand_of
from tests.sim import worker
from tests.sim.callee import Manners
from tests.sim.plan import Fault, Write, staged
from tests.sim.process import Process
from tests.sim.test_ownership import STORM
from tests.sim.world import World

PARTITIONS = 6
MIXED = Manners(fails=0.3, slow=0.3, hangs=0.02, latency_s=0.1)
CONTAINERS = (dict, set, frozenset, list, deque)
# Parts of others, what was given at the start, and what has at most an entry per partition or per thing that people want.
BESIDE = {"_decoder", "_destinations", "_engine", "_gaps", "_insistence", "_observer", "_room", "_settings", "_sink", "_source", "_way"}
BESIDE |= {"desired", "gaps", "_decoders", "_families", "_frontier", "_sources", "_upstreams", "_ways"}


def containers(owner: Any, name: str, depth: int = 2) -> Iterator[tuple[str, Sized]]:
    """All containers that an object of ours holds, by a dotted name; those of its own parts, too."""
    slots = [slot for kind in type(owner).__mro__ for slot in getattr(kind, "__slots__", ())]
    for attribute in dict.fromkeys((*slots, *getattr(owner, "__dict__", ()))):
        held, path = getattr(owner, attribute, None), f"{name}.{attribute}"
        if attribute in BESIDE:
            continue
        if isinstance(held, CONTAINERS):
            yield path, held
        elif depth and type(held).__module__.startswith("dispatcher."):
            yield from containers(held, path, depth - 1)


def kept(one: worker.Worker) -> dict[str, int]:
    """What a worker's owners hold that is not empty, and how much."""
    found = [item for name in ("engine", "poller", "publisher") for item in containers(getattr(one, name), name)]
    return {path: len(held) for path, held in found if len(held)}


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_a_worker_that_has_ended_in_order_holds_nothing(protocol: str, ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members come and go all the time, calls fail, hang and are cut: whoever leaves in order has no call, lane, timer or outcome left."""
    left: Counter[str] = Counter()
    gone = worker.Worker._gone

    def judged(self: worker.Worker, error: BaseException | None, *, orderly: bool = False) -> None:
        if orderly:
            left["ended"] += 1
            left.update(kept(self))
        gone(self, error, orderly=orderly)

    monkeypatch.setattr(worker.Worker, "_gone", judged)
    for seed in range(2):
        writes = tuple(Write(0.1 * n, n % PARTITIONS, "request") for n in range(150))
        plan = staged(seed, writes, STORM, workers=3, manners=MIXED, protocol=protocol, ordering=ordering, drain_s=1.0)
        assert [] == World(replace(plan, broker=replace(plan.broker, partitions=PARTITIONS))).run().findings
    assert left.pop("ended") > 10
    assert not left


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_nor_does_it_hold_turns_of_classes(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that took a turn has given it back, whichever way it ended; no lane is remembered, and nobody waits to be called."""
    ended: list[tuple[list[Any], int, int, list[Any]]] = []
    gone = worker.Worker._gone

    def judged(self: worker.Worker, error: BaseException | None, *, orderly: bool = False) -> None:
        if orderly and (floors := self.engine._classes._floors) is not None:
            ended.append((floors.names(), sum(floors._calls), sum(map(len, floors._short)), floors.called()))
        gone(self, error, orderly=orderly)

    monkeypatch.setattr(worker.Worker, "_gone", judged)
    writes = tuple(Write(0.1 * n, strand_of(n % 3, n % PARTITIONS), "request") for n in range(150))
    plan = staged(0, writes, STORM, workers=3, manners=MIXED, classes=("a", "b", "c"), ordering=ordering, drain_s=1.0)
    assert [] == World(replace(plan, broker=replace(plan.broker, partitions=PARTITIONS))).run().findings
    assert len(ended) > 5
    assert {((), 0, 0, ())} == {(tuple(names), calls, short, tuple(called)) for names, calls, short, called in ended}


@pytest.mark.parametrize(
    ("rebalances", "every_s"),
    [
        (60, 1.5),
        pytest.param(1000, 1.5, marks=pytest.mark.soak),
        pytest.param(3600, 6.0, marks=[pytest.mark.soak, pytest.mark.timeout(900)], id="six hours"),
    ],
)
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_nothing_is_remembered_of_assignments_that_are_over(
    ordering: str, rebalances: int, every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker stays while another comes and goes: when all is settled, nothing of it has more entries than there are partitions."""
    visits = tuple(Fault(1.0 + every_s * n, "terminate" if n else "join", 10 if n else 0, 1) for n in range(rebalances))
    writes = tuple(Write(every_s / 3 * n, n % PARTITIONS, "request") for n in range(rebalances * 3))
    # Each who comes reads the journal's window: with the usual hour this takes four times as long, and shows the same.
    plan = staged(1, writes, visits, manners=MIXED, ordering=ordering, drain_s=1.0, dedup_window_s=600)
    world = World(replace(plan, broker=replace(plan.broker, partitions=PARTITIONS)))
    seen: dict[str, int] = {}
    kill = Process.kill

    def looked(self: Process) -> None:
        if 0 in world.workers and self is world.workers[0].process:  # the last time at the end of the world
            seen.clear()
            seen.update(kept(world.workers[0]))
        kill(self)

    monkeypatch.setattr(Process, "kill", looked)
    result = world.run()
    assert [] == result.findings
    assert result.tally["revoked"] > rebalances / 5
    assert seen
    assert {} == {name: count for name, count in seen.items() if count > PARTITIONS}
