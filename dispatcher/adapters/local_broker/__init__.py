"""A broker for one machine, by the first rung of a ladder that holds.

One that is given; a Docker engine; Kafka's own jars, with Java and Maven of this machine or from wheels; for the demo alone, an imitation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dispatcher.adapters.local_broker.docker import DockerBroker
from dispatcher.adapters.local_broker.given import GivenBroker
from dispatcher.adapters.local_broker.jars import Jars
from dispatcher.adapters.local_broker.mock import MockBroker
from dispatcher.adapters.local_broker.process import LocalBroker, require_free
from dispatcher.adapters.local_broker.properties import DEFAULT_PORT
from dispatcher.adapters.local_broker.status import Status
from dispatcher.errors import ConfigError

__all__ = [
    "GIVEN",
    "Broker",
    "DockerBroker",
    "GivenBroker",
    "Jars",
    "LocalBroker",
    "MockBroker",
    "Status",
    "lacks_jvm",
    "ladder",
    "started",
    "usual_port",
]

GIVEN = "DISPATCHER_KAFKA__BOOTSTRAP_SERVERS"

Broker = GivenBroker | DockerBroker | LocalBroker


def ladder(directory: Path, port: int | None = 0, *, environ: Mapping[str, str] = os.environ, say: Callable[[str], None] = print) -> Broker:
    """Choose the rung: the broker that the environment names, else Docker where its daemon answers, else the jars.

    `directory` holds what the broker writes; port 0 takes a free one, None means 9092 or where it runs already; `say` gets progress,
    line by line. Nothing is started yet. The imitation is no rung of this one: who can do with it asks for `Jars.lack` first.
    """
    given = environ.get(GIVEN)
    if given:
        return GivenBroker(given)
    running = started(directory, port, say=say)
    if running is not None:
        return running
    if DockerBroker.available():
        return DockerBroker(directory, port, say=say)
    return LocalBroker(directory, port, environ=environ, say=say)


def usual_port(say: Callable[[str], None]) -> int:
    """Choose a new broker's port where nobody has: Kafka's usual one, or 0 (a free one) where another program has that."""
    try:
        require_free(DEFAULT_PORT)
    except ConfigError:
        say(f"port {DEFAULT_PORT} is taken by another program: the broker gets a free one")
        return 0
    return DEFAULT_PORT


def lacks_jvm(environ: Mapping[str, str] = os.environ) -> bool:
    """Ask whether this machine needs the `jvm` extra for a broker: none is given, no Docker answers, and Java or Maven are missing."""
    return not environ.get(GIVEN) and not DockerBroker.available() and Jars(environ).lack() is not None


def started(directory: Path, port: int | None = None, *, say: Callable[[str], None] = print) -> DockerBroker | LocalBroker | None:
    """Find the broker that was started with this directory and is still up, whatever rung would be chosen today."""
    for broker in (LocalBroker(directory, port, say=say), DockerBroker(directory, port, say=say)):
        if broker.status().state != "down":
            return broker
    return None
