"""One command per folder: the claim that a running command has on the files it writes there."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dispatcher.adapters.local_broker.process import command_line
from dispatcher.adapters.local_broker.status import read_note
from dispatcher.errors import RefusedError


def claim(folder: Path, what: str, hint: str) -> None:
    """Make the folder this process's until it ends. RefusedError, with `what` runs and the hint, while another process has it.

    A claim is a file `claim.N` that says who; the highest N counts, and one whose process has ended is worth nothing. A new one is
    linked into place as N + 1, whole and only where no file is: of two that see the same dead claim, one gets the number, and the other
    looks again.
    """
    mine = {"pid": os.getpid(), "command": command_line(os.getpid())}
    fresh = folder / f"claim-of-{os.getpid()}"
    fresh.write_text(json.dumps(mine) + "\n", encoding="utf-8")
    try:
        while not _claimed(folder, fresh, what, hint):
            pass
    finally:
        fresh.unlink()


def _claimed(folder: Path, fresh: Path, what: str, hint: str) -> bool:
    """Try once. False when somebody else was faster."""
    numbers = sorted(int(path.suffix[1:]) for path in folder.glob("claim.*") if path.suffix[1:].isdigit())
    last = numbers[-1] if numbers else 0
    holder = read_note(folder / f"claim.{last}")
    pid = holder.get("pid")
    if isinstance(pid, int) and command_line(pid) == holder.get("command"):
        raise RefusedError(f"{what} runs in {folder} already (process {pid})", hint)
    try:
        os.link(fresh, folder / f"claim.{last + 1}")
    except FileExistsError:
        return False
    for number in numbers:
        (folder / f"claim.{number}").unlink(missing_ok=True)
    return True
