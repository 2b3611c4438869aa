"""The writing side of a replay: groups of requests, each in one transaction under the replay's own transactional id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import contact
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.core import record
from dispatcher.core.rate import Pace
from dispatcher.core.replay import Selection
from dispatcher.core.replay_plan import Plan
from dispatcher.settings import Settings

# Short enough that a Ctrl-C is felt at once; between two looks or attempts.
PAUSE_S = 0.1
ABORT_S = 5.0


@dataclass(slots=True)
class Work:
    """One execution of a plan, over all its attempts. `is_counted`: what is left is as much as planned."""

    plan: Plan
    selection: Selection
    pace: Pace
    told: Callable[[int], None]
    written: int = 0
    is_counted: bool = False
    complaints: Complaints = field(default_factory=Complaints)


class ReplayWriter:
    """Writes groups of requests, each in one transaction. A context manager: made once per attempt, left with nothing open."""

    def __init__(self, settings: Settings, work: Work, timeout_s: float) -> None:
        self._work = work
        self._timeout_s = timeout_s
        self._open = False
        self._refused: KafkaError | None = None
        work.complaints = Complaints(settings)
        name = f"{settings.worker.group}-replay-{work.plan.replay_id}"
        self._producer = clients.producer(settings, transactional_id=name, on_error=work.complaints.heard)

    def __enter__(self) -> Self:
        """Shut out whoever wrote under this id, and settle what it left open."""
        contact(self._producer.init_transactions, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close what is open: every reader of these partitions waits for it."""
        if self._open:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_S)

    def write(self, group: Iterable[record.Message]) -> int:
        """Write some requests when their time has come; gives how many. KafkaException where it is not known whether they are there."""
        messages = list(group)
        if not messages:
            return 0
        while (wait_s := self._work.pace.wait_s(time.monotonic())) > 0:
            time.sleep(min(wait_s, PAUSE_S))
        self._producer.begin_transaction()
        self._open = True
        for message in messages:
            headers: list[tuple[str, str | bytes | None]] = list(message.headers)
            self._producer.produce(
                message.topic, message.value, message.key, partition=message.partition, headers=headers, on_delivery=self._delivered
            )
        try:
            contact(self._producer.commit_transaction, self._timeout_s)
        except KafkaException as failure:
            raise failure if self._refused is None else KafkaException(self._refused) from None
        self._open = False
        self._work.written += len(messages)
        self._work.pace.went(len(messages), time.monotonic())
        return len(messages)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Keep the first reason: the transaction only says that it cannot be committed."""
        self._refused = self._refused or error
