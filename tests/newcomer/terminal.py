"""A newcomer's terminal: one shell that keeps its directory and its variables, and a second one for each command that stays."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# Installing from an empty cache, fetching Kafka and playing the demo, each on a loaded machine.
COMMAND_S = 900
_END_S = 60


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Terminal:
    """A bash in a folder, with an environment of its own. A context manager that ends what was left running in it."""

    def __init__(self, folder: Path, environ: dict[str, str], scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0
        self._staying: list[tuple[str, int]] = []
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._do("set -o pipefail -o monitor")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for _, pid in self._staying:
            self._signal(pid, signal.SIGKILL)
        self._shell.kill()
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                pipe.close()

    def type(self, line: str) -> Done:
        """Run a command to its end. TimeoutError after COMMAND_S."""
        out, err = self._files()
        code = self._do(f"{{ {line}\n}} >{out} 2>{err} </dev/null; echo $?")
        return Done(int(code), _read(out), _read(err))

    def leave_running(self, line: str) -> None:
        """Start a command that stays, as if in a terminal of its own (its own process group)."""
        out, err = self._files()
        pid = int(self._do(f"{{ {line}\n}} >{out} 2>{err} </dev/null & echo $!"))
        self._staying.append((line, pid))

    def end_staying(self) -> list[tuple[str, int]]:
        """Type Ctrl-C into each of them, the last first; give their exit codes."""
        ended = []
        for line, pid in reversed(self._staying):
            self._signal(pid, signal.SIGINT)
            ended.append((line, int(self._do(f"wait {pid}; echo $?"))))
        self._staying.clear()
        return ended

    def _files(self) -> tuple[Path, Path]:
        self._number += 1
        return self._scratch / f"{self._number}.out", self._scratch / f"{self._number}.err"

    def _do(self, script: str) -> str:
        """Let the shell run something and give the last line before our mark; the commands' own output goes to files."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{script}\necho the-end\n")
        self._shell.stdin.flush()
        last = ""
        with _alarm(COMMAND_S):
            while (line := self._shell.stdout.readline()) and line != "the-end\n":
                last = line
        return last.strip()

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        """Signal a process group."""
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return


class _alarm:  # noqa: N801 - reads as the function that it stands for
    """Raise TimeoutError in the block once its seconds are over."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._ring)
        signal.alarm(self._seconds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.alarm(0)

    def _ring(self, _number: int, _frame: object) -> None:
        raise TimeoutError(f"a command did not end within {self._seconds} s")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
