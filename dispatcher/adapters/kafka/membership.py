"""Whether the workers' group knows a member, asked of the broker."""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dispatcher.adapters.kafka import clients
from dispatcher.settings import Settings

# Somebody waits for the answer with a time-out of a few seconds, and asks again.
ANSWER_S = 2.0


class Membership:
    """For members that hold no partition: a KIP-848 client is not told that it has joined, and has given its id to itself."""

    def __init__(self, settings: Settings, *, logger: logging.Logger = clients.LOG) -> None:
        self._asking = partial(clients.admin, settings, logger=logger)
        self._client: AdminClient | None = None
        self._group = settings.worker.group

    def holds(self, member_id: str) -> bool:
        """Whether the group has this member now; no where Kafka does not answer. May be asked from any thread."""
        client = self._client = self._client or self._asking()
        try:
            answer = client.describe_consumer_groups([self._group], request_timeout=ANSWER_S)[self._group].result(ANSWER_S)
        except (KafkaException, FutureTimeout):
            # It may hold on to a broker that is dead or stands still: another one is asked the next time.
            self._client = None
            return False
        finally:
            client.poll(0)
        return any(member.member_id == member_id for member in answer.members or ())
