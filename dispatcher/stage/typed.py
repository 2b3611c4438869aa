"""Our commands as a person would type them here."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def own_name() -> str:
    """How this program was called, if that can be typed again; a path inside the current folder is shortened."""
    called = Path(sys.argv[0])
    if called.name != "dispatcher":
        return "python -m dispatcher"
    if (found := shutil.which("dispatcher")) and Path(found).resolve() == called.resolve():
        return "dispatcher"
    here = Path.cwd()
    return str(called.absolute().relative_to(here)) if called.absolute().is_relative_to(here) else str(called)


def with_config(path: Path) -> str:
    """The program with its configuration file."""
    return f"{own_name()} --config {shlex.quote(str(path))}"
