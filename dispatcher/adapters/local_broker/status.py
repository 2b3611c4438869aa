"""What is known of a local broker, and the small file in which its starter leaves that for the next command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Status:
    """A broker as seen now. `state` "starting": its process runs and does not serve yet."""

    state: Literal["up", "starting", "down"]
    kind: Literal["given", "docker", "jars", "mock"]
    bootstrap: str | None = None
    process: str | None = None  # process number or container name
    log: Path | None = None

    @property
    def port(self) -> int | None:
        """The port in `bootstrap`."""
        return int(self.bootstrap.rpartition(":")[2]) if self.bootstrap else None


def read_note(path: Path) -> dict[str, Any]:
    """Read the starter's note; empty when there is none, or half of one."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(path: Path, note: dict[str, Any]) -> None:
    """Write the note in one step, so that nobody reads half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(note) + "\n", encoding="utf-8")
    fresh.replace(path)
