"""Looks whether a worker's client has missed what its group told it, under KIP-848.

A heartbeat's answer says what to take or to give up, once. Where it comes later than the client waits for it (one heartbeat interval: 2 s
on our own brokers, 5 s by default; a coordinator that has lost a copy of its log is silent for longer), librdkafka 2.16 sends the next
heartbeat as if nothing had been missed, and the group waits for a member that knows of nothing: partitions stay with nobody, or are not
given to whoever joins, until `max.poll.interval.ms` is over. Who joins anew is told everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from dispatcher.adapters.kafka.membership import Given, Held

# What is to be given up is told with the next heartbeat's answer, whose own may already be under way, and what the group says may be a
# moment old: for so many heartbeats and seconds must all looks agree, one every `LOOK_S`.
HEARTBEATS, MOMENT_S, LOOK_S = 2, 4.0, 2.0


class Log(Protocol):
    """A structured logger."""

    def warning(self, event: str, **fields: object) -> None: ...


class Attendance:
    """Called now and then, by one thread at a time.

    `held` gives what the client has, None while it is being changed; `given` what the group says of a member, None where that is not known.
    It may block. `rejoin` is told the number of changes for which the client is to join anew. `heartbeat_s`: how often the group hears of
    a member; `looks` in a row must agree, since what it has to say comes with the answer.
    """

    def __init__(
        self,
        held: Callable[[], Held | None],
        given: Callable[[str], Given | None],
        rejoin: Callable[[int], None],
        log: Log,
        heartbeat_s: float,
    ) -> None:
        self._held = held
        self._given = given
        self._rejoin = rejoin
        self._log = log
        self.looks = math.ceil((HEARTBEATS * heartbeat_s + MOMENT_S) / LOOK_S)
        self._last: tuple[Held, frozenset[int]] | None = None
        self._same = 0

    def look(self) -> None:
        """Look once."""
        held = self._held()
        given = None if held is None else self._given(held.member_id)
        missed = frozenset[int]() if held is None or given is None else _missed(held, given)
        if held is None or not missed or held != self._held():
            self._last, self._same = None, 0
            return
        self._same = self._same + 1 if self._last == (held, missed) else 1
        self._last = held, missed
        if self._same >= self.looks:
            hint = "an answer of the group's coordinator came too late: this worker hands over what it has, and joins again"
            self._log.warning("rejoining", partitions=sorted(missed), hint=hint)
            self._last, self._same = None, 0
            self._rejoin(held.changes)


def _missed(held: Held, given: Given) -> frozenset[int]:
    """Tell which partitions the client was to give up, or to take, and has not heard of it.

    Those that it is to have in the end may still be another's.
    """
    return (held.partitions - given.wanted) | (given.has - held.partitions)
