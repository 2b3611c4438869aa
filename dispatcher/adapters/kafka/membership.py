"""Whether the workers' group knows a member, asked of the broker."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

# Somebody waits for the answer with a time-out of a few seconds, and asks again.
ANSWER_S = 2.0


class Membership:
    """For members that hold no partition: a KIP-848 client is not told that it has joined, and has given its id to itself."""

    def __init__(self, client: AdminClient, group: str) -> None:
        self._client = client
        self._group = group

    def holds(self, member_id: str) -> bool:
        """Whether the group has this member now; no where Kafka does not answer. May be asked from any thread."""
        try:
            answer = self._client.describe_consumer_groups([self._group], request_timeout=ANSWER_S)[self._group].result(ANSWER_S)
        except (KafkaException, FutureTimeout):
            return False
        return any(member.member_id == member_id for member in answer.members or ())
