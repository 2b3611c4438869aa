"""What befell whom in a chaos run, and whether that is a reason for calls made twice or side by side. Pure. Times: seconds since 1970."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

# How long broker trouble has consequences once it is over: a session runs out (6 s), a transaction is given up (10 s, and the sweep), and
# leaders are elected and found meanwhile.
AFTERMATH_S = 30.0
# How long a worker that stood still may go on as an owner: it hears that it is none from its next heartbeat, which is long due. Runs of 30
# minutes saw 0.3 s; a loaded machine may take longer.
UNAWARE_S = 10.0

Owned = frozenset[tuple[int, int]]  # assignments: partition, epoch
Cause = Literal[
    "worker killed", "worker frozen", "worker past its grace", "worker ended by itself", "broker trouble", "upstream retry", "unexplained"
]
CAUSES: tuple[Cause, ...] = (
    "worker killed",
    "worker frozen",
    "worker past its grace",
    "worker ended by itself",
    "broker trouble",
    "upstream retry",
    "unexplained",
)


@dataclass(slots=True)
class Fate:
    """What befell one worker process. `overstayed`: when it gave calls up because its grace was over."""

    name: str
    is_proxied: bool = False
    killed_at: float | None = None
    terminated_at: float | None = None
    ended_at: float | None = None  # by itself
    frozen: list[tuple[float, float]] = field(default_factory=list)
    overstayed: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something was wrong with a broker, or with the ways to brokers, which only those behind a proxy feel."""

    kind: str
    since: float
    until: float
    is_of_ways: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the callee saw it: `end` and `outcome` are missing while it has not ended.

    `is_given_up`: its worker says that it was not answered in time, and is to be tried again; `is_spared`: and that it was of an outage
    that the circuit breaker knows of, so that it costs no attempt. `is_final`: its answer ends the request.
    """

    request_id: str
    partition: int
    offset: int
    epoch: int
    attempt: int
    lane: str
    worker: str
    start: float
    end: float | None = None
    outcome: str = ""
    status: int | None = None
    is_given_up: bool = False
    is_spared: bool = False

    @property
    def is_final(self) -> bool:
        return self.outcome == "answered" and self.status is not None and self.status not in {408, 429} and self.status < 500

    @property
    def is_hinted(self) -> bool:
        """The callee said when to come again, as ours always does with these: that costs no attempt."""
        return self.outcome == "answered" and self.status in {429, 503}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `at`: seconds since 1970, 0 where it has no time."""

    what: str
    at: float
    request_id: str
    text: str


class Scene:
    """The fates of a group's workers and the troubles of the cluster: `cause` says why a worker may have lost what it was at.

    `given`: when a worker was given each partition and epoch, where that is known; `lost`: those of which its log says that it has them no
    more; None where logs do not tell.

    >>> scene = Scene([Fate("a", killed_at=10.0), Fate("b", frozen=[(20.0, 30.0)]), Fate("c")], [Trouble("kill broker", 50.0, 60.0)])
    >>> [scene.cause(worker, *times) for worker, times in (("a", (9, 17)), ("b", (19, 27)), ("c", (55, 80)), ("c", (9, 17)))]
    ['worker killed', 'worker frozen', 'broker trouble', 'unexplained']
    """

    def __init__(
        self,
        fates: Iterable[Fate],
        troubles: Sequence[Trouble],
        given: Mapping[tuple[int, int], float] | None = None,
        lost: Owned | None = None,
    ) -> None:
        self._fates: Mapping[str, Fate] = {fate.name: fate for fate in fates}
        self._troubles = troubles
        self._given = given or {}
        self._lost = lost

    def cause(self, worker: str, since: float, until: float) -> Cause:
        """Say what befell `worker` between the beginning of its call and the moment at which another one was made."""
        fate = self._fates[worker]
        # It began none after that, but the callee may have heard of one a moment later: it was on its way.
        if fate.killed_at is not None and fate.killed_at <= until:
            return "worker killed"
        if (delayed := self.delay(worker, since, until)) == "worker frozen":
            return delayed
        if any(since <= at <= until for at in fate.overstayed):
            return "worker past its grace"
        if fate.ended_at is not None and since <= fate.ended_at <= until:
            return "worker ended by itself"
        return delayed

    def delay(self, worker: str, since: float, until: float) -> Cause:
        """Say what may have held `worker` up in that time, though it lived."""
        fate = self._fates[worker]
        if any(froze <= until and since <= thawed for froze, thawed in fate.frozen):
            return "worker frozen"
        if any(t.since <= until and since <= t.until + AFTERMATH_S and (fate.is_proxied or not t.is_of_ways) for t in self._troubles):
            return "broker trouble"
        return "unexplained"

    def loss(self, older: Call, until: float) -> Cause:
        """Say why the worker of `older` made that call, or went on with it, though the next owner's calls had begun by `until`.

        That is what befell it during the call; or it had stood still just before, and did not know what it had lost: of an assignment
        that it was given since it had lost nothing.
        """
        befell = self.cause(older.worker, older.start, until)
        since = max(older.start - UNAWARE_S, self._given.get((older.partition, older.epoch), -math.inf))
        if befell != "worker killed" and any(froze <= until and since <= thawed for froze, thawed in self._fates[older.worker].frozen):
            return "worker frozen"
        return befell

    def is_lost(self, older: Call, until: float) -> bool:
        """Whether the worker of `older` lost that assignment, by its own log, or was gone before it may have heard of it.

        Something is wrong with some broker for most of a run: that alone takes no partition from anybody.
        """
        fate = self._fates[older.worker]
        gone = [at for at in (fate.killed_at, fate.ended_at, fate.terminated_at) if at is not None]
        return self._lost is None or (older.partition, older.epoch) in self._lost or any(at <= until + AFTERMATH_S for at in gone)


def repeats(calls: Iterable[Call], scene: Scene, handed: Owned, attempts_max: int) -> Iterator[tuple[Call, Cause]]:
    """Give each call of a request that was called before, and why it was called again.

    `handed`: assignments that their worker gave up in order: all that it had called must have been published by then, whatever befell it,
    unless its grace was over, or it stood still for so long that it did not hear the answer in time.
    """
    for of_one in _grouped(calls).values():
        budget = _Budget()
        for before, call in pairwise(of_one):
            known = budget.known(before, call)
            cause = _why(before, call, scene)
            # Who calls late, or who did not get to publish: the worker of the lower epoch.
            older = min(before, call, key=lambda one: one.epoch)
            if known >= attempts_max:
                is_allowed = False
            elif cause == "upstream retry":
                is_allowed = True
            elif (older.partition, older.epoch) in handed:
                is_allowed = cause == "worker past its grace" or (cause == "worker frozen" and older.is_given_up)
            else:
                is_allowed = cause != "broker trouble" or scene.is_lost(older, call.start)
            yield call, cause if is_allowed else "unexplained"


class _Budget:
    """What is known to have been spent on one request: a try is noted before the next one begins, so that each owner takes one with it.

    What an older owner still calls, once a later one has called, is noted by nobody.
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._spent = self._last = 0

    def known(self, before: Call, call: Call) -> int:
        """Count the attempts that whoever makes `call` knows of; `before` came just before it."""
        if before.epoch >= self._epoch:
            self._epoch, self._last = before.epoch, int(not (before.is_hinted or before.is_spared))
            self._spent += self._last
        if call.epoch > self._epoch:
            self._epoch = call.epoch
            self._spent -= self._last
        return self._spent if call.epoch == self._epoch else 0


def _grouped(calls: Iterable[Call]) -> dict[tuple[int, int], list[Call]]:
    """Sort calls by their request, each in the order of its starts."""
    grouped: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.start):
        grouped[call.partition, call.offset].append(call)
    return grouped


def _why(before: Call, call: Call, scene: Scene) -> Cause:
    if call.epoch < before.epoch:
        # A worker that lost the partition and does not know it.
        return scene.loss(call, call.start)
    # Whether the callee saw an answer on its way counts more than what the worker says.
    if before.outcome in {"reset", "truncated"} or (before.is_given_up if before.outcome != "answered" else not before.is_final):
        return "upstream retry"
    befell = scene.cause(before.worker, before.start, call.start)
    if call.epoch == before.epoch:
        # Only who stood still may not have heard the answer in time: no call is repeated, or cut off, since something else failed.
        return befell if befell == "worker frozen" else "unexplained"
    return befell


def overlaps(calls: Iterable[Call], scene: Scene, handed: Owned) -> Iterator[tuple[Call, Call, Cause]]:
    """Give each pair of calls of a lane that ran side by side, the later start first, and why the older owner was none any more.

    Where its worker had handed the partition over there is no reason.
    """
    open_: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.start):
        running = open_[call.lane] = [other for other in open_[call.lane] if other.end is None or other.end > call.start]
        for other in running:
            older, newer = (call, other) if call.epoch < other.epoch else (other, call)
            is_other = older.epoch < newer.epoch and older.worker != newer.worker and (older.partition, older.epoch) not in handed
            cause = scene.loss(older, call.start) if is_other else "unexplained"
            yield call, other, cause if cause != "broker trouble" or scene.is_lost(older, call.start) else "unexplained"
        running.append(call)
