"""The last rung, for the demo alone: librdkafka's imitation of a cluster, inside this process."""

from __future__ import annotations

import logging
from typing import Any

from dispatcher.adapters.local_broker.status import Status

# What librdkafka gives a topic that somebody names, and does not let itself be told otherwise by a property.
PARTITIONS = 4
_ANSWER_S = 10.0
_LOG = logging.getLogger("dispatcher.mock")
_LOG.addHandler(logging.NullHandler())


class MockBroker:
    """An imitation that other processes reach, too: it listens on a port of this machine until `down`, or the end of this process.

    It keeps records and committed positions in memory and speaks enough of the protocol for producers, consumers and classic groups. No
    guarantee may be shown on it: it has no transactions worth the name (readers see aborted ones, a position sent into one is forgotten,
    nobody is fenced), no KIP-848, and answers no question of an administrator.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._bootstrap: str | None = None

    def up(self) -> str:
        """Start it, unless it runs, and give its bootstrap address."""
        if self._bootstrap is None:
            from confluent_kafka import Producer  # noqa: PLC0415 - the other rungs need no client library

            self._client = Producer({"test.mock.num.brokers": 1}, logger=_LOG)
            brokers = self._client.list_topics(timeout=_ANSWER_S).brokers.values()
            self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self._bootstrap

    def down(self) -> bool:
        """End it, with everything in it."""
        was_up = self._client is not None
        self._client = self._bootstrap = None  # the imitation ends with the client that it belongs to
        return was_up

    def status(self) -> Status:
        """Say whether it runs."""
        return Status("up" if self._bootstrap else "down", "mock", self._bootstrap)
