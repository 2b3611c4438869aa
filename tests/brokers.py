"""Brokers of a test run: they end with it, even when it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.adapters.local_broker.properties import jar_properties

# Reads until the test run's end of the pipe is closed, by whatever ends the run, and kills what runs in these directories by then.
_WATCH = """
import sys
from pathlib import Path
sys.stdin.read()
from dispatcher.adapters.local_broker import LocalBroker
for directory in sys.argv[1:]:
    LocalBroker(Path(directory)).down(grace_s=0)
"""


@contextmanager
def watched(*brokers: LocalBroker) -> Iterator[None]:
    """For the length of a block, see to it that these brokers end with the test run, however often they were started again."""
    watch = [sys.executable, "-c", _WATCH, *(str(broker.directory) for broker in brokers)]
    # In a session of its own: a signal to the whole process group, as `timeout` sends it, must not end the watcher beside the run.
    with subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        yield
        watcher.kill()


@contextmanager
def tied(broker: LocalBroker) -> Iterator[str]:
    """Run a broker for the length of a block and give its address. Its data goes with the run, so it is killed, not asked."""
    try:
        with watched(broker):
            yield broker.up()
    finally:
        broker.down(grace_s=0)


def second_door(port: int, inside: int, outside: int, controller: int | None = None) -> dict[str, str]:
    """Properties that give the broker on `port` a second listener, for clients that shall come through a proxy.

    It listens on `inside` and tells who comes that way to come again by `outside`, the proxy's port; clients of `port` stay there.
    `controller` is the port of its controller, by default a free one.
    """
    plain = jar_properties(port, controller or free_port(), "")
    added = {
        "listeners": f"PROXIED://127.0.0.1:{inside}",
        "advertised.listeners": f"PROXIED://127.0.0.1:{outside}",
        "listener.security.protocol.map": "PROXIED:PLAINTEXT",
    }
    voters = "controller.quorum.voters"  # names the controller's port, which stands among the listeners
    return {voters: plain[voters]} | {name: f"{plain[name]},{more}" for name, more in added.items()}
