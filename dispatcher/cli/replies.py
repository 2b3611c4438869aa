"""`dispatcher replies` and `dispatcher requests`: what stands in those topics, as it comes or from where one says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.app import Options
from dispatcher.cli.rows import NOTHING, headers, key_word, moment, note, place, say, word
from dispatcher.errors import ConfigError

if TYPE_CHECKING:
    from dispatcher.client import Query, Search
    from dispatcher.core.messages.record import Record

Since = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--offset",
        metavar="FROM[:TO]",
        help="start end N +N -N @2026-11-29T10:00Z @-1h. N counts offsets, and the marks of transactions have some too.",
        show_default="end; start with -e",
    ),
]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Only this lane key.")]
Id = Annotated[str | None, typer.Option("--id", help="Only this request.")]
Partitions = Annotated[str | None, typer.Option("-p", "--partitions", metavar="0,3", help="Only these partitions.")]
Most = Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after so many.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on for ever: the default without -e or TO.")]
End = Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end that is there now.")]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("replies")(_replies)
    app.command("requests")(_requests)


def _replies(
    ctx: typer.Context,
    offset: Since = None,
    key: Key = None,
    request_id: Id = None,
    partitions: Partitions = None,
    count: Most = None,
    follow: Follow = False,
    exit_: End = False,
) -> None:
    """Print replies: place, time, key, status, HTTP status, duration, request id, reason, and the headers that are not ours.

    -v shows all headers and long keys whole, --json the whole record.
    """
    from dispatcher import client

    options: Options = ctx.obj
    query = _query(offset, key, request_id, partitions, follow=follow, until_end=exit_)
    show(client.replies(options.settings(), query, timeout_s=options.timeout_s), options, REPLY, count)


def _requests(
    ctx: typer.Context,
    offset: Since = None,
    key: Key = None,
    request_id: Id = None,
    partitions: Partitions = None,
    count: Most = None,
    follow: Follow = False,
    exit_: End = False,
) -> None:
    """Print requests: place, time, key, method, upstream, path, id, and the headers that are not ours.

    -v shows all headers and long keys whole, --json the whole record, for `submit --jsonl` to take.
    """
    from dispatcher import client

    options: Options = ctx.obj
    query = _query(offset, key, request_id, partitions, follow=follow, until_end=exit_)
    show(client.requests(options.class_settings(), query, timeout_s=options.timeout_s), options, REQUEST, count)


@dataclass(frozen=True, slots=True)
class Table:
    """How records of one topic are shown to people: the names of the columns, and what makes a row of a record and -v."""

    columns: str
    row: Callable[[Record, bool], str]


def show(search: Search, options: Options, table: Table, count: int | None) -> None:
    """Print what a search finds, as it is found; say where was looked when that was nothing.

    Somebody who looks at a terminal also sees what the columns are: on stderr, since stdout is data.
    """
    from dispatcher.core.messages.record_json import record_line

    found, whole = 0, options.verbose > 0
    with search:
        for record in islice(search, count):
            if not found and not options.json and not options.quiet and sys.stdout.isatty():
                note(table.columns)
            found += 1
            say(record_line(record) if options.json else table.row(record, whole))
    if not found and not options.quiet:
        note(f"note: nothing found; searched {_extent(search.searched, whole=whole)}")


def partition_numbers(text: str | None) -> tuple[int, ...] | None:
    """Read `0,3`. Raises ConfigError."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < len("1000000000") for part in parts):
        raise ConfigError(f"{word(text[:64])} is not a list of partitions", "for example -p 0,3")
    return tuple(int(part) for part in parts)


def _query(offset: str | None, key: str | None, request_id: str | None, partitions: str | None, *, follow: bool, until_end: bool) -> Query:
    from dispatcher.client import Query
    from dispatcher.core.operations.positions import END, START, Span, parse_span

    # -e from the end would never print anything.
    span = Span(START if until_end else END) if offset is None else parse_span(offset, datetime.now(UTC))
    if follow and (until_end or span.until is not None):
        raise ConfigError("-f never ends, and -e or TO does", "leave one of them out")
    return Query(span, partition_numbers(partitions), until_end, key, request_id)


def _reply_row(reply: Record, whole: bool) -> str:
    from dispatcher.core.messages.glance import answered_id, header

    fields, took_ms = _fields(reply.value), header(reply, "dispatcher-duration-ms")
    reason = fields.get("reason") or ("duplicate" if fields.get("duplicate") is True else None)
    columns = [place(reply), moment(reply.timestamp_ms), key_word(reply.key, whole=whole), word(header(reply, "dispatcher-status"))]
    columns += [word(header(reply, "dispatcher-http-status")), NOTHING if took_ms is None else f"{word(took_ms)}ms"]
    columns += [word(answered_id(reply) or None), word(reason) if isinstance(reason, str) else NOTHING]
    return " ".join(columns + headers(reply, whole=whole))


def _request_row(request: Record, whole: bool) -> str:
    from dispatcher.core.messages.glance import header

    key, request_id = key_word(request.key, whole=whole), word(header(request, "ce_id"))
    columns = [place(request), moment(request.timestamp_ms), key, _call(request.value), request_id]
    return " ".join(columns + headers(request, whole=whole))


REPLY = Table("PLACE TIME KEY STATUS HTTP DURATION REQUEST REASON [HEADERS]", _reply_row)
REQUEST = Table("PLACE TIME KEY METHOD UPSTREAM PATH ID [HEADERS]", _request_row)


def _call(value: bytes | None) -> str:
    """Show `METHOD upstream path` of a request's value, as far as it has them."""
    fields = _fields(value)
    if fields:
        fields = {"method": "POST", "path": "/"} | fields
    return " ".join(word(fields[name]) if isinstance(fields.get(name), str) else NOTHING for name in ("method", "upstream", "path"))


def _fields(value: bytes | None) -> dict[str, Any]:
    """Read a record's value as far as it is a JSON object."""
    import orjson

    try:
        fields = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _extent(searched: dict[int, tuple[int, int]], *, whole: bool) -> str:
    """Show what was looked at as `partition/first..behind the last`; those with nothing to look at are only counted, unless `whole`."""
    full = [f"{number}/{first}..{behind}" for number, (first, behind) in sorted(searched.items()) if whole or first < behind]
    empty = 0 if whole else len(searched) - len(full)
    if empty:
        full.append(f"{empty} empty partition{'' if empty == 1 else 's'}")
    return ", ".join(full) or "nothing"
