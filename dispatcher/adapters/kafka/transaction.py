"""Transactions of a client that is no worker: one after the other, under a name of their own."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import contact
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.core.messages import record
from dispatcher.settings import Settings

ABORT_S = 5.0


class Transaction:
    """One producer, under the transactional id `name`. A context manager that leaves nothing open. Owned by one thread.

    Entering it shuts out whoever wrote under this name, and settles what that one left open. Each step is waited for at most
    `timeout_s`; all raise KafkaException, with the first reason that a message was refused for, where there is one.
    """

    def __init__(self, settings: Settings, name: str, complaints: Complaints, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._refused: KafkaError | None = None
        self.is_open = False
        self._producer = clients.producer(settings, transactional_id=name, on_error=complaints.heard)

    def __enter__(self) -> Self:
        contact(self._producer.init_transactions, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close what is open: every reader of these partitions waits for it."""
        if self.is_open:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_S)

    def add(self, message: record.Message) -> None:
        """Put a message into the transaction, which begins with its first one."""
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        headers: list[tuple[str, str | bytes | None]] = list(message.headers)
        self._producer.produce(
            message.topic, message.value, message.key, partition=message.partition, headers=headers, on_delivery=self._delivered
        )

    def flush(self) -> None:
        """Wait until all that was put in stands in the log."""
        if self._producer.flush(self._timeout_s) and self._refused is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self._refused is not None:
            raise KafkaException(self._refused)

    def commit(self) -> None:
        """Commit what was put in; where nothing was, there is nothing to do."""
        if not self.is_open:
            return
        try:
            contact(self._producer.commit_transaction, self._timeout_s)
        except KafkaException as failure:
            raise failure if self._refused is None else KafkaException(self._refused) from None
        self.is_open = False

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Keep the first reason: the transaction only says that it cannot be committed."""
        self._refused = self._refused or error
