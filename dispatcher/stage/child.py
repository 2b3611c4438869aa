"""A child process of a command: its output in files, an end in order, and no survivor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from dispatcher.errors import CallFailed, WaitTimeout
from dispatcher.stage.watch import Watch

# A Python process with all libraries starts in 1-3 s; on a loaded machine of two cores in many more.
START_TIMEOUT_S = 30.0
# A worker finishes its calls in hand (the stage's configurations have short ones), publishes and leaves its group.
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05


class Child:
    """A run of our own program whose output goes to files. A context manager that leaves nothing running, however the block ends.

    `watch` ends it where the block cannot, since its process was killed. `program` is what Python runs, `-m dispatcher` by default;
    `log_here` lets its log out on our stderr.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        folder: Path,
        watch: Watch,
        *,
        program: tuple[str, ...] = ("-m", "dispatcher"),
        log_here: bool = False,
    ) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        self._watch = watch
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if log_here else log,
                env=_environment(),
                start_new_session=True,  # Ctrl-C goes to the command alone, which ends its children in order
            )
        watch.child(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except WaitTimeout:
            if kind is None:
                raise
        finally:
            self._process.kill()
            self._process.wait()
            self._watch.ended(self._process.pid)

    def check(self) -> None:
        """Raise CallFailed if the process has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise CallFailed(f"the {self.name} ended with exit code {code}: {self._last_words()}", f"its log: {self.log}")

    def stop(self) -> int:
        """Ask it to end (SIGTERM), wait, and give its exit code. WaitTimeout if it does not end in time."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"the {self.name} did not end within {STOP_TIMEOUT_S:g} s of SIGTERM", f"its log: {self.log}") from None

    def first_line(self) -> str:
        """Wait for the first line on its stdout."""
        end = time.monotonic() + START_TIMEOUT_S
        while not (text := self.out.read_text()).endswith("\n"):
            self._wait(end)
        return text.splitlines()[0]

    def await_ready(self, url: str) -> None:
        """Wait until `url` answers 200."""
        end = time.monotonic() + START_TIMEOUT_S
        with httpx.Client(trust_env=False, timeout=1) as client:
            while True:
                try:
                    if client.get(url).is_success:
                        return
                except httpx.TransportError:
                    pass
                self._wait(end)

    def _wait(self, end: float) -> None:
        self.check()
        if time.monotonic() > end:
            raise WaitTimeout(f"the {self.name} is not ready after {START_TIMEOUT_S:g} s: {self._last_words()}", f"its log: {self.log}")
        time.sleep(POLL_S)

    def _last_words(self) -> str:
        """Give the error that it printed last, else its last line."""
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it said nothing"])[-1][:300]


def _environment() -> dict[str, str]:
    """Give children ours without what would override their file."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("DISPATCHER_")}
