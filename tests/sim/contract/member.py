"""A consumer of a case, and everything that it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from tests.sim.contract.worlds import World

MANY = 500


class Member:
    """Reads from where the group stands (`subscribe`) or from where it is told (`read`)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client: Any = world.consumer()
        self.told: list[tuple[str, list[int]]] = []
        self.owned: set[int] = set()
        self.seen: list[tuple[int, int]] = []  # partition and offset
        self.values: list[bytes] = []
        self.ends: dict[int, int] = {}
        self.errors: list[str] = []

    def subscribe(self) -> Member:
        """Join the group."""
        self.client.subscribe([self.world.requests], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        return self

    def read(self, positions: dict[int, int]) -> Member:
        """Read these partitions, without the group."""
        self.client.assign([self.part(n, position) for n, position in positions.items()])
        return self

    def poll(self) -> None:
        """Take one message, if there is one soon."""
        if (message := self.client.poll(0.05)) is not None:
            self._take(message)

    def take(self, wait_s: float = 0.0) -> None:
        """Take many in one call."""
        for message in self.client.consume(MANY, wait_s):
            self._take(message)

    def poll_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll, message by message, until `condition`."""

        def is_so() -> object:
            self.poll()
            return condition()

        self.world.until(is_so, what)

    def reach(self, partition: int, end: int) -> list[int]:
        """Read until the end of the partition is told as `end`; gives the offsets of its records seen so far."""

        def is_there() -> bool:
            self.poll()
            self.take()
            return self.ends.get(partition, -1) >= end or bool(self.errors)

        self.world.until(is_there, f"end {end} of partition {partition}")
        assert (end, []) == (self.ends.get(partition), self.errors)
        return self.offsets(partition)

    def offsets(self, partition: int) -> list[int]:
        """Give the offsets seen of a partition."""
        return [offset for n, offset in self.seen if n == partition]

    def part(self, partition: int, position: int = OFFSET_INVALID, text: str = "") -> TopicPartition:
        """Name a partition of the request topic."""
        return TopicPartition(self.world.requests, partition, position, metadata=text)

    def commit(self, to: dict[int, int], text: str = "") -> str | None:
        """Commit positions; gives the name of the error, if there is one."""
        done = self.client.commit(offsets=[self.part(n, position, text) for n, position in to.items()], asynchronous=False)
        return next((part.error.name() for part in done if part.error is not None), None)

    def committed(self, partition: int, wait_s: float = 5.0) -> int:
        """Where the group stands."""
        (found,) = self.client.committed([self.part(partition)], timeout=wait_s)
        assert found.error is None
        return int(found.offset)

    def joins(self) -> Member:
        """Join the group alone, and be given every partition."""
        self.subscribe().poll_until(lambda: len(self.owned) == self.world.partitions, "all partitions")
        return self

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self.seen.append((message.partition(), message.offset()))
            self.values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            self.ends[message.partition()] = message.offset()
        else:
            self.errors.append(error.name())

    def _assigned(self, _: Any, parts: list[TopicPartition]) -> None:
        numbers = sorted(part.partition for part in parts)
        self.told.append(("assigned", numbers))
        self.owned |= set(numbers)
        # A client that is being closed may still be told of an assignment, and answers no questions any more.
        found = self.client.committed(parts, timeout=5) if parts and not self.world.is_closed else parts
        if self.world.protocol == "eager":
            self.client.assign(found)
        else:
            self.client.incremental_assign(found)

    def _revoked(self, _: Any, parts: list[TopicPartition]) -> None:
        self._gone("revoked", parts)

    def _lost(self, _: Any, parts: list[TopicPartition]) -> None:
        self._gone("lost", parts)

    def _gone(self, what: str, parts: list[TopicPartition]) -> None:
        numbers = sorted(part.partition for part in parts)
        self.told.append((what, numbers))
        self.owned -= set(numbers)
        for n in numbers:
            self.ends.pop(n, None)
        if self.world.protocol == "eager":
            self.client.unassign()
        else:
            self.client.incremental_unassign(parts)
