"""Looks now and then whether another worker lives under our name, where the group takes it for just another member.

Two workers of one slot fence each other's producers in turn; as long as there is little to publish neither would know why. Who joined last
stays, as in a group that knows its members by name. Both may take each other for that one, where the older was thrown out of the group and
joins again: the one with the lower id goes at once, and the other one only if that has not.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.errors import BrokerError
from dispatcher.worker.clock import Clock

# Between two looks: each is a small request.
FIRST_LOOKS_S, LOOK_S = 1.0, 10.0
# By then another one that takes us for the newcomer, and has the lower id, has looked and gone.
SECOND_LOOK_S = 15.0
# A predecessor that died is a member until its session has run out, and for a moment more: one that lives has seen us and gone by then.
MOMENT_S = 60.0


class Namesakes:
    """`fault` is None as long as nobody else has the name. Owned by whoever calls `look`, in one thread at a time.

    `members` gives the ids of the group's members of our name, None where Kafka does not answer; it may block. `own` gives our own id,
    empty while we are no member; `session_s`: how long the group waits for a member that is silent.
    """

    def __init__(self, slot: str, members: Callable[[], set[str] | None], own: Callable[[], str], clock: Clock, session_s: float) -> None:
        self.fault: BrokerError | None = None
        self._slot = slot
        self._members = members
        self._own = own
        self._clock = clock
        self._predecessor_s = session_s + MOMENT_S
        self._ours: set[str] = set()
        self._before: dict[str, float] | None = None  # who was there before us, and since when we know; monotonic seconds
        self._newcomers: set[str] = set()  # as the last look saw them

    @property
    def again_in_s(self) -> float:
        """When to look again; soon until it is known who was there before us, since whoever comes after that is another worker."""
        if self._before is None:
            return FIRST_LOOKS_S
        return SECOND_LOOK_S if self._newcomers else LOOK_S

    def look(self) -> None:
        """Look once."""
        own, found = self._own(), self._members()
        self._ours.add(own)
        if not own or found is None or own not in found or own != self._own():
            return  # What is there may be ourselves, a moment ago.
        others, now = found - self._ours, self._clock.now().mono
        if self._before is None:
            self._before = dict.fromkeys(others, now)
        # Two that have started at once are there before each other: the same one of them goes, whoever looks.
        at_once = {other for other in others & self._before.keys() if now - self._before[other] > self._predecessor_s and other > own}
        known, self._newcomers = self._newcomers, others - self._before.keys()
        if at_once or any(other > own or other in known for other in self._newcomers):
            hint = "give every worker its own worker.slot, or leave it out"
            self.fault = BrokerError(f"another worker has the slot {self._slot!r}", hint)
