"""A worker that is killed (SIGKILL) or freezes (SIGSTOP) at a named point of its nth transaction.

Run as `python -m tests.e2e.faulty POINT N CONFIG`; a point that begins with `freeze_` freezes it there, once.

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
FREEZE = "freeze_"


class FaultySink(Sink):
    """Counts the transactions that hold messages; at the point of the nth the process is gone, or stands still."""

    point = ""
    number = 0
    seen = 0
    fault = signal.SIGKILL

    def produce(self, messages: Sequence[Message]) -> None:
        """Produce, and wait until the broker has the messages: only then does an open transaction hold readers back."""
        type(self).seen += bool(messages)
        self._reach("before_produce")
        super().produce(messages)
        if self.point and self.seen >= self.number:
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
            type(self).point = ""
            os.kill(os.getpid(), self.fault)


if __name__ == "__main__":
    FaultySink.point, FaultySink.number = sys.argv[1].removeprefix(FREEZE), int(sys.argv[2])
    FaultySink.fault = signal.SIGSTOP if sys.argv[1].startswith(FREEZE) else signal.SIGKILL
    assert FaultySink.point in POINTS, POINTS
    process.Sink = FaultySink  # type: ignore[attr-defined]
    sys.exit(main(["--config", sys.argv[3], "worker"]))
