"""A worker that kills itself (SIGKILL) at a named point of its nth transaction. Run as `python -m tests.e2e.faulty POINT N CONFIG`.

The product knows nothing of this: the sink is replaced in the process that is to die.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence

from dispatcher.adapters.kafka.sink import Sink
from dispatcher.cli import main
from dispatcher.core.record import Message
from dispatcher.worker import process

POINTS = ("before_produce", "after_produce", "after_offsets", "after_commit")


class KillingSink(Sink):
    """Counts the transactions that hold messages; at the point of the nth the process is gone."""

    point = ""
    number = 0
    seen = 0

    def produce(self, messages: Sequence[Message]) -> None:
        """Produce, and wait until the broker has the messages: only then does an open transaction hold readers back."""
        type(self).seen += bool(messages)
        self._reach("before_produce")
        super().produce(messages)
        if self.seen >= self.number:
            self._open.flush(5)
        self._reach("after_produce")

    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None:
        super().send_offsets(positions, group)
        self._reach("after_offsets")

    def commit(self) -> None:
        super().commit()
        self._reach("after_commit")

    def _reach(self, point: str) -> None:
        if point == self.point and self.seen >= self.number:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    KillingSink.point, KillingSink.number = sys.argv[1], int(sys.argv[2])
    assert KillingSink.point in POINTS, POINTS
    process.Sink = KillingSink  # type: ignore[misc]
    sys.exit(main(["--config", sys.argv[3], "worker"]))
