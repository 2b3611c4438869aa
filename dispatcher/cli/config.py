"""`dispatcher config show|check`: what is in force and where it came from; whether a worker could start with it."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import typer

from dispatcher.cli.app import Options

if TYPE_CHECKING:
    from dispatcher.adapters.config import Shown
    from dispatcher.settings import Settings

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Show and check the configuration.", no_args_is_help=True)
    group.command("show")(_show)
    group.command("check")(_check)
    app.add_typer(group, name="config")


def _show(ctx: typer.Context) -> None:
    """Print the settings in force, each with its source: TOML, or one object with --json. Secrets are masked."""
    from dispatcher.adapters.config import describe  # `version` and `--help` need no pydantic

    options: Options = ctx.obj
    rows = describe(options.loaded())
    if options.json:
        typer.echo(json.dumps({row.dotted: {"value": row.value, "source": row.source} for row in rows}, ensure_ascii=False))
        return
    typer.echo(_toml(rows))


def _toml(rows: list[Shown]) -> str:
    """Write the rows as TOML; a setting without a value stands in a comment, since TOML has no null."""
    lines: list[str] = []
    table: tuple[str, ...] = ()
    for row in rows:
        if row.table != table:
            table = row.table
            lines += ["", f"[{'.'.join(map(_key, table))}]"]
        source = row.source.translate({ord(c): " " for c in "\r\n"})
        if row.value is None:
            lines.append(f"# {_key(row.name)} is not set")
        else:
            lines.append(f"{_key(row.name)} = {_value(row.value)}  # {source}")
    return "\n".join(lines).lstrip("\n")


def _key(name: str) -> str:
    """Quote a name that TOML would take apart."""
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:  # noqa: ANN401 - a setting's value
    """Write a value: JSON's spelling is TOML's too, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check(ctx: typer.Context) -> None:
    """Check all that can be checked without Kafka: names, types, limits, secrets, and every property against the Kafka client."""
    from dispatcher.adapters.config import resolve_secrets  # as above
    from dispatcher.adapters.prices import open_price_list

    options: Options = ctx.obj
    settings = options.settings()
    resolve_secrets(settings, os.environ)
    _check_clients(settings)
    open_price_list(settings)
    warnings = _warnings(settings)
    if options.json:
        typer.echo(json.dumps({"ok": True, "warnings": warnings}))
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if not options.quiet:
        typer.echo("the configuration is usable")


def _check_clients(settings: Settings) -> None:
    """Make one client of each kind, as the worker does. Whether Kafka answers is not asked: nothing waits for it."""
    from dispatcher.adapters.kafka import clients  # as above

    clients.admin(settings)
    clients.producer(settings, transactional_id=f"{settings.worker.group}-check")
    clients.consumer(settings, group=settings.worker.group).close()


def _warnings(settings: Settings) -> list[str]:
    """Name what is allowed and may surprise."""
    found = [
        f"upstreams.{alias}.call_timeout_s ({upstream.call_timeout_s:g}) is longer than worker.drain_s ({settings.worker.drain_s:g}): "
        "when its partition moves, such a call is cut off, and made again by the next owner if it may be"
        for alias, upstream in settings.upstreams.items()
        if upstream.call_timeout_s > settings.worker.drain_s
    ]
    found += [
        f"upstreams.{alias}.base_url is a loopback or private address, which calls reach with upstreams.{alias}.allow_private = true only"
        for alias, upstream in settings.upstreams.items()
        if not upstream.allow_private and _names_private_address(upstream.base_url)
    ]
    if not settings.upstreams:
        found.append("no [upstreams.NAME] is configured: every request will end as unknown_upstream")
    used = {alias for upstream in settings.upstreams.values() for alias in upstream.credentials}
    found += [f"credentials.{alias} is used by no upstream" for alias in settings.credentials if alias not in used]
    return found


def _names_private_address(url: str) -> bool:
    """Tell it of literal addresses and of localhost; what other names stand for, only the worker's resolver knows."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    from dispatcher.adapters.http.addresses import is_private

    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return is_private(host)
