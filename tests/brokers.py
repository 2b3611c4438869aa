"""Brokers of a test run: they end with it, even when it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.adapters.local_broker import LocalBroker

# Reads until the test run's end of the pipe is closed, by whatever ends the run, and kills the broker.
_WATCH = "import os, sys; sys.stdin.read(); os.kill(int(sys.argv[1]), 9)"


@contextmanager
def tied(broker: LocalBroker) -> Iterator[str]:
    """Run a broker for the length of a block and give its address. Its data goes with the run, so it is killed, not asked."""
    try:
        bootstrap = broker.up()
        with subprocess.Popen([sys.executable, "-c", _WATCH, str(broker.status().process)], stdin=subprocess.PIPE) as watcher:
            yield bootstrap
            watcher.kill()
    finally:
        broker.down(grace_s=0)
