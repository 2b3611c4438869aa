"""Which world shows a planted fault: looked at first, so that a test run need not go through hundreds of worlds to find one again.

`python -m tests.sim.shown` looks for all of them anew, on all cores, and writes shown.toml: when many worlds have become others, as by a
thing that plans draw since. Until then the tests are as true, and slower.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.plan import draw
from tests.sim.planted import Planted
from tests.sim.world import run

# Worlds in which a fault must show itself.
SEEDS_MAX = 500
FOLDER = Path(__file__).parent
FILE = FOLDER / "shown.toml"
# Who shows itself in the first few worlds needs no place in the file.
EARLY = 5


def shown() -> dict[str, int]:
    """Give the seed of the world to look at first, by the fault's name; what is not there begins with the first."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def everything() -> dict[str, Planted]:
    """All faults of the modules `planted*`, by name."""
    modules = [importlib.import_module(f"tests.sim.{path.stem}") for path in sorted(FOLDER.glob("planted*.py"))]
    lists = [value for module in modules for value in vars(module).values() if isinstance(value, list | tuple)]
    return {str(one): one for some in lists for one in some if isinstance(one, Planted)}


def broken(planted: Planted, seed: int) -> set[str]:
    """Name the guarantees that a world breaks; the fault has been planted."""
    plan = draw(seed, **dict(planted.fixed))
    return {finding.partition(":")[0] for finding in run(replace(plan, faults=plan.faults + planted.faults)).findings}


def _first(name: str) -> tuple[str, int]:
    planted = everything()[name]
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        return name, next((seed for seed in range(SEEDS_MAX) if planted.breaks in broken(planted, seed)), SEEDS_MAX)


def _found() -> Iterator[tuple[str, int]]:
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name, seed in pool.imap_unordered(_first, everything()):
            print(f"{name}: {seed if seed < SEEDS_MAX else 'in none'}", flush=True)
            if EARLY <= seed < SEEDS_MAX:
                yield name, seed


def main() -> None:
    """Look for all, and write the file."""
    lines = [f"{json.dumps(name)} = {seed}\n" for name, seed in sorted(_found())]
    FILE.write_text(f"# Written by `python -m tests.sim.shown`: a world that shows a planted fault.\n{''.join(lines)}", encoding="utf-8")


if __name__ == "__main__":
    main()
