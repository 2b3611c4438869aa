"""A worker that is killed (SIGKILL) or freezes (SIGSTOP) at a named point of its nth publication.

Run as `python -m tests.e2e.faulty POINT N CONFIG`; a point that begins with `freeze_` freezes it there, once.

The product knows nothing of this: sink and source are replaced in the process that is to die.
"""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dispatcher.adapters.kafka.sink import Sink
from dispatcher.adapters.kafka.source import Source
from dispatcher.cli import main
from dispatcher.core.messages.record import Message
from dispatcher.worker import process

# The call has ended when a publication begins, and is booked as done after its commit: so these are, in the words of the promise,
# after call / before produce, after produce / before offsets, after offsets / before commit, after commit / before bookkeeping.
# At least once, offsets are sent by the commit itself.
POINTS = {
    "exactly_once": ("before_produce", "after_produce", "after_offsets", "after_commit"),
    "at_least_once": ("before_produce", "after_produce", "after_commit"),
}
FREEZE = "freeze_"


class Fault:
    """Counts the publications that hold messages; at the point of the nth the process is gone, or stands still. One per process."""

    point = ""
    number = 0
    seen = 0
    kind = signal.SIGKILL

    @classmethod
    def is_near(cls) -> bool:
        return bool(cls.point) and cls.seen >= cls.number

    @classmethod
    def reach(cls, point: str) -> None:
        if cls.is_near() and point == cls.point:
            cls.point = ""
            os.kill(os.getpid(), cls.kind)


class FaultySink(Sink):
    """The sink, with points in it."""

    def produce(self, messages: Sequence[Message]) -> None:
        """Produce, and wait until the broker has the messages: only then does an open transaction hold readers back."""
        Fault.seen += bool(messages)
        Fault.reach("before_produce")
        super().produce(messages)
        if Fault.is_near():
            self._open.flush(5)
        Fault.reach("after_produce")

    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None:
        super().send_offsets(positions, group)
        Fault.reach("after_offsets")

    def commit(self) -> None:
        super().commit()
        Fault.reach("after_commit")


class FaultySource(Source):
    """The source of an at-least-once worker, which commits by it."""

    def commit(self, positions: Mapping[int, tuple[int, str]]) -> dict[int, str | None]:
        done = super().commit(positions)
        Fault.reach("after_commit")
        return done


if __name__ == "__main__":
    mode, Fault.number = sys.argv[1], int(sys.argv[2])
    Fault.point = mode.removeprefix(FREEZE)
    Fault.kind = signal.SIGSTOP if mode.startswith(FREEZE) else signal.SIGKILL
    assert any(Fault.point in points for points in POINTS.values()), POINTS
    process.Sink = FaultySink  # type: ignore[attr-defined]
    if tomllib.loads(Path(sys.argv[3]).read_text())["worker"].get("publishing") == "at_least_once":
        # Exactly once, the source's commits only raise epochs.
        process.Source = FaultySource  # type: ignore[attr-defined]
    sys.exit(main(["--config", sys.argv[3], "worker"]))
