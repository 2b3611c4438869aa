"""Whose a partition was in a chaos run, from when to when, and how that ended, as logs tell. Pure. Times: seconds since 1970."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Moved = tuple[float, Sequence[int]]  # when, which partitions
Life = tuple[float, int, int, str]  # since when, partition, epoch, worker


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition was a worker's, live, from `since` until it gave it up or the next one was live. `is_handed`: given up in order."""

    partition: int
    epoch: int
    worker: str
    since: float
    until: float = math.inf
    is_handed: bool = False


def assigned(lives: Iterable[Life], handed: Mapping[str, Sequence[Moved]], lost: Mapping[str, Sequence[Moved]]) -> list[Assignment]:
    """Tell assignments from lives, and what each worker handed over and lost.

    >>> for one in assigned([(1.0, 0, 4, "a"), (9.0, 0, 5, "b")], {"a": [(4.0, [0, 1])]}, {}):
    ...     print(one)
    Assignment(partition=0, epoch=4, worker='a', since=1.0, until=4.0, is_handed=True)
    Assignment(partition=0, epoch=5, worker='b', since=9.0, until=inf, is_handed=False)
    """
    by_partition: dict[int, list[Life]] = defaultdict(list)
    for life in sorted(lives, key=lambda life: life[2]):
        by_partition[life[1]].append(life)
    return [
        _assignment(life, nexts[0] if nexts else math.inf, handed, lost)
        for of_one in by_partition.values()
        for life, nexts in zip(of_one, [[after[0]] for after in of_one[1:]] + [[]], strict=True)
    ]


def _assignment(life: Life, next_since: float, handed: Mapping[str, Sequence[Moved]], lost: Mapping[str, Sequence[Moved]]) -> Assignment:
    since, partition, epoch, worker = life
    given, taken = (
        min((at for at, partitions in of.get(worker, ()) if partition in partitions and at >= since), default=math.inf)
        for of in (handed, lost)
    )
    return Assignment(
        partition, epoch, worker, since, min(given, taken, next_since), is_handed=given < math.inf and given <= min(taken, next_since)
    )


def lost(lives: Iterable[Life], told: Mapping[str, Sequence[Moved]]) -> frozenset[tuple[int, int]]:
    """Name the assignments (partition, epoch) that their workers say they have lost (`told`), before they were given that partition anew.

    >>> sorted(lost([(1.0, 0, 4, "a"), (9.0, 0, 6, "a"), (5.0, 0, 5, "b")], {"a": [(7.0, [0, 1])], "b": [(8.0, [1])]}))
    [(0, 4)]
    """
    of_one: dict[tuple[str, int], list[Life]] = defaultdict(list)
    for life in sorted(lives, key=lambda life: life[2]):
        of_one[life[3], life[1]].append(life)
    return frozenset(
        (partition, life[2])
        for (worker, partition), own in of_one.items()
        for life, until in zip(own, [*(after[0] for after in own[1:]), math.inf], strict=True)
        if any(life[0] <= at < until and partition in partitions for at, partitions in told.get(worker, ()))
    )


def given(lives: Iterable[Life], told: Mapping[str, Sequence[Moved]]) -> dict[tuple[int, int], float]:
    """Tell when each partition and epoch was given to its worker, from what it says that it was given (`told`): it is live a moment later.

    >>> given([(9.0, 0, 5, "b"), (1.2, 0, 4, "a")], {"a": [(1.0, [0, 1])], "b": [(7.0, [0]), (8.5, [0, 2]), (8.8, [1])]})
    {(0, 5): 8.5, (0, 4): 1.0}
    """
    return {
        (partition, epoch): max((at for at, partitions in told.get(worker, ()) if partition in partitions and at <= since), default=since)
        for since, partition, epoch, worker in lives
    }
