"""What commands share that only plan until `--execute`: the question before it, and the command that does a plan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import typer

from dispatcher.cli.app import Options
from dispatcher.errors import RefusedError


def confirm(options: Options, count: int, deed: str) -> None:
    """Have a number typed by a person: it is the one thing that they cannot know without having read the plan.

    `deed` says what happens and to how many: `this calls 3 requests again`. RefusedError where nobody said yes.
    """
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise RefusedError(f"{deed}, and nobody was asked", "add -y to do it")
    answer = typer.prompt(f"{deed[:1].upper()}{deed[1:]}. Type their number to do it", default="", show_default=False, err=True)
    if answer.strip() != str(count):
        raise RefusedError("nothing was done: the number was another one", f"type {count}, or add -y")


def command(options: Options, *words: str) -> str:
    """Write the command that does a plan, or goes on with it. What is given by -X may be secret and is left out."""
    before = ["dispatcher"]
    if options.config is not None:
        before += ["--config", str(options.config)]
    if brokers := options.flags.get("kafka.bootstrap_servers"):
        before += ["-b", str(brokers)]
    extra = " and the same -X" if options.properties else ""
    yes = ["-y"] if options.yes else []
    return shlex.join([*before, *words, *yes]) + extra


def counted(count: int, thing: str) -> str:
    """Write a number of things."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Write rows as columns; nothing where there are only headings."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows if len(rows) > 1]
