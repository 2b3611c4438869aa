"""Whether a request was sent before, where the request that it repeats may stand behind it, and may have ended without being published."""

from __future__ import annotations

from dispatcher.core.internal.journal import Ahead, Asked, Coming, Conflict, Journal, Known
from dispatcher.core.lanes.withheld import Withheld
from dispatcher.core.progress.progress import Progress


class Originals:
    """Owned by one Partition. `is_in_order`: its lanes go by the log, so that nothing behind a request has ended before it."""

    __slots__ = ("_is_in_order", "_progress", "_withheld")

    def __init__(self, progress: Progress, withheld: Withheld, *, is_in_order: bool) -> None:
        self._progress = progress
        self._withheld = withheld
        self._is_in_order = is_in_order

    def find(self, journal: Journal, asked: Asked, now: float) -> Known | Coming | Ahead | Conflict | None:
        """As `Journal.find`; an original that stands behind its duplicate, and is withheld, may wait for it: that one says what it will."""
        found = journal.find(asked, now, self.has_ended)
        if isinstance(found, Coming) and found.offset > asked.offset:
            return self._withheld.answer(found.offset, now) or found
        return found

    def has_ended(self, offset: int) -> bool:
        """Whether a request has ended that may stand behind the one whose turn it is."""
        return not self._is_in_order and (self._progress.is_settled(offset) or offset in self._withheld)
