"""A worker one of whose clients fails for good (librdkafka's fatal error) at each SIGUSR1.

Run as `python -m tests.e2e.broken WHICH CONFIG`: the `member` of the group, the `publisher` of outcomes, the `reporter` of lanes, or each
`reader` of the topics that outlive workers.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from confluent_kafka import Consumer, Producer

from dispatcher.adapters.kafka import bulletin, clients
from dispatcher.cli import main
from tests.broken_client import break_for_good

made: dict[str, list[Any]] = {}
consumer, producer = clients.consumer, clients.producer


def kept_consumer(*arguments: Any, **keywords: Any) -> Consumer:
    """Make a consumer, and note what it is for: of those that have a group only one may have a name in it, the others only ask."""
    client = consumer(*arguments, **keywords)
    role = "reader" if keywords.get("group") is None else "member" if "instance" in keywords else "outsider"
    made.setdefault(role, []).append(client)
    return client


def kept_producer(*arguments: Any, **keywords: Any) -> Producer:
    """Make a producer, and note what it is for: reports are out of date soon."""
    client = producer(*arguments, **keywords)
    made.setdefault("reporter" if keywords.get("delivery_timeout_s") == bulletin.DELIVERY_S else "publisher", []).append(client)
    return client


if __name__ == "__main__":
    clients.consumer, clients.producer = kept_consumer, kept_producer
    which = sys.argv[1]

    def fail(*_: object) -> None:
        """Break the newest; of the readers all, since nobody knows which is in use."""
        for client in made[which] if which == "reader" else made[which][-1:]:
            break_for_good(client)

    signal.signal(signal.SIGUSR1, fail)
    sys.exit(main(["--config", sys.argv[2], "worker"]))
