"""A worker that says how much its consumer of the requests has received: `python -m tests.e2e.counted CONFIG`.

The product knows nothing of this: the consumer is replaced in the process that counts, and librdkafka's own figures are written as events.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Consumer

from dispatcher.adapters.kafka import clients
from dispatcher.cli import main

EVERY_MS = 200


class CountedConsumer(Consumer):
    """A consumer whose figures are heard if it is a group's; readers without one are left alone."""

    def __init__(self, properties: dict[str, Any], **keywords: Any) -> None:
        if "group.protocol" in properties:
            properties = properties | {"statistics.interval.ms": EVERY_MS, "stats_cb": _heard}
        super().__init__(properties, **keywords)


def _heard(text: str) -> None:
    """Tell of all bytes that brokers have sent so far."""
    sys.stderr.write(json.dumps({"event": "received", "bytes": json.loads(text)["rx_bytes"]}) + "\n")


if __name__ == "__main__":
    clients.Consumer = CountedConsumer  # type: ignore[assignment, attr-defined]
    sys.exit(main(["--config", sys.argv[1], "worker"]))
