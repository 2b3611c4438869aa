"""`make chaos`: a three-broker cluster and two groups of workers under constant faults, and what that did to order, outcomes and keys.

python -m tests.chaos [--minutes 30] [--seed N] [--folder DIR]

Ends with a table and a JSON file; exit code 0 only where nothing was lost, answered twice, out of order, side by side or called again
for no reason, or stuck, replies say what the calls came to, and killed workers' partitions went on in time.
Logs are kept where something was found.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from tests.chaos.drive import played
from tests.chaos.judgement import judge
from tests.chaos.plan import draw
from tests.chaos.report import Report

MINUTES = 30.0
SEEDS = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run; exit code 1 where something was broken."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long requests come (30)")
    parser.add_argument("--seed", type=int, default=None, help="of plan and load; drawn if not given")
    parser.add_argument("--folder", type=Path, default=Path(".dispatcher/chaos"), help="where the report goes, and logs if it fails")
    given = parser.parse_args(arguments)
    # Whoever ends the run with SIGTERM ends all its children, too.
    signal.signal(signal.SIGTERM, _ended)
    report = run(secrets.randbelow(SEEDS) if given.seed is None else given.seed, given.minutes, given.folder)
    return 1 if report.failures else 0


def run(seed: int, minutes: float, folder: Path) -> Report:
    """Play the plan of that seed, judge it, print the table, and write the report beside the logs."""
    plan = draw(seed, minutes)
    place = folder.absolute() / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    place.mkdir(parents=True)
    counted = ", ".join(f"{count} x {kind}" for kind, count in sorted(plan.counted().items()))
    print(f"chaos: seed {seed}, {minutes:g} minutes: {counted}", flush=True)
    with played(plan, place, lambda text: print(text, flush=True)) as scenery:
        judgements = [judge(group, scenery) for group in scenery.groups.values()]
    report = Report(scenery, judgements)
    (place / "report.json").write_text(json.dumps(report.as_json(), indent=1))
    print(report.table(), report.verdict(), f"report: {place / 'report.json'}", sep="\n", flush=True)
    if report.failures:
        for judgement in judgements:
            lines = [json.dumps(asdict(call)) + "\n" for call in sorted(judgement.calls, key=lambda call: call.start)]
            (place / judgement.label / "calls.jsonl").write_text("".join(lines))
    for made in [place / "cluster"] if report.failures else [made for made in place.iterdir() if made.is_dir()]:
        shutil.rmtree(made, ignore_errors=True)
    return report


def _ended(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
