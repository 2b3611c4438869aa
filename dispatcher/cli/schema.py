"""`dispatcher schema export`: the schemas of the messages, as this version reads and writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from dispatcher.cli.app import Options
from dispatcher.cli.rows import say
from dispatcher.errors import ConfigError

# What stands in schemas/ as YAML is written as JSON here, which AsyncAPI knows as well.
_FILES = {"request": "request.schema.json", "reply": "reply.schema.json", "asyncapi": "asyncapi.json"}


def register(app: typer.Typer) -> None:
    """Add the group and its command."""
    group = typer.Typer(help="The schemas of the messages.", no_args_is_help=True)
    group.command("export")(_export)
    app.add_typer(group, name="schema")


def _export(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="Write a file for each; without it they are printed.")] = None,
) -> None:
    """Write the JSON Schemas of requests and replies and the AsyncAPI document into DIR, or print them as one JSON object by name."""
    from dispatcher.core.messages.schema import PUBLISHED, text

    options: Options = ctx.obj
    if folder is None:
        indent = 0 if options.json else orjson.OPT_INDENT_2
        say(orjson.dumps({name: orjson.loads(text(name)) for name in PUBLISHED}, option=indent))
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in PUBLISHED:
            path = folder / _FILES.get(name, f"{name}.json")
            path.write_text(text(name), encoding="utf-8")
            say(str(path))
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}", "name a folder that may be written") from None
