"""`dispatcher dev`: everything that a request needs, in one foreground command."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options

if TYPE_CHECKING:
    from dispatcher.dev import Addresses, Running

# Between two looks whether the children still run.
_LOOK_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dev")(_dev)


def _dev(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where data, logs and configuration are.")] = Path(".dispatcher"),
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The broker's port (9092, or a free one where that is taken).")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Beginning of the topics' names, and the group's name.")] = "dev",
) -> None:
    """Run broker, topics, sample upstream and worker until Ctrl-C, for trying things; prints addresses and commands to try.

    A broker that is named (-b, environment, --config) or that runs already is used and left running; else one is started, and ended with
    the rest. Topics and records stay for the next run. Ctrl-C or SIGTERM lets the call in hand end and exits with 0; a second one, or
    one before all is ready, ends everything at once, with 130.
    """
    from dispatcher.dev import Setup, running

    options: Options = ctx.obj
    given = options.given_kafka()
    signal.signal(signal.SIGTERM, options.interrupt)  # as Ctrl-C: children are ended in order

    def say(line: str) -> None:
        if not options.quiet:
            typer.echo(line, err=True)

    with running(Setup(directory, prefix, given, port, log_here=options.verbose > 0), say) as all_of_it:
        _show(all_of_it.addresses, as_json=options.json)
        _stay(all_of_it, options)


def _stay(all_of_it: Running, options: Options) -> None:
    """Watch the children until a signal comes. It is the usual end, not an interruption."""
    try:
        while True:
            all_of_it.check()
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        options.interrupted = False


def _show(addresses: Addresses, *, as_json: bool) -> None:
    if as_json:
        fields = dataclasses.asdict(addresses) | {"try": [command for command, _ in addresses.to_try()]}
        typer.echo(json.dumps(fields, default=str))
        return
    stays = " (was running, and stays)" if addresses.broker_stays else ""
    typer.echo(f"broker     {addresses.broker}{stays}")
    typer.echo(f"upstream   {addresses.upstream}   calls that it saw: /witness")
    typer.echo(f"worker     {addresses.worker}   /metrics /readyz; log: {addresses.log}")
    typer.echo("Try, in another terminal:")
    for command, does in addresses.to_try():
        typer.echo(f"  {command}   # {does}")
    typer.echo("Ctrl-C ends it.")
