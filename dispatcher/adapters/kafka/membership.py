"""Whether the workers' group knows a member, asked of the broker."""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dispatcher.adapters.kafka import clients
from dispatcher.settings import Settings

# Somebody waits for the answer with a time-out of a few seconds, and asks again.
ANSWER_S = 2.0


class Membership:
    """For KIP-848 clients that hold no partition: nothing tells them that they have joined, and their id they give to themselves."""

    def __init__(self, settings: Settings, *, logger: logging.Logger = clients.LOG) -> None:
        self._settings = settings
        self._logger = logger
        self._client: AdminClient | None = None

    def holds(self, member_id: str) -> bool:
        """Whether the group has this member now; no where Kafka does not answer. May be asked from any thread."""
        client = self._client = self._client or clients.admin(self._settings, logger=self._logger)
        group = self._settings.worker.group
        try:
            answer = client.describe_consumer_groups([group], request_timeout=ANSWER_S)[group].result(ANSWER_S)
        except (KafkaException, FutureTimeout):
            return False
        return any(member.member_id == member_id for member in answer.members or ())
