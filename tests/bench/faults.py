"""`tests/bench/faults.md`: our workers and a peer's under the same load and the same faults, judged by the same eyes.

python -m tests.bench.faults run [--minutes 5] [--seed 7]      both runs, one after another, and the text
python -m tests.bench.faults write OURS.json PEER.json         the text alone, from their reports
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(".dispatcher/chaos")
PEER = "pyrallel-consumer"
# What a peer cannot have: it does not say that its grace is over.
NOT_THEIRS = frozenset({"calls again: worker past its grace", "overlaps: worker past its grace"})
COLUMNS = (("strict", "partition order"), ("key", "key order"))


def main(arguments: list[str] | None = None) -> None:
    """Run both, or take two reports, and write the text."""
    parser = argparse.ArgumentParser(prog="tests.bench.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    both = verbs.add_parser("run")
    both.add_argument("--minutes", type=float, default=5)
    both.add_argument("--seed", type=int, default=7)
    write = verbs.add_parser("write")
    write.add_argument("ours", type=Path)
    write.add_argument("peer", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "run":
        from tests.chaos.__main__ import run, run_peer

        run(given.seed, given.minutes, FOLDER)
        ours = max(FOLDER.glob(f"*-seed{given.seed}/report.json"), key=lambda path: path.stat().st_mtime)
        peer = run_peer(given.seed, given.minutes, FOLDER)
    else:
        ours, peer = given.ours, given.peer
    (HERE / "faults.md").write_text(text(json.loads(ours.read_text()), json.loads(peer.read_text())))
    print(f"written: {HERE / 'faults.md'}")


def text(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    """Give the whole text: the figures from both reports, and how to read them from `faults_reading.md`."""
    assert (ours["seed"], ours["minutes"]) == (peer["seed"], peer["minutes"]), "two plans"
    head = [f"| {'':44} | " + " | ".join(f"{name}: {who}" for _, name in COLUMNS for who in ("dispatcher", PEER)) + " |"]
    head.append("|---|" + "--:|" * 2 * len(COLUMNS))
    rows = [
        f"| {name:44} | "
        + " | ".join(_shown(name, which["outside"][label][name], is_peer=which is peer) for label, _ in COLUMNS for which in (ours, peer))
        + " |"
        for name in ours["outside"]["both"]
    ]
    runs = [f"- {name}: {_run(report)}" for name, report in (("dispatcher", ours), (PEER, peer))]
    title = f"# Faults: dispatcher and {PEER}\n\nSeed {ours['seed']}, {ours['minutes']:g} minutes each, one after another.\n"
    return "\n".join([title, *runs, "", *head, *rows, "", (HERE / "faults_reading.md").read_text()])


def _run(report: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report["faults"].items()))
    load = f"load average {report['load_average_mean']:.1f}, CPU {report['cpu_percent_mean']:.0f} %"
    return f"{report['ended'][:16]}Z, {report['cores']} cores, {load}; {versions}. Happened: {faults}"


def _shown(name: str, figure: float | None, *, is_peer: bool) -> str:
    if figure is None or (is_peer and name in NOT_THEIRS):
        return "-"
    return str(figure) if isinstance(figure, int) else f"{figure:.1f}"


if __name__ == "__main__":
    main()
