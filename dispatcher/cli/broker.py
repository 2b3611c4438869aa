"""`dispatcher broker up|down|status`: a Kafka of one's own on this machine, for trying things."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options
from dispatcher.errors import BrokerError

if TYPE_CHECKING:
    from dispatcher.adapters.local_broker import Status

_Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where its data, log and configuration are.")]
_DEFAULT = Path(".dispatcher")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Run a local Kafka broker (a given one, Docker, or Kafka's own jars).", no_args_is_help=True)
    group.command("up")(_up)
    group.command("down")(_down)
    group.command("status")(_status)
    app.add_typer(group, name="broker")


def _up(
    ctx: typer.Context,
    directory: _Directory = _DEFAULT,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="Port for clients (9092); 0 takes a free one.")] = None,
) -> None:
    """Start a broker, unless it runs, and print its address. It stays until `broker down`."""
    from dispatcher.adapters.local_broker import ladder

    options: Options = ctx.obj
    broker = ladder(directory, port, say=_notes(options))
    bootstrap = broker.up()
    typer.echo(_object(broker.status()) if options.json else bootstrap)


def _down(ctx: typer.Context, directory: _Directory = _DEFAULT) -> None:
    """Stop the broker of this directory. Its data stays."""
    from dispatcher.adapters.local_broker import started

    options: Options = ctx.obj
    broker = started(directory, say=_notes(options))
    stopped = broker is not None and broker.down()
    if options.json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo("stopped" if stopped else "not running")


def _status(ctx: typer.Context, directory: _Directory = _DEFAULT) -> None:
    """Say whether a broker runs: its address on stdout. Exit code 3 when it does not."""
    from dispatcher.adapters.local_broker import ladder

    options: Options = ctx.obj
    status = ladder(directory, say=_notes(options)).status()
    if options.json:
        typer.echo(_object(status))
    elif status.state == "up":
        typer.echo(status.bootstrap)
    else:
        typer.echo(status.state)
    if status.state != "up":
        raise typer.Exit(BrokerError.exit_code)


def _notes(options: Options) -> Callable[[str], None]:
    """Print progress on stderr, since stdout is data; nothing with --quiet."""

    def say(line: str) -> None:
        if not options.quiet:
            typer.echo(line, err=True)

    return say


def _object(status: Status) -> str:
    """Write a status as one JSON object."""
    return json.dumps(
        {
            "state": status.state,
            "kind": status.kind,
            "bootstrap_servers": status.bootstrap,
            "process": status.process,
            "log": str(status.log) if status.log else None,
        }
    )
