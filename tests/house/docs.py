"""Rules over documents, locks and tracked files: what they name must exist, and what only one machine has must not stand in them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client import CollectorRegistry
from typer.core import TyperCommand, TyperGroup, TyperOption

Command = TyperCommand | TyperGroup

FENCE = re.compile(r"^ *```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
SHELLS = frozenset({"", "bash", "console", "sh", "shell"})
METRIC = re.compile(r"\bdispatcher_[a-z0-9_]+\b")
MACHINE_PATH = re.compile(r"(?<![\w.}/-])/(?:work/\w|root/|tmp/w/|home/[a-z]+/|Users/[A-Za-z]+/)")
REGISTRY_HOST = re.compile(r"\b(?:py[p]i\.org|python[h]osted\.org|repo1?\.mave[n]\.|registry\.np[m]js|prox[y]\.golang)", re.IGNORECASE)

# The metrics that users may build on; another one is added here and to the documents together.
METRICS = frozenset(
    {
        "dispatcher_requests_total",
        "dispatcher_call_duration_seconds",
        "dispatcher_queue_wait_seconds",
        "dispatcher_lane_lag_records",
        "dispatcher_lane_oldest_age_seconds",
        "dispatcher_lane_inflight",
        "dispatcher_lane_state",
        "dispatcher_blocked_behind_other_keys_seconds_total",
        "dispatcher_retries_total",
        "dispatcher_throttled_total",
        "dispatcher_timeouts_total",
        "dispatcher_dead_letters_total",
        "dispatcher_breaker_state",
        "dispatcher_breaker_opens_total",
        "dispatcher_limiter_wait_seconds",
        "dispatcher_limit_share",
        "dispatcher_tokens_total",
        "dispatcher_cost_usd_total",
        "dispatcher_cost_savings_usd_total",
        "dispatcher_price_unknown_total",
        "dispatcher_wrong_partition_total",
        "dispatcher_gaps_total",
        "dispatcher_gap_offsets_total",
        "dispatcher_parked_records",
        "dispatcher_duplicates_total",
        "dispatcher_dedup_entries",
        "dispatcher_dedup_dropped_total",
        "dispatcher_parked_lost_total",
        "dispatcher_parkings_total",
        "dispatcher_commit_map_ranges",
        "dispatcher_commit_map_full_total",
        "dispatcher_rebalances_total",
        "dispatcher_publish_failures_total",
        "dispatcher_outbox_depth",
        "dispatcher_last_progress_timestamp_seconds",
        "dispatcher_build_info",
    }
)


def command_of(found: object) -> Command:
    """`found`, which typer built, as a type that the checks below can read."""
    assert isinstance(found, TyperCommand | TyperGroup), f"{found!r} was not made by typer"
    return found


def unknown_commands(path: str, text: str, command: Command) -> list[str]:
    """`dispatcher ...` in a document that the command line would not take: a verb or an option that does not exist."""
    return [
        f"{path}: `{' '.join(words)}`: {fault}"
        for words in _commands(text, "dispatcher")
        for alternative in _alternatives(words[1:])
        if (fault := _command_fault(alternative, command))
    ]


def unknown_targets(path: str, text: str, makefile: str) -> list[str]:
    """`make ...` in a document that names no target of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    return [
        f"{path}: make {target} does not exist"
        for words in _commands(text, "make")
        for target in words[1:]
        if "=" not in target and not target.startswith("-") and target not in targets
    ]


def unhelpful_targets(path: str, makefile: str) -> list[str]:
    """Phony targets that `make help` would not show."""
    shown = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE) for name in line.split()}
    return [f"{path}: {name} has no ## sentence" for name in sorted(phony - shown)]


def unknown_metrics(path: str, text: str, defined: Iterable[str]) -> list[str]:
    """Metrics named in a document that the code does not define, or that are not in the public list."""
    faults = []
    for name in sorted({_series(found) for found in METRIC.findall(text)}):
        if name not in set(defined):
            faults.append(f"{path}: {name} is not defined")
        elif name not in METRICS:
            faults.append(f"{path}: {name} is not in the public list")
    return faults


def defined_metrics(registry: CollectorRegistry) -> set[str]:
    """Names of the metrics that `registry` serves; prometheus-client keeps a counter's name without the `_total` that it serves."""
    return {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}


def machine_traces(path: str, text: str) -> list[str]:
    """Paths of one person's machine and hosts of package registries: the first exist nowhere else, the second are the user's choice."""
    return [
        f"{path}:{number}: {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in (MACHINE_PATH, REGISTRY_HOST)
        if (found := pattern.search(line))
    ]


def lock_faults(path: str, lock: str, pyproject: str, extras: Iterable[str], *, alone: bool = False) -> list[str]:
    """Where a lock does not hold what pyproject.toml asks for, pins something without a hash, or names an address.

    `alone`: it is to hold the extras alone, for it goes on top of another lock.
    """
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    faults = [f"{path}: {line.strip()}" for line in lock.splitlines() if "://" in line or line.startswith("-")]
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock)
    faults += [f"{path}: {entry.split()[0]} has no hash" for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    for requirement in _requirements(tomllib.loads(pyproject), extras, alone=alone):
        version = pins.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            faults.append(f"{path}: {requirement} is not met (locked: {version}): make lock")
    return faults


def _requirements(project: dict[str, Any], extras: Iterable[str], *, alone: bool) -> Iterator[Requirement]:
    table = project["project"]
    wanted = [] if alone else [*table["dependencies"], *project["dependency-groups"]["build"]]
    for extra in extras:
        wanted += table["optional-dependencies"][extra]
    yield from (requirement for requirement in map(Requirement, wanted) if requirement.name != table["name"])


def _series(name: str) -> str:
    return re.sub(r"_(bucket|count|sum|created)$", "", name)


def _commands(text: str, program: str) -> Iterator[list[str]]:
    """Command lines of `program` in a document: in inline code, and at the start of a line in shell blocks."""
    lines: list[str] = []
    for block in FENCE.finditer(text):
        if block["language"] in SHELLS:
            lines += block["body"].replace("\\\n", " ").splitlines()
    lines += SPAN.findall(FENCE.sub("", text))
    for line in lines:
        for part in re.split(r"\s(?:&&|;|\|)\s", line):
            words = _words(part)
            if len(words) > 1 and words[0].rpartition("/")[2] == program:
                yield words


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    except ValueError:  # prose with an apostrophe
        return []
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return words


def _alternatives(words: list[str]) -> Iterator[list[str]]:
    """`topics init|check` stands for two command lines; only the words before the first option are split."""
    for position, word in enumerate(words):
        if "|" in word and re.fullmatch(r"[a-z|-]+", word):
            for choice in word.split("|"):
                yield [*words[:position], choice, *words[position + 1 :]]
            return
    yield words


def _command_fault(words: list[str], command: Command) -> str:
    """Why `command` does not take `words`; empty if it may."""
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word in {"...", "…", "-h", "--help"} or not re.match(r"[A-Za-z0-9-]", word):
            continue
        if word.startswith("-") and len(word) > 1:
            name = word.partition("=")[0]
            option = next((p for p in command.params if isinstance(p, TyperOption) and name in (*p.opts, *p.secondary_opts)), None)
            if option is None:
                return f"{command.name} has no option {name}"
            if not option.is_flag and not option.count and "=" not in word:
                remaining = remaining[1:]
        elif isinstance(command, TyperGroup):
            if word not in command.commands:
                return f"{command.name} has no command {word}"
            command = command_of(command.commands[word])
    return ""
