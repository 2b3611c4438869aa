"""What a chaos run came to: a table for people, JSON for machines, and whether it is good."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tests.chaos.drive import Scenery
from tests.chaos.judgement import Judgement, explained
from tests.chaos.scene import CAUSES, Finding
from tests.chaos.takeover import percentile

# Session timeout (6 s), transaction timeout (10 s) and the brokers' sweep (2 s here), and a little: of a hundred takeovers 99 are as quick.
TAKEOVER_P99_S = 20.0
# Each of fewer, of which the slowest one would be the 99th percentile: what the README promises, with a sweep of Kafka's default (10 s).
# The heir, or the broker that coordinates the group, may be killed in the middle of one: seen 20.1 and 24.3 s.
TAKEOVER_MAX_S, TAKEOVERS_FEW = 26.0, 100
FINDINGS_SHOWN_MAX = 30
# A loud stop is allowed to a worker that cannot go on, and runs of half an hour saw two; one that always stops does not survive anything.
ENDED_MAX, ENDED_EACH_MIN = 1, 3
# Who is to be killed may have ended by then, and the last faults may find the load over; a run that kills few shows little.
KILLED_SHARE_MIN = 0.9
# Percent of all processors, on the average of a run: above it whatever waits for one waits long.
CPU_BUSY = 90


class Report:
    """The figures of a run, by group and altogether."""

    def __init__(self, scenery: Scenery, judgements: Sequence[Judgement]) -> None:
        self._scenery = scenery
        self.judgements = judgements
        self.findings: list[Finding] = [*scenery.findings, *(finding for judgement in judgements for finding in judgement.findings)]
        self.faults = self._faults()

    @property
    def failures(self) -> list[str]:
        """Say why the run is not good; nothing where it is."""
        counted = Counter(finding.what for finding in self.findings)
        found = [f"{name}: {count}" for name, count in sorted(counted.items())]
        keys = sum(len(judgement.stuck_keys) for judgement in self.judgements)
        found += [f"stuck keys: {keys}"] if keys else []
        ended, most = self.faults["workers ended by themselves"], ENDED_MAX + self._scenery.plan.minutes / ENDED_EACH_MIN
        found += [f"workers ended by themselves: {ended}, more than {most:.0f}"] if ended > most else []
        killed, planned = self.faults["worker kills"], self._scenery.plan.counted()["worker kills"]
        found += [f"worker kills: {killed}, of {planned} planned"] if killed < KILLED_SHARE_MIN * planned else []
        return found + _late(_completed(self.judgements))

    def table(self) -> str:
        """Give the table."""
        heads = [judgement.label for judgement in self.judgements] + ["both"]
        columns = [[judgement] for judgement in self.judgements] + [list(self.judgements)]
        figures = [_figures(column) for column in columns]
        plan = self._scenery.plan
        lines = [f"chaos: seed {plan.seed}, {plan.minutes:g} minutes", f"{'':34}" + "".join(f"{head:>12}" for head in heads)]
        lines += [f"{name:34}" + "".join(f"{_shown(of[name]):>12}" for of in figures) for name in figures[0]]
        lines += ["faults: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(self.faults.items()))]
        if (busy := _mean(self._scenery.cpu_percent)) is not None:
            lines += [f"cpu of this machine: {busy:.0f} %" + (", so that times say more of the machine" if busy > CPU_BUSY else "")]
        return "\n".join(lines)

    def verdict(self) -> str:
        """Give what was found, with seed, time and request; or that nothing was."""
        seed = self._scenery.plan.seed
        lines = [_line(finding, seed) for finding in self.findings[:FINDINGS_SHOWN_MAX]]
        lines += (
            [f"... and {len(self.findings) - FINDINGS_SHOWN_MAX} more in the JSON file"] if len(self.findings) > FINDINGS_SHOWN_MAX else []
        )
        return "\n".join([*lines, "failed: " + "; ".join(self.failures) if self.failures else "passed: nothing was broken"])

    def as_json(self) -> dict[str, Any]:
        """Give everything."""
        plan, groups = self._scenery.plan, self.judgements
        return {
            "seed": plan.seed,
            "minutes": plan.minutes,
            "passed": not self.failures,
            "failures": self.failures,
            "ended": _shown_time(time.time()),
            "cpu_percent_mean": _mean(self._scenery.cpu_percent),
            "load_average_mean": _mean(self._scenery.load_average),
            "cores": os.cpu_count(),
            "faults": dict(self.faults),
            "groups": {judgement.label: _figures([judgement]) for judgement in groups},
            "both": _figures(groups),
            "repeats": {judgement.label: dict(judgement.repeats) for judgement in groups},
            "overlaps": {judgement.label: dict(judgement.overlaps) for judgement in groups},
            "takeovers": {judgement.label: [asdict(takeover) for takeover in judgement.takeovers] for judgement in groups},
            "stuck_keys": {judgement.label: judgement.stuck_keys for judgement in groups},
            "workers": {label: [asdict(fate) for fate in group.crew.fates.values()] for label, group in self._scenery.groups.items()},
            "troubles": [asdict(trouble) for trouble in self._scenery.troubles],
            "findings": [asdict(finding) | {"seed": plan.seed} for finding in self.findings],
        }

    def _faults(self) -> Counter[str]:
        """Count what really happened."""
        happened: Counter[str] = Counter(trouble.kind for trouble in self._scenery.troubles)
        fates = [fate for group in self._scenery.groups.values() for fate in group.crew.fates.values()]
        happened["worker kills"] = sum(fate.killed_at is not None for fate in fates)
        happened["worker freezes"] = sum(len(fate.frozen) for fate in fates)
        happened["worker terminations"] = sum(fate.terminated_at is not None for fate in fates)
        happened["workers ended by themselves"] = sum(fate.ended_at is not None for fate in fates)
        for fault in self._scenery.plan.faults:
            happened[fault.kind] += fault.track == "upstream" or fault.kind == "add"
        return +happened


def _figures(of: Sequence[Judgement]) -> dict[str, float | int | None]:
    """Give the rows of the table."""
    completed, visible = _completed(of), [t.visible_s for judgement in of for t in judgement.takeovers if t.visible_s is not None]
    waits = [wait for judgement in of for wait in judgement.waits_s]
    return {
        "requests": sum(judgement.requests for judgement in of),
        "  without an acknowledgement": sum(judgement.unacknowledged for judgement in of),
        "replies": sum(judgement.replies for judgement in of),
        "dead letters": sum(judgement.letters for judgement in of),
        "calls": sum(len(judgement.calls) for judgement in of),
        "lost": sum(judgement.count("lost") for judgement in of),
        "duplicated replies": sum(judgement.count("duplicated") for judgement in of),
        "out of order": sum(judgement.count("out of order") for judgement in of),
        "overlaps after a loss": sum(explained(judgement.overlaps) for judgement in of),
        "overlaps unexplained": sum(judgement.count("overlaps") for judgement in of),
        **{f"calls again: {cause}": sum(judgement.repeats[cause] for judgement in of) for cause in CAUSES},
        "replies that tell something else": sum(judgement.count("replies") for judgement in of),
        "stuck keys": sum(len(judgement.stuck_keys) for judgement in of),
        "other findings": sum(judgement.count(what) for judgement in of for what in ("stuck", "other", "worker", "bug")),
        "longest standstill of a lane s": max((one.lasted_s for judgement in of for one in judgement.standstills), default=None),
        "partitions of killed workers": sum(len(judgement.takeovers) for judgement in of),
        "kill -> next completion p50 s": percentile(completed, 0.5),
        "kill -> next completion p99 s": percentile(completed, 0.99),
        "kill -> next completion max s": max(completed, default=None),
        "kill -> visible p50 s": percentile(visible, 0.5),
        "kill -> visible p99 s": percentile(visible, 0.99),
        "kill -> visible max s": max(visible, default=None),
        "request -> reply p50 s": percentile(waits, 0.5),
        "request -> reply p99 s": percentile(waits, 0.99),
        "request -> reply max s": max(waits, default=None),
    }


def _completed(of: Sequence[Judgement]) -> list[float]:
    return [t.completed_s for judgement in of for t in judgement.takeovers if t.completed_s is not None]


def _late(completed: Sequence[float]) -> list[str]:
    """Say by how much takeovers took too long."""
    is_few = len(completed) < TAKEOVERS_FEW
    which, most = ("max", TAKEOVER_MAX_S) if is_few else ("p99", TAKEOVER_P99_S)
    took = percentile(completed, 1.0 if is_few else 0.99) or 0
    return [f"kill -> next completion {which}: {took:.1f} s, more than {most:g} s"] if took > most else []


def _shown(figure: float | None) -> str:
    return "-" if figure is None else str(figure) if isinstance(figure, int) else f"{figure:.2f}"


def _line(finding: Finding, seed: int) -> str:
    when = _shown_time(finding.at) if finding.at else "-"
    return f"seed {seed}, {when}, request {finding.request_id or '-'}: {finding.what}: {finding.text}"


def _shown_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
