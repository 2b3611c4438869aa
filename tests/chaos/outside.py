"""What a chaos run did to the requests of one group, by what is to be seen outside of any worker: judges of ours and of a peer's alike.

From the topics, the callee and the fates of processes; of a worker's own words only which partitions were taken from it. So no guarantee of
ours is presumed: causes say what befell a call's worker, and it is the reader who judges whether that is an excuse. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from tests.chaos.ownership import Assignment
from tests.chaos.scene import AFTERMATH_S, Call, Cause, Fate, Scene, Trouble
from tests.chaos.takeover import Served, percentile, takeovers

# A lane that has something to do and made no call for so long is stuck: longer than a session, a rebalance and a call together.
STILL_S = 30.0

Place = tuple[int, int]  # partition and offset of a request
Taken = tuple[float, Sequence[int]]  # when, which partitions
Why = Cause | Literal["worker asked to end", "partition moved"]
# What befell a call's own worker, then what befell the cluster; "unexplained" is none of these.
WHYS: tuple[Why, ...] = (
    "worker killed",
    "worker frozen",
    "worker past its grace",
    "worker ended by itself",
    "worker asked to end",
    "partition moved",
    "broker trouble",
    "upstream retry",
    "unexplained",
)


@dataclass(frozen=True)
class History:
    """All that is known of a group's run. `lanes`: of each request; `replies` in the order of their partitions; `committed` positions."""

    lanes: Mapping[Place, str]
    replies: Sequence[Place]
    letters: Sequence[Place]
    calls: Sequence[Call]
    committed: Mapping[int, int]
    fates: Sequence[Fate]
    troubles: Sequence[Trouble]
    taken: Mapping[str, Sequence[Taken]]  # by worker: when which partitions were taken from it, or given up by it
    served: Sequence[Served] = ()
    until: float = math.inf  # when waiting for the rest was given up


@dataclass
class Figures:
    """What is counted; figures of several groups add up."""

    counts: Counter[str] = field(default_factory=Counter)
    completed_s: list[float] = field(default_factory=list)  # from each kill to the next completion, by partition
    waits_s: list[float] = field(default_factory=list)

    def __add__(self, other: Figures) -> Figures:
        return Figures(self.counts + other.counts, self.completed_s + other.completed_s, self.waits_s + other.waits_s)

    def as_json(self) -> dict[str, float | None]:
        """Give the rows of a table."""
        shares = {"p50": 0.5, "p99": 0.99}
        return {
            **{name: self.counts[name] for name in ROWS},
            **{f"kill -> next completion {name} s": percentile(self.completed_s, share) for name, share in shares.items()},
            **{f"request -> outcome {name} s": percentile(self.waits_s, share) for name, share in shares.items()},
        }


ROWS = (
    *("requests", "calls", "replies", "dead letters", "lost", "duplicated replies"),
    *("not done in the end", "lanes of these still at work", "lanes of these stuck"),
    *("first calls out of order", "first replies out of order", "calls that went back behind a later request"),
    *(f"overlaps: {why}" for why in WHYS if why != "upstream retry"),
    "overlaps in one process",
    *(f"calls again: {why}" for why in WHYS),
    "partitions of killed workers",
)


def figures(history: History) -> Figures:
    """Count everything."""
    counts: Counter[str] = Counter(requests=len(history.lanes), calls=len(history.calls), replies=len(history.replies))
    counts["dead letters"] = len(history.letters)
    counts += _outcomes(history)
    counts["first calls out of order"] = _overtaken(((c.partition, c.offset) for c in _by_start(history.calls)), history.lanes)
    counts["first replies out of order"] = _overtaken(history.replies, history.lanes)
    causes = _Causes(history)
    counts += _again(history, causes)
    for call, other in _side_by_side(history.calls):
        # Whoever calls late may have stood still, or been cut off, before the other one began.
        counts[f"overlaps: {causes.of(other, call, since=call.start - AFTERMATH_S)}"] += 1
        counts["overlaps in one process"] += call.worker == other.worker
    killed = {fate.name: fate.killed_at for fate in history.fates if fate.killed_at is not None}
    found = takeovers(killed, _owned(killed, history.calls), history.served)
    counts["partitions of killed workers"] = len(found)
    waits = [one.seen - one.submitted for one in history.served if one.seen < math.inf]
    return Figures(counts, [one.completed_s for one in found if one.completed_s is not None], waits)


def _outcomes(history: History) -> Counter[str]:
    """Count what has neither reply nor letter: lost where its position is committed all the same, else not done; and second replies."""
    missing = history.lanes.keys() - set(history.replies) - set(history.letters)
    lost = {place for place in missing if place[1] < history.committed.get(place[0], 0)}
    counts = Counter({"lost": len(lost), "not done in the end": len(missing - lost)})
    busy = {call.lane for call in history.calls if call.start > history.until - STILL_S}
    for lane in {history.lanes[place] for place in missing - lost}:
        counts[f"lanes of these {'still at work' if lane in busy else 'stuck'}"] += 1
    counts["duplicated replies"] = len(history.replies) - len(set(history.replies))
    return counts


def _overtaken(places: Iterable[Place], lanes: Mapping[Place, str]) -> int:
    """Count requests seen for the first time after a later one of their lane.

    >>> _overtaken([(0, 1), (0, 3), (0, 2), (0, 3), (0, 4)], dict.fromkeys([(0, 1), (0, 2), (0, 3), (0, 4)], "a"))
    1
    """
    highest: dict[str, int] = {}
    seen: set[Place] = set()
    count = 0
    for place in places:
        lane = lanes[place]
        if place not in seen:
            count += place[1] < highest.get(lane, -1)
        seen.add(place)
        highest[lane] = max(place[1], highest.get(lane, -1))
    return count


class _Causes:
    """Says why a call was followed, or joined, by another one that should not have been made."""

    def __init__(self, history: History) -> None:
        self._fates = {fate.name: fate for fate in history.fates}
        self._own, self._all = Scene(history.fates, ()), Scene(history.fates, history.troubles)
        self._taken = history.taken

    def of(self, before: Call, call: Call, since: float | None = None) -> Why:
        """Look at the worker of the earlier call between both; then, from `since`, at the later one's, which may not know that it lost."""
        windows = ((before.worker, before.start), (call.worker, before.start if since is None else since))
        for worker, begin in windows:
            if (own := self._own.cause(worker, begin, call.start)) != "unexplained":
                return own
        asked = self._fates[before.worker].terminated_at
        if asked is not None and before.start <= asked <= call.start:
            return "worker asked to end"
        # Taken before the call, too: what was in hand then may have gone on, attempt by attempt.
        if any(before.start - AFTERMATH_S <= at <= call.start and before.partition in of for at, of in self._taken.get(before.worker, ())):
            return "partition moved"
        found = (self._all.cause(worker, begin, call.start) for worker, begin in windows)
        return next((cause for cause in found if cause != "unexplained"), "unexplained")


def _again(history: History, causes: _Causes) -> Counter[str]:
    """Count calls of requests that were called before, by cause, and those among them that came after a later request of their lane."""
    counts: Counter[str] = Counter()
    of_one: dict[Place, list[Call]] = defaultdict(list)
    highest: dict[str, int] = {}
    for call in _by_start(history.calls):
        of_one[call.partition, call.offset].append(call)
        counts["calls that went back behind a later request"] += call.offset < highest.get(call.lane, -1)
        highest[call.lane] = max(call.offset, highest.get(call.lane, -1))
    for calls in of_one.values():
        for before, call in pairwise(calls):
            has_failed = before.end is not None and before.end <= call.start and not before.is_final
            # Who hung up may have been killed; what the callee failed in has to be called again, whatever befell its caller.
            is_retry = has_failed and (before.outcome != "client_closed" or before.worker == call.worker)
            why: Why = "upstream retry" if is_retry else causes.of(before, call)
            counts[f"calls again: {'upstream retry' if has_failed and why == 'unexplained' else why}"] += 1
    return counts


def _side_by_side(calls: Iterable[Call]) -> Iterator[tuple[Call, Call]]:
    """Give the pairs of calls of a lane that ran at the same time, the later start first."""
    open_: dict[str, list[Call]] = defaultdict(list)
    for call in _by_start(calls):
        running = open_[call.lane] = [other for other in open_[call.lane] if other.end is None or other.end > call.start]
        yield from ((call, other) for other in running)
        running.append(call)


def _owned(killed: Mapping[str, float], calls: Iterable[Call]) -> Iterator[Assignment]:
    """Tell what a killed worker owned: the partitions whose last call before was its own."""
    ordered = _by_start(calls)
    for worker, at in killed.items():
        last = {call.partition: call for call in ordered if call.start <= at}
        yield from (Assignment(partition, 0, worker, call.start) for partition, call in last.items() if call.worker == worker)


def _by_start(calls: Iterable[Call]) -> list[Call]:
    return sorted(calls, key=lambda call: call.start)
