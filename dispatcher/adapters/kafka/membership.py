"""What the workers' group knows of a member, asked of the broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import MemberAssignment, MemberDescription  # `admin` shows them, but not to a strict type checker

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.coordinator import describe_group
from dispatcher.adapters.kafka.places import Places
from dispatcher.settings import Settings

# Somebody waits for the answer with a time-out of a few seconds, and asks again.
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Held:
    """What a client has, as the group told it; `changes` counts how often the group has told it something."""

    member_id: str
    changes: int
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Given:
    """What a group says of a member: the partitions that it takes it to have, and those that it is to have in the end."""

    has: frozenset[int]
    wanted: frozenset[int]


class Membership:
    """Asked from any thread. A KIP-848 client is not told that it has joined, and has given its id to itself."""

    def __init__(self, settings: Settings, *, logger: logging.Logger = clients.LOG) -> None:
        self._asking = partial(clients.admin, settings, logger=logger)
        self._client: AdminClient | None = None
        self._group = settings.worker.group

    def holds(self, member_id: str) -> bool:
        """Whether the group has this member now; no where Kafka does not answer."""
        return any(member.member_id == member_id for member in self._members() or ())

    def given(self, member_id: str, topics: Sequence[str]) -> Given | None:
        """What the group says of this member, by strand; None where it is unknown, it is no KIP-848 group, or Kafka does not answer."""
        for member in self._members() or ():
            if member.member_id == member_id and member.target_assignment is not None:
                places = Places(topics)
                return Given(_strands(member.assignment, places), _strands(member.target_assignment, places))
        return None

    def of(self, client_id: str) -> set[str] | None:
        """Give the ids of the members that call themselves so; None where Kafka does not answer."""
        members = self._members()
        return None if members is None else {str(member.member_id) for member in members if member.client_id == client_id}

    def topics(self) -> frozenset[str] | None:
        """Name the topics that members have partitions of; None where Kafka does not answer."""
        members = self._members()
        return None if members is None else frozenset(part.topic for member in members for part in member.assignment.topic_partitions)

    def _members(self) -> Sequence[MemberDescription] | None:
        client = self._client = self._client or self._asking()
        try:
            answer = describe_group(client, self._group, ANSWER_S)
        except (KafkaException, FutureTimeout):
            # It may hold on to a broker that is dead or stands still: another one is asked the next time.
            self._client = None
            return None
        finally:
            client.poll(0)
        members: Sequence[MemberDescription] | None = answer.members
        return members


def _strands(assignment: MemberAssignment, places: Places) -> frozenset[int]:
    parts = (part for part in assignment.topic_partitions if part.topic in places.topics)
    return frozenset(places.strand(part.topic, part.partition) for part in parts)
