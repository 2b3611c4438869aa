"""`make chaos`: a three-broker cluster and two groups of workers under constant faults, and what that did to order, outcomes and keys.

python -m tests.chaos [--minutes 30] [--seed N] [--folder DIR] [--peer pyrallel]

Ends with a table and a JSON file; exit code 0 only where nothing was lost, answered twice, out of order, side by side or called again
for no reason, or stuck, no lane stood still for a minute, replies say what the calls came to,
and killed workers' partitions went on in time. Logs are kept where something was found.

With `--peer` its workers take the place of ours under the same load and faults: what came of it is only told, and all logs are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

from tests.chaos import peer
from tests.chaos.drive import Scenery, played
from tests.chaos.gathered import gathered
from tests.chaos.judgement import judge
from tests.chaos.outside import Figures, figures
from tests.chaos.plan import Plan, draw
from tests.chaos.report import Report
from tests.chaos.scene import Call

MINUTES = 30.0
SEEDS = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run; exit code 1 where something was broken."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long requests come (30)")
    parser.add_argument("--seed", type=int, default=None, help="of plan and load; drawn if not given")
    parser.add_argument("--peer", choices=["pyrallel"], default=None, help="run another library's workers in place of ours")
    parser.add_argument("--folder", type=Path, default=Path(".dispatcher/chaos"), help="where the report goes, and logs if it fails")
    given = parser.parse_args(arguments)
    # Whoever ends the run with SIGTERM ends all its children, too.
    signal.signal(signal.SIGTERM, _ended)
    seed = secrets.randbelow(SEEDS) if given.seed is None else given.seed
    if given.peer:
        run_peer(seed, given.minutes, given.folder)
        return 0
    report = run(seed, given.minutes, given.folder)
    return 1 if report.failures else 0


def run(seed: int, minutes: float, folder: Path) -> Report:
    """Play the plan of that seed, judge it, print the table, and write the report beside the logs."""
    plan, place = _begun(seed, minutes, folder)
    with played(plan, place, _say) as scenery:
        judgements = [judge(group, scenery) for group in scenery.groups.values()]
        seen = outside(scenery)
    report = Report(scenery, judgements)
    told = report.as_json() | {"outside": seen, "versions": {"dispatcher": version("dispatcher"), **_versions()}}
    (place / "report.json").write_text(json.dumps(told, indent=1))
    print(report.table(), report.verdict(), f"report: {place / 'report.json'}", sep="\n", flush=True)
    if report.failures:
        for judgement in judgements:
            _write(judgement.calls, place / judgement.label)
    for made in [place / "cluster"] if report.failures else [made for made in place.iterdir() if made.is_dir()]:
        shutil.rmtree(made, ignore_errors=True)
    return report


def run_peer(seed: int, minutes: float, folder: Path) -> Path:
    """Play the plan of that seed with the peer's workers, and tell what was seen from outside; gives the report's place."""
    hire = peer.installed()
    plan, place = _begun(seed, minutes, folder)
    with played(plan, place, _say, hire) as scenery:
        seen = outside(scenery, place)
    told = Report(scenery, []).as_json() | {"outside": seen, "versions": peer.versions(hire.args[0])}
    told["workers_ended"] = [finding.text for group in scenery.groups.values() for finding in group.crew.findings]
    for name in ("passed", "failures", "groups", "both"):
        del told[name]  # a judgement by what we promise
    (place / "report.json").write_text(json.dumps(told, indent=1))
    print(json.dumps(seen["both"], indent=1), f"report: {place / 'report.json'}", sep="\n", flush=True)
    shutil.rmtree(place / "cluster", ignore_errors=True)
    return place / "report.json"


def outside(scenery: Scenery, place: Path | None = None) -> dict[str, Any]:
    """Count what is to be seen from outside of the workers, by group and altogether; `place` is for the calls."""
    counted = {}
    for label, group in scenery.groups.items():
        history = gathered(group, scenery)
        counted[label] = figures(history)
        if place is not None:
            _write(history.calls, place / label)
    return {label: found.as_json() for label, found in (counted | {"both": sum(counted.values(), Figures())}).items()}


def _begun(seed: int, minutes: float, folder: Path) -> tuple[Plan, Path]:
    plan = draw(seed, minutes)
    place = folder.absolute() / f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    place.mkdir(parents=True)
    counted = ", ".join(f"{count} x {kind}" for kind, count in sorted(plan.counted().items()))
    print(f"chaos: seed {seed}, {minutes:g} minutes: {counted}", flush=True)
    return plan, place


def _write(calls: Iterable[Call], folder: Path) -> None:
    lines = [json.dumps(asdict(call)) + "\n" for call in sorted(calls, key=lambda call: call.start)]
    (folder / "calls.jsonl").write_text("".join(lines))


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("confluent-kafka", "aiohttp")} | {"python": platform.python_version()}


def _say(text: str) -> None:
    print(text, flush=True)


def _ended(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
