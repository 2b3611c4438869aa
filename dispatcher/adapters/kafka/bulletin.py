"""Telling the latest, to whoever looks: a message at a time, and none while the one before is still on its way.

For what is of no use once there is something newer. Kafka may be away for hours: nothing piles up, and nobody waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as ClientMessage

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.faults import is_fatal
from dispatcher.core.messages.record import Message
from dispatcher.settings import Settings

# What was not delivered by then is out of date.
DELIVERY_S = 10.0


class Bulletin:
    """One idempotent producer. Owned by one thread. `failed` hears the name of each error; None for a delivery that went well."""

    def __init__(self, settings: Settings, failed: Callable[[str | None], None], *, logger: logging.Logger = clients.LOG) -> None:
        self._settings = settings
        self._failed = failed
        self._logger = logger
        self._producer: Producer | None = None
        self._lost = False

    def tell(self, message: Message) -> bool:
        """Send `message`, unless the one before is still on its way; whether it was sent."""
        producer = self._open()
        producer.poll(0)
        if len(producer):
            return False
        if self._lost:
            producer = self._open()
        return self._send(producer, message)

    def close(self, last: Message, timeout_s: float) -> None:
        """Send a last message behind what is on its way, and wait for it for at most so long."""
        producer = self._open()
        if self._send(producer, last):
            producer.flush(timeout_s)
        producer.purge()
        self._producer = None

    def _open(self) -> Producer:
        """The producer; another one where it is lost for good."""
        if self._producer is None or self._lost:
            self._lost = False
            self._producer = clients.producer(self._settings, delivery_timeout_s=DELIVERY_S, logger=self._logger)
        return self._producer

    def _send(self, producer: Producer, message: Message) -> bool:
        try:
            producer.produce(message.topic, message.value, message.key, message.partition, self._reported, headers=list(message.headers))
        except (BufferError, KafkaException) as failure:
            error = failure.args[0] if failure.args else None
            self._reported(error if isinstance(error, KafkaError) else KafkaError(KafkaError._QUEUE_FULL), None)
            return False
        producer.poll(0)
        return True

    def _reported(self, error: KafkaError | None, _: ClientMessage | None) -> None:
        if error is None:
            self._failed(None)
            return
        try:
            name, self._lost = error.name(), self._lost or is_fatal(error)
        except SystemError:
            # Nothing but a fatal error is told so (see `SteadyProducer`).
            name, self._lost = "_FATAL", True
        self._failed(name)
