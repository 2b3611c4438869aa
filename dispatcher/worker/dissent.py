"""Looks whether workers of one group read different request topics: with other classes, or none.

Then the group divides among them what one worker has to have whole, or gives it to who reads something else, and lanes wait for siblings
that never come. Each worker by itself sees nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dispatcher.worker.whole import Log


class Dissent:
    """Called now and then, by one thread at a time. It ends nobody: `fault` is always None.

    `topics` are this worker's; `read` gives those that the group's members have partitions of, None where that is not known. It may block.
    """

    fault = None

    def __init__(self, topics: Iterable[str], read: Callable[[], frozenset[str] | None], log: Log) -> None:
        self._topics = frozenset(topics)
        self._read = read
        self._log = log
        self._last: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Look once. What two looks in a row see is said once: while workers are replaced one by one it may be so for a moment."""
        read = self._read()
        if read is None:
            return
        others, self._last = (read - self._topics) & self._last, read - self._topics
        if others == self._told:
            return
        self._told = others
        if others:
            hint = "all workers of a group need the same [classes]: stop those that have others, or give them a group of their own"
            self._log.warning("group_divided", topics=sorted(others), hint=hint)
        else:
            self._log.info("group_agrees")
