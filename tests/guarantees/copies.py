"""Parked copies that nobody relies upon: at least once, a lost worker's may come to stand there when its successor is at the request."""

from __future__ import annotations

from tests.guarantees.events import Committed, Event, Parked, ReplyVisible, Unparked

Position = tuple[int, int]


class LateCopies:
    """Sees every event. `stale`: requests that were answered while no commit relied upon the copy that stands there.

    The next owner takes it for a parked request, calls it once more and ends it.

    >>> def stale(*events):
    ...     copies = LateCopies()
    ...     for event in events:
    ...         copies.see(event)
    ...     return copies.stale
    >>> stale(Parked(0, 4), Committed(0, 5), ReplyVisible(0, 4))
    set()
    >>> stale(Parked(0, 4), ReplyVisible(0, 4), Committed(0, 5)), stale(ReplyVisible(0, 4), Parked(0, 4))
    ({(0, 4)}, {(0, 4)})
    >>> stale(ReplyVisible(0, 4), Parked(0, 4), Unparked(0, 4))
    set()
    """

    def __init__(self) -> None:
        self.stale: set[Position] = set()
        self._parked: set[Position] = set()
        self._relied: set[Position] = set()
        self._replied: set[Position] = set()

    def see(self, event: Event) -> None:
        """Take in what is parked, committed and answered."""
        match event:
            case Parked(partition, offset):
                if (partition, offset) in self._replied:
                    self._relied.discard((partition, offset))
                self._parked.add((partition, offset))
                self._judge((partition, offset))
            case Unparked(partition, offset):
                for kept in (self._parked, self._relied, self.stale):
                    kept.discard((partition, offset))
            case ReplyVisible(partition, offset):
                self._replied.add((partition, offset))
                self._judge((partition, offset))
            case Committed():
                self._relied |= {position for position in self._parked if position[0] == event.partition and _covers(event, position[1])}
            case _:
                pass

    def _judge(self, position: Position) -> None:
        if position in self._replied and position in self._parked and position not in self._relied:
            self.stale.add(position)


def _covers(commit: Committed, offset: int) -> bool:
    return offset < commit.position or any(start <= offset < stop for start, stop in commit.settled)
