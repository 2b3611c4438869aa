"""Many worlds, on several cores."""

from __future__ import annotations

import multiprocessing
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.sim.plan import draw
from tests.sim.world import run

# Worlds of a test run, and how many one process is given at a time.
TEST_RUN, CHUNK = 2000, 50


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed, and what was broken in its world."""

    seed: int
    findings: tuple[str, ...]


def first_seed() -> int:
    """Give the seed that this commit begins with: every commit tries other worlds, and everybody the same ones of a commit."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(asked.stdout[:8] or "0", 16)


def run_seeds(first: int, count: int, processes: int) -> tuple[Counter[str], list[Failure]]:
    """Run worlds; give what happened in all of them, and those that broke something."""
    chunks = [range(begin, min(begin + CHUNK, first + count)) for begin in range(first, first + count, CHUNK)]
    tally: Counter[str] = Counter()
    failures: list[Failure] = []
    # Spawned, not forked: the test run has threads, and a forked child has only their locks.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for some, failed in pool.imap_unordered(_run_chunk, chunks):
            tally += some
            failures += failed
    return tally, sorted(failures, key=lambda failure: failure.seed)


def _run_chunk(seeds: range) -> tuple[Counter[str], list[Failure]]:
    tally: Counter[str] = Counter()
    failures: list[Failure] = []
    for seed in seeds:
        result = run(draw(seed))
        tally += result.tally
        if result.findings:
            failures.append(Failure(seed, tuple(result.findings)))
    return tally, failures
