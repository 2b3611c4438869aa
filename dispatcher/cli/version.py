"""`dispatcher version`: what runs here. Without a broker, and without loading more than it must."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

import dispatcher

# The libraries whose version decides how the product behaves.
_LIBRARIES = ("confluent-kafka", "pydantic", "aiohttp")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version")(_version)


def _version(ctx: typer.Context) -> None:
    """Print the versions of the dispatcher, of Python and of the libraries that matter."""
    say_versions(as_json=ctx.obj.json)


def say_versions(*, as_json: bool) -> None:
    """Print them; `--version` does the same."""
    versions = {"dispatcher": dispatcher.__version__, "python": platform.python_version()}
    versions |= {name: _of(name) for name in _LIBRARIES}
    if as_json:
        typer.echo(json.dumps(versions))
        return
    for name, number in versions.items():
        typer.echo(f"{name} {number}")


def _of(distribution: str) -> str:
    """Look a version up without importing the library."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
