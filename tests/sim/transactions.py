"""The transaction coordinator: one transaction per name, epochs that fence, timeouts that a sweep notices, markers that come later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from confluent_kafka import KafkaError

from dispatcher.core.messages.record import Message
from tests.sim.faults import Refused, fatal, fenced, retriable
from tests.sim.logs import Log, Writes
from tests.sim.positions import Positions, To
from tests.sim.schedule import Schedule

# Until a marker is written where it belongs: at most.
MARKER_S = 0.03


@dataclass(slots=True, eq=False)
class Named:
    """What the coordinator knows of one `transactional.id`."""

    name: str
    epoch: int = -1
    state: Literal["empty", "ongoing", "committing", "aborting"] = "empty"
    committed_last: bool = False
    timeout_s: float = 0.0
    began: float = 0.0
    writes: Writes = field(default_factory=Writes)
    messages: list[tuple[Log, int, Message]] = field(default_factory=list)
    has_offsets: bool = False
    markers_due: int = 0


class Transactions:
    """`published(log, offset, message)` is told of every message of a transaction when its commit is decided."""

    def __init__(
        self, schedule: Schedule, chance: Random, positions: Positions, sweep_s: float, published: Callable[[Log, int, Message], None]
    ) -> None:
        self._schedule = schedule
        self._chance = chance
        self._positions = positions
        self._sweep_s = sweep_s
        self._published = published
        self._named: dict[str, Named] = {}
        schedule.after(chance.uniform(0, sweep_s), self._sweep)

    def init(self, name: str, timeout_s: float) -> int:
        """Fence whoever had the name, settle what it left open; returns the epoch. Raises Refused until all is settled."""
        named = self._named.setdefault(name, Named(name))
        if named.state == "ongoing":
            named.epoch += 1
            self._decide(named, commit=False)
        if named.state != "empty":
            raise Refused(retriable(KafkaError.CONCURRENT_TRANSACTIONS))
        named.epoch += 1
        named.timeout_s = timeout_s
        named.committed_last = False
        return named.epoch

    def write(self, name: str, epoch: int, log: Log, messages: list[Message]) -> list[int]:
        """Append messages to a log within the transaction, which begins by that; gives their offsets."""
        named = self._ongoing(name, epoch)
        written = [(log, log.append(message, writes=named.writes), message) for message in messages]
        named.messages += written
        return [offset for _, offset, _ in written]

    def propose(self, name: str, epoch: int, to: Mapping[int, To], check: Callable[[], object]) -> None:
        """Put positions into the transaction, if the group lets them (`check`)."""
        named = self._ongoing(name, epoch)
        check()
        named.has_offsets = True
        self._positions.propose(named, to)

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort. Asking again after it is done is answered as before."""
        named = self._of(name, epoch)
        if named.state in {"committing", "aborting"}:
            if commit != (named.state == "committing"):
                raise Refused(fatal(KafkaError.INVALID_TXN_STATE))
            raise Refused(retriable(KafkaError.CONCURRENT_TRANSACTIONS))
        if named.state == "empty":
            if commit and not named.committed_last:
                raise Refused(fatal(KafkaError.INVALID_TXN_STATE))
            return
        self._decide(named, commit=commit)

    def _of(self, name: str, epoch: int) -> Named:
        named = self._named[name]
        if epoch != named.epoch:
            raise fenced()
        return named

    def _ongoing(self, name: str, epoch: int) -> Named:
        named = self._of(name, epoch)
        if named.state in {"committing", "aborting"}:
            raise Refused(retriable(KafkaError.CONCURRENT_TRANSACTIONS))
        if named.state == "empty":
            named.state, named.began = "ongoing", self._schedule.now
        return named

    def _decide(self, named: Named, *, commit: bool) -> None:
        """From here on it is committed, or aborted, whatever anybody does; the markers follow."""
        named.state = "committing" if commit else "aborting"
        named.committed_last = commit
        if commit:
            # All of them become readable together: what is told last is the end of something.
            for log, offset, message in sorted(named.messages, key=lambda entry: entry[2].value is None):
                self._published(log, offset, message)
        named.messages = []
        logs = list(named.writes.entries)
        named.markers_due = len(logs) + named.has_offsets
        for log in logs:
            self._schedule.after(self._chance.random() * MARKER_S, self._mark, named, log, commit)
        if named.has_offsets:
            self._schedule.after(self._chance.random() * MARKER_S, self._settle, named, commit)
        if not named.markers_due:
            named.state = "empty"

    def _mark(self, named: Named, log: Log, commit: bool) -> None:  # noqa: FBT001 - an action of the schedule
        log.mark(named.writes, commit=commit)
        self._done(named)

    def _settle(self, named: Named, commit: bool) -> None:  # noqa: FBT001 - an action of the schedule
        named.has_offsets = False
        self._positions.settle(named, commit=commit)
        self._done(named)

    def _done(self, named: Named) -> None:
        named.markers_due -= 1
        if not named.markers_due:
            named.state, named.writes = "empty", Writes()

    def _sweep(self) -> None:
        """Abort what has run longer than its timeout; its producer is fenced by that."""
        for named in self._named.values():
            if named.state == "ongoing" and named.began + named.timeout_s < self._schedule.now:
                named.epoch += 1
                self._decide(named, commit=False)
        self._schedule.after(self._sweep_s, self._sweep)
