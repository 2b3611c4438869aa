"""How long after a worker's death its partitions went on. Pure. Times: seconds since 1970."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.ownership import Assignment


@dataclass(frozen=True, slots=True)
class Takeover:
    """A partition whose owner was killed: seconds until a call of it was completed, and until a reader saw a reply of it.

    They run from the kill, or from the first request after it where nothing waited; None: never.
    """

    worker: str
    partition: int
    killed_at: float
    completed_s: float | None
    visible_s: float | None


@dataclass(frozen=True, slots=True)
class Served:
    """One request: when it was submitted, when a call of it was answered for good, and when its reply was made and seen. inf: never."""

    partition: int
    submitted: float
    completed: float = math.inf
    replied: float = math.inf
    seen: float = math.inf


def takeovers(killed: Mapping[str, float], assignments: Iterable[Assignment], served: Iterable[Served]) -> list[Takeover]:
    """Measure each partition of each worker that was killed.

    >>> served = [Served(0, 5.0, 6.0, 6.1, 6.2), Served(0, 9.0, 17.0, 17.1, 17.5)]
    >>> takeovers({"a": 10.0}, [Assignment(0, 3, "a", 1.0), Assignment(1, 4, "a", 1.0, 2.0)], served)
    [Takeover(worker='a', partition=0, killed_at=10.0, completed_s=7.0, visible_s=7.5)]

    What was given up before the kill waits for nobody, although no call completed it.

    >>> served = [Served(0, 4.0, replied=5.0, seen=5.1), Served(0, 13.0, 13.5, 13.6, 13.75)]
    >>> takeovers({"a": 10.0}, [Assignment(0, 3, "a", 1.0)], served)
    [Takeover(worker='a', partition=0, killed_at=10.0, completed_s=0.5, visible_s=0.75)]
    """
    by_partition: dict[int, list[Served]] = {}
    for one in served:
        by_partition.setdefault(one.partition, []).append(one)
    return [
        _takeover(assignment, killed[assignment.worker], by_partition.get(assignment.partition, []))
        for assignment in assignments
        if assignment.since <= killed.get(assignment.worker, -math.inf) < assignment.until
    ]


def _takeover(assignment: Assignment, killed_at: float, served: Sequence[Served]) -> Takeover:
    waiting = [one for one in served if one.replied > killed_at]
    due = max(killed_at, min((one.submitted for one in waiting), default=math.inf))
    # A reply that was made before the kill, and is seen after it, says nothing of whoever comes next.
    completed = min((one.completed for one in waiting if one.completed > killed_at), default=math.inf)
    visible = min((one.seen for one in waiting if one.replied > killed_at), default=math.inf)
    return Takeover(assignment.worker, assignment.partition, killed_at, _since(due, completed), _since(due, visible))


def _since(due: float, at: float) -> float | None:
    return None if math.inf in {due, at} else max(0.0, at - due)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Give the value that `share` (0 to 1) of them do not exceed; None of none.

    >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([1.0] * 99 + [9.0], 0.99), percentile([], 0.5)
    (2.0, 1.0, None)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))] if ordered else None
