"""`dispatcher demo`: the main job on real input, from nothing to a table whose numbers add up."""

from __future__ import annotations

import dataclasses
import json
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options

if TYPE_CHECKING:
    from dispatcher.demo.play import Played
    from dispatcher.demo.tally import Tally


class Ordering(StrEnum):
    """What is a lane."""

    PARTITION = "partition"
    KEY = "key"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(_demo)


def _demo(
    ctx: typer.Context,
    requests: Annotated[int, typer.Option(min=1, help="How many requests of the trace are sent.")] = 1500,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="How many times faster than recorded, arrivals and upstream.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of who sends what.")] = 1,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Another trace of the AzurePublicDataset.")] = None,
    ordering: Annotated[Ordering, typer.Option(help="What is a lane: a partition, or each key of it.")] = Ordering.PARTITION,
) -> None:
    """Run 1,500 real requests and some awkward ones through broker, worker and sample upstream, and add up."""
    from dispatcher.demo.play import TRACE, Playbill, play
    from dispatcher.demo.show import Show
    from dispatcher.errors import CallFailed

    options: Options = ctx.obj
    bill = Playbill(options.given_kafka(), trace or TRACE, requests, speed, seed, ordering.value)
    signal.signal(signal.SIGTERM, options.interrupt)  # as Ctrl-C: children are ended in order
    with Show(quiet=options.quiet, color=options.color) as show:
        played = play(bill, show)
        tally, config = played.tally, played.config
        if options.json:
            typer.echo(json.dumps(dataclasses.asdict(tally)))
        else:
            show.report(tally)
    if tally.faults:
        raise CallFailed(_sentence(tally), f"logs and configuration: {config.parent}")
    if not options.json:
        _print_way_around(played)


def _sentence(tally: Tally) -> str:
    return "the numbers do not add up:" + "".join(f"\n  - {fault}" for fault in tally.faults)


def _print_way_around(played: Played) -> None:
    from dispatcher.demo.play import around

    typer.echo("Every request has exactly one reply, every lane was in order.", nl=False)
    if played.broker == "mock":  # it ended with its records: there is nothing left to look at
        typer.echo(" That was on a mock cluster (see the warning above).")
        return
    typer.echo(" Look around:")
    for command, shows in around(played.config, broker_is_ours=played.broker == "ours"):
        typer.echo(f"  {command}   # {shows}")
