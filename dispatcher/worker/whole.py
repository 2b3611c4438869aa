"""Reading partitions of a compacted topic whole: each is folded, record by record, and told when it is read up to its end.

In steps, so that one thread can see to several readings and to other things meanwhile: a step yields whether it waits for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, closing
from itertools import islice
from typing import Protocol, TypeVar

from dispatcher.adapters.kafka.compacted import Ended, Items, Question
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Record

Steps = Generator[bool, None, None]

# Of readings beside each other, so many steps of one come before the next.
STEPS_BESIDE = 100


class Reader(Protocol):
    """What reads our own topics (`dispatcher.adapters.kafka.compacted.CompactedReader`), which the simulator replaces.

    All raise BrokerAway where Kafka does not answer, TopicAway where it knows no such topic, PartitionAway where that has no such
    partition, BrokerDenied where a right is missing. None blocks for longer than a moment. `ends` counts what open transactions hold;
    `read` waits for them, and yields None each time that it has waited a moment, and Ended behind each partition. `since` tells by
    partition a place that the first record of a time (milliseconds since 1970) or later does not stand before, and is near to.
    """

    def ends(self, topic: str, partitions: Collection[int]) -> Question: ...
    def since(self, topic: str, times_ms: Mapping[int, int]) -> Question: ...
    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Items: ...
    def follow(self, topic: str, offset: int) -> None: ...
    def news(self, timeout_s: float) -> list[Record]: ...
    def close(self) -> None: ...


class Log(Protocol):
    """A structured logger."""

    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...


class Fold(Protocol):
    """What becomes of one partition while it is read."""

    def take(self, record: Record) -> None: ...


F = TypeVar("F", bound=Fold)


def read_whole(reader: Reader, topic: str, owners: Mapping[int, Owner], fold: Callable[[], F], told: Callable[[Owner, F], None]) -> Steps:
    """Read partitions up to the end that is there now, and tell what each has become as soon as it is known.

    `owners`, by partition, may lose members meanwhile: assignments that were told, or are over.
    """
    ends = yield from reader.ends(topic, tuple(owners))
    yield from read_up_to(reader, topic, ends, owners, fold, told)


def read_up_to(
    reader: Reader,
    topic: str,
    ends: Mapping[int, int],
    owners: Mapping[int, Owner],
    fold: Callable[[], F],
    told: Callable[[Owner, F], None],
) -> Steps:
    """Read partitions up to ends that are known; else as `read_whole`."""
    folds = {n: fold() for n in ends}
    with closing(reader.read(topic, {n: (0, end) for n, end in ends.items()})) as items:
        for item in items:
            if isinstance(item, Record):
                folds[item.partition].take(item)
            elif isinstance(item, Ended) and item.partition in owners:
                told(owners[item.partition], folds.pop(item.partition))
            yield item is None
            if not owners:
                return


def beside(*readings: Steps) -> Steps:
    """Read several at once: each goes on for a while, or until it has to wait for Kafka. It waits where all that are left wait."""
    with ExitStack() as stack:
        left = [stack.enter_context(closing(steps)) for steps in readings]
        while left:
            waits = True
            for steps in tuple(left):
                for waited in islice(steps, STEPS_BESIDE):
                    if waited:
                        break
                    waits = False
                else:
                    if next(steps, None) is None:
                        left.remove(steps)
            yield waits
