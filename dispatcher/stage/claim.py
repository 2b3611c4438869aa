"""One command per folder: the claim that a running command has on the files it writes there."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dispatcher.adapters.local_broker.process import started_at
from dispatcher.adapters.local_broker.status import read_note
from dispatcher.errors import RefusedError


def claim(folder: Path, what: str, hint: str) -> None:
    """Make the folder this process's until it ends. RefusedError, with `what` runs and the hint, while another process has it.

    A claim is a file `claim.N` that says who; the highest N counts, and one whose process has ended is worth nothing. A new one is
    linked into place as N + 1, whole and only where no file is: of two that see the same dead claim, one gets the number, and the other
    looks again. Who is told by number and start: numbers are used again, and a command line may hold a secret.
    """
    mine = {"pid": os.getpid(), "started": started_at(os.getpid())}
    fresh = folder / f"claim-of-{os.getpid()}"
    fresh.unlink(missing_ok=True)  # of a process of this number that was killed here
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(mine) + "\n")
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
    if isinstance(pid, int) and (started := started_at(pid)) is not None and started == holder.get("started"):
        raise RefusedError(f"{what} runs in {folder} already (process {pid})", hint)
    try:
        os.link(fresh, folder / f"claim.{last + 1}")
    except FileExistsError:
        return False
    for number in numbers:
        (folder / f"claim.{number}").unlink(missing_ok=True)
    return True
