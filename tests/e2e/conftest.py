"""What end-to-end tests share: the program itself, run as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment() -> dict[str, str]:
    """Give this environment without settings: a developer's own must not reach the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DISPATCHER_")}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `dispatcher` to its end in an empty directory and give exit code, stdout and stderr."""

    def run(
        *arguments: str, env: dict[str, str] | None = None, text: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dispatcher", *arguments],
            cwd=tmp_path,
            env=clean_environment() | {"PYTHONPATH": str(Path(__file__).parents[2])} | (env or {}),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
