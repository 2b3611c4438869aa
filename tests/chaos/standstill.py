"""For how long a lane of a chaos run that had something to do made no call. Pure. Times: seconds since 1970."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.scene import Call

Span = tuple[float, float]

# A session, a transaction and the brokers' look at such take 18 s; with brokers away, a worker that stands still and a machine that is full
# runs of half an hour saw 30 s. Twice as long is for good, or until the next rebalance happens to mend it.
STILL_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request: its lane, when it was submitted, and when its reply was seen (or waiting for it was given up)."""

    lane: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Standstill:
    """A lane in which something waited, and no call of it was in flight, nor came of it."""

    lane: str
    since: float
    until: float

    @property
    def lasted_s(self) -> float:
        return self.until - self.since


def longest(requests: Iterable[Waiting], calls: Iterable[Call], call_max_s: float) -> list[Standstill]:
    """Give the longest standstill of each lane that had one. A call that goes on beyond `call_max_s` is no work any more.

    >>> called = [Call("r", 0, n, 1, 1, "0", "a", at, at + took) for n, (at, took) in enumerate([(1.0, 1.0), (9.0, 30.0), (52.0, 1.0)])]
    >>> longest([Waiting("0", 0.0, 2.5), Waiting("0", 5.0, 40.0), Waiting("0", 50.0, 54.0)], called, 4.0)
    [Standstill(lane='0', since=13.0, until=40.0)]
    >>> longest([Waiting("0", 0.0, 2.0), Waiting("1", 7.0, 8.0)], called[:1], 4.0)
    [Standstill(lane='0', since=0.0, until=1.0), Standstill(lane='1', since=7.0, until=8.0)]
    """
    waits: dict[str, list[Span]] = defaultdict(list)
    busy: dict[str, list[Span]] = defaultdict(list)
    for one in requests:
        waits[one.lane].append((one.since, one.until))
    for call in calls:
        end = call.start + call_max_s
        busy[call.lane].append((call.start, end if call.end is None else min(call.end, end)))
    found = ((lane, list(_without(_merged(spans), _merged(busy[lane])))) for lane, spans in sorted(waits.items()))
    return [Standstill(lane, *max(left, key=lambda span: span[1] - span[0])) for lane, left in found if left]


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for since, until in sorted(spans):
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], until)
        else:
            merged.append((since, until))
    return merged


def _without(spans: Sequence[Span], taken: Sequence[Span]) -> Iterator[Span]:
    """Give what is left of spans; both are in order, and touch none of their own."""
    at = 0
    for since, until in spans:
        while at < len(taken) and taken[at][1] <= since:
            at += 1
        free = since
        for begin, end in taken[at:]:
            if begin >= until:
                break
            if begin > free:
                yield free, begin
            free = max(free, end)
        if free < until:
            yield free, until
