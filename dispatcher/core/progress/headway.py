"""How far a group has come in one partition, as whoever never joins it can know: by what it has committed."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

from dispatcher.core.progress.commit_note import CommitNote, Range


@dataclass(frozen=True, slots=True)
class Headway:
    """A committed position and what stands beside it; `position` None: the group has committed nothing.

    `note` is the one in the commit's metadata; None where there is none of ours, as after another tool moved the position.
    What is settled may have been moved aside: it has then ended only when its entry in the parked topic is gone.

    >>> headway = Headway(5, CommitNote(bytes(16), epoch=1, transaction=1, position=5, settled=((7, 9),)))
    >>> [offset for offset in range(10) if not headway.is_settled(offset)]
    [5, 6, 9]
    """

    position: int | None = None
    note: CommitNote | None = None

    @property
    def settled(self) -> tuple[Range, ...]:
        """What is settled above the position."""
        return () if self.note is None else self.note.settled_at(self.position)

    def is_settled(self, offset: int) -> bool:
        """Whether the group is done with what stands at an offset; one that has committed nothing is done with nothing."""
        if self.position is None or offset < self.position:
            return self.position is not None
        ranges = self.settled
        at = bisect_right(ranges, offset, key=itemgetter(0)) - 1
        return at >= 0 and offset < ranges[at][1]
