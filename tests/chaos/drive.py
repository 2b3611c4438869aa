"""One chaos run: a cluster, two groups of workers on it (a lane for each partition, and one for each key), load, faults, and the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import psutil
from confluent_kafka import KafkaException

from tests.chaos import peer
from tests.chaos.cluster import COPIES, WHOLE_S, Cluster, cluster
from tests.chaos.crew import Crew, Hire, ours
from tests.chaos.load import PATIENCE, Load
from tests.chaos.plan import CLUSTER, GROUPS, UPSTREAM, Fault, Plan
from tests.chaos.scene import Finding, Trouble
from tests.e2e.stage import Replies, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

PARTITIONS = 6
# Requests a second. A strict partition makes one call at a time, of 0.15 s or more: the busiest one is to catch up after each fault.
PER_S = {"strict": 6.0, "key": 14.0}
ORDERING = {"strict": "partition", "key": "key"}
# Longer than a call may take (`load.PATIENCE`).
DRAIN_S = 10
EVENTS_MAX = 2_000_000
# What is left when nothing is wrong any more ends within this: the promise is session and transaction timeout, 10 s, and the backlog.
SETTLE_S = 120
# Each question makes a client of its own: not twenty a second, which would be felt.
ASK_S = 1.0
DELAY_S = (0.05, 0.5)


@dataclass
class Group:
    """One group of workers with its topics, callee, load and reader of replies."""

    label: str
    crew: Crew
    replies: Replies
    load: Load | None = None
    is_peer: bool = False
    is_done: bool = False
    asked_at: float = 0.0


@dataclass
class Scenery:
    """What a run is made of, and what happened in it, for its judges."""

    plan: Plan
    groups: dict[str, Group]
    troubles: list[Trouble] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    mood: str = ""  # what is wrong with the upstream now
    is_settled: bool = False
    until: float = 0.0  # when what was left had ended, or was given up; seconds since 1970
    cpu_percent: list[float] = field(default_factory=list)
    load_average: list[float] = field(default_factory=list)


@contextmanager
def played(plan: Plan, folder: Path, say: Callable[[str], None], hire: Hire = ours) -> Iterator[Scenery]:
    """Play a plan to its end, with workers of the product or those of a peer; what it left can be looked at inside the block."""
    with ExitStack() as held:
        nodes = held.enter_context(cluster(folder / "cluster"))
        say(f"the cluster is up: {nodes.bootstrap}")
        over = Event()
        scenery = Scenery(plan, {label: _group(held, label, folder, nodes, over, plan.seed, hire) for label in GROUPS})
        say("workers are ready: the load begins")
        try:
            _play(scenery, nodes, over, folder, say)
            yield scenery
        finally:
            over.set()
            for node in nodes.numbers:
                _keep_log(nodes, node, folder)


def _group(held: ExitStack, label: str, folder: Path, nodes: Cluster, over: Event, seed: int, hire: Hire) -> Group:
    place = folder / label
    place.mkdir()
    factory = SettingsFactory(nodes.bootstrap, f"chaos-{seed}-{label}", COPIES)
    worker = {"ordering": ORDERING[label], "drain_s": DRAIN_S}
    made = held.enter_context(stage(factory, place, partitions=PARTITIONS, worker=worker, upstream=PATIENCE, witness_events=EVENTS_MAX))
    if is_peer := hire is not ours:
        peer.prepare(made.settings)
    crew = Crew(made, nodes.bootstrap, nodes.proxied, over, hire)
    crew.up()
    return Group(label, crew, made.replies(), is_peer=is_peer)


def _play(scenery: Scenery, nodes: Cluster, over: Event, folder: Path, say: Callable[[str], None]) -> None:
    plan, began = scenery.plan, time.monotonic()
    for label, group in scenery.groups.items():
        chance = random.Random(f"{plan.seed}/load {label}")
        group.load = Load(group.crew.stage.settings, label, chance, PER_S[label], lambda: scenery.mood)
    with ThreadPoolExecutor(len(GROUPS) + 2) as players:
        tracks = [players.submit(group.crew.play, plan.of(label), began) for label, group in scenery.groups.items()]
        tracks.append(players.submit(_play_cluster, scenery, nodes, began, over, folder))
        tracks.append(players.submit(_play_upstream, scenery, began, over))
        try:
            eventually(lambda: _turn(scenery, tracks, began, say), plan.load_s + 10 * WHOLE_S, "the plan has been played")
        finally:
            over.set()
    for track in tracks:
        track.result()
    _settle(scenery, say)


def _turn(scenery: Scenery, tracks: list[Future[None]], began: float, say: Callable[[str], None]) -> bool:
    """Look at the replies; tells whether the time of the load is over, and every fault mended."""
    for group in scenery.groups.values():
        group.replies.read()
    elapsed, count = time.monotonic() - began, len(scenery.cpu_percent)
    if elapsed > 10 * (count + 1):
        scenery.cpu_percent.append(psutil.cpu_percent())
        scenery.load_average.append(psutil.getloadavg()[0])
        told = ", ".join(f"{label} {len(group.replies.records)} replies" for label, group in scenery.groups.items())
        say(f"{elapsed:6.0f} s: {told}; cpu {scenery.cpu_percent[-1]:.0f} %")
    broken = [track for track in tracks if track.done() and track.exception() is not None]
    return bool(broken) or (elapsed >= scenery.plan.load_s and all(track.done() for track in tracks))


def _settle(scenery: Scenery, say: Callable[[str], None]) -> None:
    """End the load, and give what is left its time."""
    for group in scenery.groups.values():
        if group.load is not None:
            group.load.close()
    say("the load is over; what is left may end")
    try:
        eventually(lambda: {True} == {_is_done(group) for group in scenery.groups.values()}, SETTLE_S, "everything is done")
        scenery.is_settled = True
    except AssertionError as error:
        scenery.findings.append(Finding("stuck", time.time(), "", str(error)))
    scenery.until = time.time()
    for group in scenery.groups.values():
        group.crew.dismiss()
        group.replies.read()
        group.crew.read_logs()


def _is_done(group: Group) -> bool:
    assert group.load is not None
    group.crew.mind()
    count = len(group.replies.read())
    # A peer's dead letters have no replies.
    is_due = count >= len(group.load.acknowledged) or group.is_peer
    if is_due and not group.is_done and time.monotonic() > group.asked_at + ASK_S:
        group.asked_at = time.monotonic()
        with suppress(KafkaException):
            committed, ends = group.crew.stage.positions()
            group.is_done = committed == ends
    return group.is_done


def _play_cluster(scenery: Scenery, nodes: Cluster, began: float, over: Event, folder: Path) -> None:
    """Harm brokers and the ways to them, one after another: the next one only when all copies are whole again."""
    chance = random.Random(f"{scenery.plan.seed}/delays")
    for fault in scenery.plan.of(CLUSTER):
        if over.wait(max(0.0, began + fault.at_s - time.monotonic())):
            return
        if time.monotonic() - began > scenery.plan.load_s - fault.lasts_s:
            return  # The cluster took so long to mend that the time is over.
        since = time.time()
        node = sorted(nodes.numbers)[min(len(nodes.numbers) - 1, int(fault.choice * len(nodes.numbers)))]
        if fault.kind.endswith("way"):
            _harm_ways(nodes, fault, node, chance.uniform(*DELAY_S))
        elif fault.kind == "kill broker":
            nodes.kill(node)
        elif fault.kind == "freeze broker":
            nodes.freeze(node)
        else:
            nodes.stop(node)
        over.wait(fault.lasts_s)
        for way in nodes.ways:
            way.heal()
        if fault.kind in {"kill broker", "stop broker"}:
            _keep_log(nodes, node, folder)
            nodes.start(node)
        nodes.thaw(node)
        eventually(nodes.is_whole, WHOLE_S, f"the cluster is whole after {fault}")
        scenery.troubles.append(Trouble(fault.kind, since, time.time(), is_of_ways=fault.kind.endswith("way")))


def _keep_log(nodes: Cluster, node: int, folder: Path) -> None:
    """Put aside what a node has logged: its next start begins another log."""
    place = folder / "brokers"
    place.mkdir(exist_ok=True)
    with (place / f"node{node}.log").open("a") as kept:
        kept.write(nodes.log(node))


def _harm_ways(nodes: Cluster, fault: Fault, node: int, delay_s: float) -> None:
    for way in nodes.ways if fault.all_ways else [nodes.ways[node - 1]]:
        if fault.kind == "cut way":
            way.cut()
        elif fault.kind == "delay way":
            way.delay(delay_s)
        else:
            way.half_open()


def _play_upstream(scenery: Scenery, began: float, over: Event) -> None:
    for fault in scenery.plan.of(UPSTREAM):
        if over.wait(max(0.0, began + fault.at_s - time.monotonic())):
            break
        scenery.mood = fault.kind
        over.wait(fault.lasts_s)
        scenery.mood = ""
