"""Looks at the topics now and then: one that was deleted, made anew or grown under a worker is told to nobody by itself.

The group protocols take the partitions of the request topic away in silence, or go on with the old count, and the worker would idle, or run
two lanes of one key. Our other topics are waited for, since what was called is in memory: once they are there again it is published, and
nothing is called a second time. Until then the worker is not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.errors import BrokerError

# A broker that has just started may not know its topics yet: so many looks in a row must say the same.
SAME_LOOKS = 2


class Log(Protocol):
    """A structured logger."""

    def info(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...


class TopicWatch:
    """Compares the topics with what the worker began with. Owned by whoever calls `look`, in one thread at a time.

    `fault`: what is wrong with a request topic, None where nothing is; `missing`: which of our other topics are not there, by name.
    `facts` gives those of the request topics that there are, and `lacks` which others are missing; both may block, and raise
    BrokerError where Kafka does not answer.
    """

    def __init__(
        self, begun: Sequence[TopicFacts], facts: Callable[[], Mapping[str, TopicFacts]], lacks: Callable[[], frozenset[str]], log: Log
    ) -> None:
        self.fault: BrokerError | None = None
        self.missing: tuple[str, ...] = ()
        self._begun = begun
        self._facts = facts
        self._lacks = lacks
        self._log = log
        self._last: BrokerError | None = None
        self._same = 0
        self._lacked: frozenset[str] = frozenset()

    def look(self) -> None:
        """Look once. Something is wrong once enough looks in a row agree."""
        try:
            wrong, lacked = self._wrong(self._facts()), self._lacks()
        except BrokerError:
            return
        self._same = self._same + 1 if str(wrong) == str(self._last) else 1
        self._last = wrong
        self.fault = wrong if self._same >= SAME_LOOKS else None
        self._miss(tuple(sorted(lacked & self._lacked)))
        self._lacked = lacked

    def _miss(self, missing: tuple[str, ...]) -> None:
        """Take in which topics two looks in a row have not found; it is said whenever that is something else."""
        if missing == self.missing:
            return
        self.missing = missing
        if missing:
            hint = "`dispatcher topics init` makes them anew: what is called until then waits, and is not called again"
            self._log.error("topics_missing", topics=missing, hint=hint)
        else:
            self._log.info("topics_are_back")

    def _wrong(self, found: Mapping[str, TopicFacts]) -> BrokerError | None:
        return next((wrong for one in self._begun if (wrong := _changed(one, found.get(one.name))) is not None), None)


def _changed(begun: TopicFacts, found: TopicFacts | None) -> BrokerError | None:
    name = begun.name
    if found is None:
        return BrokerError(f"the request topic {name} was deleted", "`dispatcher topics init` makes it anew; start the worker then")
    if found.topic_id != begun.topic_id:
        hint = "Kafka drops positions with their topic: run `dispatcher topics init`, then start the worker again"
        return BrokerError(f"the request topic {name} was made anew", hint)
    if found.partitions != begun.partitions:
        return grown(begun.partitions)
    return None


def grown(partitions: int) -> BrokerError:
    """Say that keys have moved between lanes, and how to go on: what was queued under the old count first, in its old place."""
    return BrokerError(
        f"the request topic has grown beyond the {partitions} partitions that its workers knew, and keys have moved between them",
        "stop producers and workers; give the topics of replies, dead letters, parked requests, journal and state as many partitions; run "
        '`dispatcher topics init --fill-gaps earliest`; run workers with worker.on_wrong_partition = "warn" until nothing is queued; '
        "then start all as before",
    )
