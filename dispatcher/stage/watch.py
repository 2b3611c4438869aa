"""The watch over a command's children: a process of its own that ends them when the command was killed and could not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

# As long as a child may take to end in order (`child.STOP_TIMEOUT_S`); after it, SIGKILL.
_GRACE_S = 30.0
_POLL_S = 0.1


class Watch:
    """Tells the watching process what runs. A context manager that belongs around all children.

    That process reads a pipe whose other end we alone hold: the pipe closes with us, by whatever we end. What was started and not ended by
    then, it ends: SIGTERM, then SIGKILL. A child that ended in order must be told as `ended`, since its number may be given away.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-m", "dispatcher.stage.watch"]
        # A session of its own: Ctrl-C is for us. Nobody waits for its output.
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.wait()

    def child(self, pid: int) -> None:
        """Watch over a process."""
        self._tell("child", str(pid))

    def ended(self, pid: int) -> None:
        """Forget a process."""
        self._tell("ended", str(pid))

    def broker(self, directory: Path) -> None:
        """Watch over the local broker of a directory, also before it is started."""
        self._tell("broker", str(directory.absolute()))

    def broker_ended(self) -> None:
        """Forget the broker."""
        self._tell("broker", "")

    def _tell(self, what: str, which: str) -> None:
        # A watch that somebody killed is missed by nobody: it only matters if we are killed too.
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.write(f"{what} {which}\n")
                self._process.stdin.flush()


def watch(letters: Iterable[str]) -> None:
    """Take in what runs until the letters end, then end it."""
    children: set[int] = set()
    directory = ""
    for letter in letters:
        what, _, which = letter.rstrip("\n").partition(" ")
        if what == "child":
            children.add(int(which))
        elif what == "ended":
            children.discard(int(which))
        elif what == "broker":
            directory = which
    end(children)
    if directory:
        from dispatcher.adapters.local_broker import started  # noqa: PLC0415 - most watches end with nothing left to do

        if (broker := started(Path(directory), say=lambda _: None)) is not None:
            broker.down()


def end(children: set[int], grace_s: float = _GRACE_S) -> None:
    """End processes that are not our own children: SIGTERM to all, and SIGKILL to what is left after the grace."""
    left = _signalled(children, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while left and time.monotonic() < until:
        time.sleep(_POLL_S)
        left = {pid for pid in left if _runs(pid)}
    _signalled(left, signal.SIGKILL)


def _signalled(pids: set[int], number: signal.Signals) -> set[int]:
    """Send a signal; give those that were there to get it."""
    reached = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            reached.add(pid)
    return reached


def _runs(pid: int) -> bool:
    """Look whether a process still runs; one that is dead and not yet collected does not."""
    from dispatcher.adapters.local_broker.process import command_line  # noqa: PLC0415 - as above

    return bool(command_line(pid)) and command_line(pid) != [""]


if __name__ == "__main__":
    watch(sys.stdin)
