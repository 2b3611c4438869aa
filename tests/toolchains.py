"""Programs of other languages in tests: their libraries, installed from lock files and poms into the user's cache, once for each of these.

Where a tool is missing, a test is skipped; on CI (`CI` is set), which has them all, it fails instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.adapters.local_broker.jars import cache_directory

INSTALL_S = 240  # a first time, on a slow line


def tool(name: str, *, always: bool = True) -> str:
    """Give the path of a program; without it the test is skipped, or failed on CI unless it may be missing there (`always`)."""
    found = shutil.which(name)
    if found is None and always and os.environ.get("CI"):
        pytest.fail(f"{name} is missing: CI has it")
    if found is None:
        pytest.skip(f"{name} is missing")
    return found


def node_modules(folder: Path) -> Path:
    """Give the `node_modules` that the lock file in `folder` asks for."""
    npm = tool("npm")

    def install(fresh: Path) -> None:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(folder / name, fresh)
        # No scripts: nothing that is used needs one, and a package's script may do anything.
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--no-update-notifier"], fresh)

    return _cached(folder / "package-lock.json", install) / "node_modules"


def class_path(folder: Path) -> str:
    """Give Java's class path with the libraries that the pom in `folder` asks for."""
    maven, pom = tool("mvn"), folder / "pom.xml"

    def install(fresh: Path) -> None:
        # -C: a jar that does not match its checksum is an error, not a warning.
        _run([maven, "-q", "-B", "-C", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"], fresh)

    return f"{_cached(pom, install)}{os.sep}*"


def virtualenv(lock: Path, python: str) -> Path:
    """Give the interpreter of an environment with what `lock` pins, made by `python`."""

    def install(fresh: Path) -> None:
        _run([python, "-m", "venv", str(fresh)], fresh)
        pip = [str(fresh / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(lock)], fresh)

    return _cached(lock, install) / "bin" / "python"


def _cached(recipe: Path, install: Callable[[Path], None]) -> Path:
    """Give the directory that `install` fills, named after what the recipe says; that it exists says that it is complete."""
    digest = hashlib.sha256(recipe.read_bytes()).hexdigest()[:16]
    made = cache_directory(os.environ) / "toolchains" / f"{recipe.parent.name}-{digest}"
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{recipe.parent.name}-", dir=made.parent) as around:
        fresh = Path(around) / "fresh"
        fresh.mkdir()
        install(fresh)
        try:
            fresh.rename(made)
        except OSError:
            assert made.is_dir(), made  # another run was faster, with the same libraries
    return made


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, f"{command[0]} says: {(done.stdout + done.stderr)[-2000:]}"
