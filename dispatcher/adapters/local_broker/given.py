"""A broker that somebody else runs: used as it is, never started, never stopped."""

from __future__ import annotations

import socket

from dispatcher.adapters.local_broker.status import Status

# A look, not a proof: who wants to know why a broker does not answer asks it by a Kafka client.
_LOOK_S = 2.0


class GivenBroker:
    """The broker that the environment names."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def up(self) -> str:
        """Give its address; whether it answers is for the first client to find out."""
        return self._bootstrap

    def down(self) -> bool:
        """Leave it alone."""
        return False

    def status(self) -> Status:
        """Look whether one of its servers takes a connection."""
        open_ = any(_answers(server.strip()) for server in self._bootstrap.split(","))
        return Status("up" if open_ else "down", "given", self._bootstrap)


def _answers(server: str) -> bool:
    """Try to connect to `host:port`."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_S):
            return True
    except (OSError, ValueError):
        return False
