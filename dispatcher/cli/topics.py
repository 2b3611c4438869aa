"""`dispatcher topics init|check`: create what is missing, and say what is not as the settings want it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options
from dispatcher.core.progress.strand import number_of, source_of
from dispatcher.errors import CallFailed

if TYPE_CHECKING:
    from dispatcher.adapters.kafka.admin import Difference
    from dispatcher.adapters.kafka.starts import InitReport

# A cluster that answers does so in milliseconds; one that is electing leaders needs some seconds.
_TIMEOUT_S = 30.0


class Edge(StrEnum):
    """Where partitions without a position are to be started."""

    earliest = "earliest"
    latest = "latest"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Create and check the topics.", no_args_is_help=True)
    group.command("init")(_init)
    group.command("check")(_check)
    app.add_typer(group, name="topics")


def _init(
    ctx: typer.Context,
    fill_gaps: Annotated[
        Edge | None,
        typer.Option(
            "--fill-gaps",
            help="Start partitions without a position at their earliest or latest record, where others have one or requests were answered.",
        ),
    ] = None,
) -> None:
    """Create missing topics and the group's start positions. Existing topics are compared, not changed; safe to repeat.

    Exit code 1 when an existing topic differs from the settings, 5 when positions would have to be guessed.
    """
    from dispatcher.adapters.kafka.starts import init_topics

    options: Options = ctx.obj
    report = init_topics(options.settings(), options.timeout_s or _TIMEOUT_S, None if fill_gaps is None else fill_gaps.value)
    _print(_init_objects(report) if options.json else _init_lines(report))
    _end(report.differences)


def _check(ctx: typer.Context) -> None:
    """List what is not as `topics init` would make it. Exit code 1 when there is anything."""
    from dispatcher.adapters.kafka.starts import check_topics
    from dispatcher.adapters.kafka.unread import check_unread

    options: Options = ctx.obj
    settings, timeout_s = options.settings(), options.timeout_s or _TIMEOUT_S
    found = check_topics(settings, timeout_s) + check_unread(settings, timeout_s)
    if options.json:
        _print(json.dumps(asdict(difference)) for difference in found)
    else:
        _print(_table(found) or ["topics are as configured"])
    _end(found)


def _init_lines(report: InitReport) -> list[str]:
    """Write the report for people."""
    lines = [f"{name}  created" for name in report.created] + [f"{name}  exists" for name in report.existing]
    lines.append(_positions(report))
    return lines + _table(report.differences)


def _positions(report: InitReport) -> str:
    """Say what became of the start positions."""
    if report.started:
        return f"start positions of group {report.group}: committed for {len(report.started)} partitions"
    running = " (it is running)" if report.group_active else ""
    return f"start positions of group {report.group}: there already, not touched{running}"


def _named(report: InitReport, strand: int) -> str:
    """A partition of the only request topic by its number, one of several with its topic."""
    number, topics = number_of(strand), report.topics
    return f"{topics[source_of(strand)]}/{number}" if len(topics) > 1 else str(number)


def _init_objects(report: InitReport) -> list[str]:
    """Write the report for programs, one object a line."""
    lines = [json.dumps({"topic": name, "created": name in report.created}) for name in (*report.created, *report.existing)]
    started = {_named(report, strand): offset for strand, offset in sorted(report.started.items())}
    lines.append(json.dumps({"group": report.group, "started": started, "active": report.group_active}))
    return lines + [json.dumps(asdict(difference)) for difference in report.differences]


def _table(found: Iterable[Difference]) -> list[str]:
    """Write differences in columns; empty when there are none."""
    rows = [(d.topic, d.what, d.found, d.wanted) for d in found]
    if not rows:
        return []
    rows.insert(0, ("TOPIC", "WHAT", "FOUND", "WANTED"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _print(lines: Iterable[str]) -> None:
    """Print lines as data."""
    for line in lines:
        typer.echo(line)


def _end(found: Iterable[Difference]) -> None:
    """End with 1 where something differs: a script must not start workers on it."""
    if any(True for _ in found):
        raise typer.Exit(CallFailed.exit_code)
