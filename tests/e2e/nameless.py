"""A worker that does not tell the group its slot: Kafka takes two of them for two members, whose producers fence each other.

Run as `python -m tests.e2e.nameless CONFIG`.
"""

from __future__ import annotations

import sys

from dispatcher.cli import main
from dispatcher.settings import WorkerSettings

if __name__ == "__main__":
    WorkerSettings.instance_id = property(lambda _: None)  # type: ignore[method-assign,assignment]
    sys.exit(main(["--config", sys.argv[1], "worker"]))
