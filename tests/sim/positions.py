"""The committed positions of a group, those that hang on a transaction included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from tests.sim.faults import Refused, retriable

To = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Commit:
    position: int
    text: str
    number: int  # where its commit stands in the coordinator's own log


class Positions:
    """Per partition a position and the text beside it. Whoever commits last wins, by the order of the commits, not of the markers."""

    def __init__(self, committed: Callable[[int, int, str], None]) -> None:
        self._committed = committed
        self._now: dict[int, _Commit] = {}
        self._pending: dict[object, dict[int, _Commit]] = {}
        self._number = 0

    def commit(self, to: Mapping[int, To]) -> None:
        """Take these at once."""
        for partition, commit in self._numbered(to).items():
            self._apply(partition, commit)

    def propose(self, transaction: object, to: Mapping[int, To]) -> None:
        """Take these when the transaction commits."""
        self._pending.setdefault(transaction, {}).update(self._numbered(to))

    def settle(self, transaction: object, *, commit: bool) -> None:
        """The transaction's marker is here."""
        for partition, proposed in self._pending.pop(transaction, {}).items():
            now = self._now.get(partition)
            if commit and (now is None or now.number < proposed.number):
                self._apply(partition, proposed)

    def stable(self, partitions: list[int]) -> dict[int, To | None]:
        """What is committed. Raises Refused while a transaction that could still move one of these is open."""
        if any(partition in proposed for proposed in self._pending.values() for partition in partitions):
            raise Refused(retriable(KafkaError.UNSTABLE_OFFSET_COMMIT))
        found = {n: self._now.get(n) for n in partitions}
        return {n: None if commit is None else (commit.position, commit.text) for n, commit in found.items()}

    def forget(self) -> None:
        """Be as a new group is."""
        self._now.clear()

    def position(self, partition: int) -> int:
        """Where the group stands."""
        return self._now[partition].position

    def _numbered(self, to: Mapping[int, To]) -> dict[int, _Commit]:
        self._number += 1
        return {partition: _Commit(position, text, self._number) for partition, (position, text) in to.items()}

    def _apply(self, partition: int, commit: _Commit) -> None:
        self._now[partition] = commit
        self._committed(partition, commit.position, commit.text)
