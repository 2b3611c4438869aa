"""`make sim`: run seeds, on all cores; for one that fails, say how to run it again and what is left of it when it is shrunk.

python -m tests.sim [--seed N | --seeds COUNT [--first N]]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter

from tests.sim.plan import draw
from tests.sim.seeds import TEST_RUN, Failure, first_seed, run_seeds
from tests.sim.shrink import shrink
from tests.sim.world import World, run


def main() -> int:
    """Run; exit code 1 where something was broken."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one world, with everything that happens in it")
    parser.add_argument("--seeds", type=int, default=50_000, help="how many fresh ones")
    parser.add_argument("--first", type=int, default=None, help="where to begin; behind those of a test run of this commit if not given")
    given = parser.parse_args()
    if given.seed is not None:
        return _one(given.seed)
    first = first_seed() + TEST_RUN if given.first is None else given.first
    print(f"{given.seeds} worlds from seed {first} on")
    tally, failures = run_seeds(first, given.seeds, os.cpu_count() or 1)
    _show(tally)
    for failure in failures[:10]:
        print(told(failure))
    print(f"{len(failures)} of {given.seeds} worlds broke a guarantee")
    return 1 if failures else 0


def told(failure: Failure) -> str:
    """Say what was broken, how to see it, and what is left of it when it is shrunk."""
    kind = failure.findings[0].partition(":")[0]
    plan = shrink(draw(failure.seed), lambda plan: any(finding.startswith(kind) for finding in run(plan).findings))
    lines = [f"seed {failure.seed} (make sim SEED={failure.seed}):", *(f"  {finding}" for finding in failure.findings[:10])]
    return "\n".join([*lines, f"  shrunk to {len(plan.writes)} writes: {plan.writes}", f"  and faults {plan.faults}"])


def _one(seed: int) -> int:
    world = World(draw(seed), traced=True)
    try:
        findings = world.run().findings
    finally:
        print("\n".join(world.trace or []))
    print(*(findings or ["nothing was broken"]), sep="\n")
    return 1 if findings else 0


def _show(tally: Counter[str]) -> None:
    print(*(f"{count:9} {name}" for name, count in sorted(tally.items())), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
