"""Looks at the request topic now and then: one that was deleted, made anew or grown under a worker is told to nobody by itself.

The group protocols take the partitions away in silence, or go on with the old count, and the worker would idle, or run two lanes of one
key.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.errors import BrokerError

# A broker that has just started may not know its topics yet: so many looks in a row must say the same.
SAME_LOOKS = 2


class TopicWatch:
    """Compares the topic with what the worker began with. Who calls `look` reads `fault` afterwards: what is wrong, None where nothing is.

    `facts` gives the topic's, None where there is no such topic; it may block, and raises BrokerError where Kafka does not answer.
    """

    def __init__(self, begun: TopicFacts, facts: Callable[[], TopicFacts | None]) -> None:
        self.fault: BrokerError | None = None
        self._begun = begun
        self._facts = facts
        self._last: BrokerError | None = None
        self._same = 0

    def look(self) -> None:
        """Look once. Something is wrong once enough looks in a row agree."""
        try:
            wrong = self._wrong(self._facts())
        except BrokerError:
            return
        self._same = self._same + 1 if str(wrong) == str(self._last) else 1
        self._last = wrong
        self.fault = wrong if self._same >= SAME_LOOKS else None

    def _wrong(self, found: TopicFacts | None) -> BrokerError | None:
        name = self._begun.name
        if found is None:
            return BrokerError(f"the request topic {name} was deleted", "`dispatcher topics init` makes it anew; start the worker then")
        if found.topic_id != self._begun.topic_id:
            hint = "Kafka drops positions with their topic: run `dispatcher topics init`, then start the worker again"
            return BrokerError(f"the request topic {name} was made anew", hint)
        if found.partitions != self._begun.partitions:
            return grown(self._begun.partitions)
        return None


def grown(partitions: int) -> BrokerError:
    """Say that keys have moved between lanes, and how to go on: what was queued under the old count first, in its old place."""
    return BrokerError(
        f"the request topic has grown beyond the {partitions} partitions that its workers knew, and keys have moved between them",
        "stop producers and workers; give the topics of replies, dead letters, parked requests, journal and state as many partitions; run "
        '`dispatcher topics init --fill-gaps earliest`; run workers with worker.on_wrong_partition = "warn" until nothing is queued; '
        "then start all as before",
    )
