"""A producer of a case, and how its deliveries and steps ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.sim.contract.worlds import World

# Longest time that one step may take.
STEP_S = 30.0


class Writer:
    """Writes to the request topic; with a `name` in transactions. `reports`: None or the error's name, per message, in their order."""

    def __init__(self, world: World, name: str | None = None, timeout_s: float = 10.0) -> None:
        self.world = world
        self.client: Any = world.producer(name, timeout_s)
        self.reports: list[str | None] = []

    def open(self) -> Writer:
        """Take the name, and settle what its predecessor left open."""
        self.client.init_transactions(STEP_S)
        return self

    def begin(self) -> Writer:
        """Begin a transaction."""
        self.client.begin_transaction()
        return self

    def hand_over(self, partition: int, *, topic: str = "", value: bytes = b"{}") -> None:
        """Give one message to the client. Raises KafkaException."""
        self.client.produce(topic or self.world.requests, value, b"doc:1", partition, self._report, headers=[])

    def write(self, partition: int, count: int = 1) -> Writer:
        """Write that many messages, and wait until the broker has answered."""
        for _ in range(count):
            self.hand_over(partition)
        self.client.flush(STEP_S)
        return self

    def try_write(self, partition: int, *, topic: str = "", value: bytes = b"{}") -> str | None:
        """Write one message; gives what `step` gives of handing it over, else how its delivery ended."""
        refused = step(lambda: self.hand_over(partition, topic=topic, value=value))
        if refused is not None:
            return refused
        self.client.flush(STEP_S)
        return self.reports[-1]

    def commit(self, wait_s: float = STEP_S) -> str | None:
        """Commit; gives what `step` gives."""
        return step(lambda: self.client.commit_transaction(wait_s))

    def abort(self, wait_s: float = STEP_S) -> str | None:
        """Abort; gives what `step` gives."""
        return step(lambda: self.client.abort_transaction(wait_s))

    def propose(self, to: dict[int, int], group: object, text: str = "", wait_s: float = STEP_S) -> str | None:
        """Put positions into the transaction in the name of a member; gives what `step` gives."""
        offsets = [TopicPartition(self.world.requests, n, position, metadata=text) for n, position in to.items()]
        return step(lambda: self.client.send_offsets_to_transaction(offsets, group, wait_s))

    def _report(self, error: KafkaError | None, _: object) -> None:
        self.reports.append(None if error is None else error.name())


def step(call: Callable[[], object]) -> str | None:
    """Make a call; gives None, or the error's name and its flags."""
    try:
        call()
    except KafkaException as failure:
        return _told(failure.args[0])
    return None


def _told(error: KafkaError) -> str:
    flags = (("retriable", error.retriable()), ("fatal", error.fatal()), ("abortable", error.txn_requires_abort()))
    return " ".join([error.name(), *(name for name, is_so in flags if is_so)])
