"""What goes wrong in a chaos run, and when: drawn from a seed, before anything has started. Pure: one seed, one plan.

There are tracks, whose faults follow each other; faults of different tracks may coincide. Each group of workers has one, brokers and the
ways to them have one, and so has the upstream.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

WorkerFault = Literal["kill", "kill two", "freeze", "terminate", "add"]
ClusterFault = Literal["kill broker", "freeze broker", "stop broker", "delay way", "cut way", "half-open way"]
UpstreamFault = Literal["upstream hangs", "upstream resets", "upstream is slow"]
Kind = WorkerFault | ClusterFault | UpstreamFault
WAY_FAULTS: frozenset[Kind] = frozenset({"delay way", "cut way", "half-open way"})

GROUPS = ("strict", "key")
CLUSTER, UPSTREAM = "cluster", "upstream"

# Seconds from one fault of a track to the next. A killed worker is missed after 6 s and back after 10 s, and a frozen one shares again 20 s
# after it froze; a hundred worker kills in half an hour leave two groups 20 s for each. A broker that was killed is a whole copy again
# after some 20 s: whoever runs the plan waits for that, too. So every other worker kill meets a cluster that is not whole.
GAPS_S = {"strict": (17.0, 20.0), "key": (17.0, 20.0), CLUSTER: (50.0, 65.0), UPSTREAM: (25.0, 35.0)}
# What is drawn from a track, over and over: shuffled, not thrown, so that rare ones come too.
DECKS: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(GROUPS, (*("kill",) * 11, "kill two", "freeze", "freeze", "terminate", "terminate", "add")),
    CLUSTER: ("kill broker", "kill broker", "freeze broker", "stop broker", "delay way", "cut way", "half-open way"),
    UPSTREAM: get_args(UpstreamFault),
}
# Drawn first, so that a run of three minutes has met every sort.
OPENINGS: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(GROUPS, ("kill", "kill", "kill", "freeze", "terminate")),
    CLUSTER: ("kill broker", "half-open way"),
    UPSTREAM: (),
}
# How long each lasts, in seconds: until the worker or broker is started again or thaws, the way heals, the added worker is taken away.
# Sessions, of workers and brokers alike, last 6 s; a freeze is longer, and what befalls ways may be shorter.
LASTS_S: dict[Kind, tuple[float, float]] = {
    "kill": (0.0, 8.0),
    "kill two": (0.0, 8.0),
    "freeze": (8.0, 13.0),
    "terminate": (0.0, 5.0),
    "add": (8.0, 14.0),
    "kill broker": (4.0, 15.0),
    "freeze broker": (8.0, 12.0),
    "stop broker": (2.0, 10.0),
    "delay way": (8.0, 15.0),
    "cut way": (3.0, 12.0),
    "half-open way": (5.0, 12.0),
    "upstream hangs": (8.0, 14.0),
    "upstream resets": (8.0, 14.0),
    "upstream is slow": (8.0, 14.0),
}
# Nothing goes wrong while the first calls are made, nor just before the load ends.
CALM_S = 8.0
# Of three ways, all are harmed as often as one.
ALL_WAYS = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `at_s` seconds after the run began, for `lasts_s` seconds. `choice` (0 to 1) chooses among those it may befall."""

    at_s: float
    track: str
    kind: Kind
    lasts_s: float
    choice: float
    all_ways: bool = False


@dataclass(frozen=True)
class Plan:
    """A run of `minutes`: the faults of each track, in the order of their times.

    >>> short = draw(7, 3)
    >>> short == draw(7, 3), short == draw(8, 3)
    (True, False)
    >>> short.counted()["kill broker"] >= 1
    True
    """

    seed: int
    minutes: float
    faults: tuple[Fault, ...] = field(default_factory=tuple)

    @property
    def load_s(self) -> float:
        """Seconds for which requests come."""
        return self.minutes * 60

    def of(self, track: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.track == track]

    def counted(self) -> Counter[str]:
        """Count the faults of each kind; `worker kills` are the workers killed."""
        count: Counter[str] = Counter(fault.kind for fault in self.faults)
        count["worker kills"] = count["kill"] + 2 * count["kill two"]
        return count


def draw(seed: int, minutes: float) -> Plan:
    """Draw the plan of a run."""
    faults = [fault for track in GAPS_S for fault in _track(random.Random(f"{seed}/{track}"), track, minutes * 60 - CALM_S)]
    return Plan(seed, minutes, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _track(chance: random.Random, track: str, end_s: float) -> Iterator[Fault]:
    at, cards = CALM_S + chance.uniform(0, GAPS_S[track][0] / 2), _cards(chance, OPENINGS[track], DECKS[track])
    while True:
        kind = next(cards)
        fault = Fault(at, track, kind, chance.uniform(*LASTS_S[kind]), chance.random(), kind in WAY_FAULTS and chance.random() < ALL_WAYS)
        if at + fault.lasts_s > end_s:
            return
        yield fault
        at = max(at + chance.uniform(*GAPS_S[track]), at + fault.lasts_s)


def _cards(chance: random.Random, opening: Sequence[Kind], deck: Sequence[Kind]) -> Iterator[Kind]:
    yield from chance.sample(opening, len(opening))
    while True:
        yield from chance.sample(deck, len(deck))
