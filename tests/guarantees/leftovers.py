"""What a world leaves behind for nobody."""

from __future__ import annotations

from tests.guarantees.copies import LateCopies
from tests.guarantees.events import Attempted, Event, Forgotten, Held, Parked, Released, ReplyVisible, Unparked

Position = tuple[int, int]


class NothingLeft:
    """In the end no request is still parked that has its reply, nothing is noted of its tries, and none is still to be skipped.

    `repeats_allowed`: at least once, what a lost worker had parked or noted may come when its successor has answered it: the next owner
    ends it.

    >>> judge = NothingLeft()
    >>> for event in (Parked(0, 1), Parked(0, 2), ReplyVisible(0, 1), Unparked(0, 1), ReplyVisible(0, 2), Parked(0, 3)):
    ...     judge.see(event)
    >>> for event in (Held("request:r/0/7@topic-id"), Held("key:a"), Held("request:r/0/8@topic-id"), Released("request:r/0/7@topic-id")):
    ...     judge.see(event)
    >>> for event in (Attempted(0, 1), Attempted(0, 2), Attempted(0, 3), Forgotten(0, 2)):
    ...     judge.see(event)
    >>> for finding in judge.findings():
    ...     print(finding)
    (0, 2) is still parked, and has its reply
    (0, 1) is still known to have been tried, and has its reply
    request:r/0/8@topic-id is still to be skipped
    """

    def __init__(self, *, repeats_allowed: bool = False) -> None:
        self._repeats_allowed = repeats_allowed
        self._copies = LateCopies()
        self._parked: set[Position] = set()
        self._replied: set[Position] = set()
        self._noted: set[Position] = set()
        self._skips: set[str] = set()

    def see(self, event: Event) -> None:
        """Take in replies, what is parked and what is to be skipped."""
        if self._repeats_allowed:
            self._copies.see(event)
        match event:
            case Held(target, "") if target.startswith("request:"):
                self._skips.add(target)
            case Released(target, ""):
                self._skips.discard(target)
            case Parked(partition, offset):
                self._parked.add((partition, offset))
            case Unparked(partition, offset):
                self._parked.discard((partition, offset))
            case Attempted(partition, offset):
                self._noted.add((partition, offset))
            case Forgotten(partition, offset):
                self._noted.discard((partition, offset))
            case ReplyVisible(partition, offset):
                self._replied.add((partition, offset))
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what is left."""
        left = [f"{position} is still parked, and has its reply" for position in sorted(self._parked & self._replied - self._copies.stale)]
        noted = set() if self._repeats_allowed else self._noted & self._replied
        left += [f"{position} is still known to have been tried, and has its reply" for position in sorted(noted)]
        return left + [f"{target} is still to be skipped" for target in sorted(self._skips)]
