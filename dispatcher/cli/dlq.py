"""`dispatcher dlq list` and `dlq show`: what could not succeed, and why."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options
from dispatcher.cli.replies import Key, Most, Partitions, Table, partition_numbers, show
from dispatcher.cli.rows import key_word, moment, place, say, word
from dispatcher.core.durations import parse_duration
from dispatcher.errors import CallFailed, ConfigError

if TYPE_CHECKING:
    from dispatcher.core.messages.record import Record
    from dispatcher.core.operations.positions import Position

# What stands where a value is not text: a person sees that there is more, `--json` has it all.
_SHOWN_BYTES = 4096


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(help="Dead letters: requests that could not succeed, and why.", no_args_is_help=True)
    group.command("list")(_list)
    group.command("show")(_show)
    app.add_typer(group, name="dlq")


def _list(
    ctx: typer.Context,
    reason: Annotated[str | None, typer.Option("--reason", help="Only letters of this reason.")] = None,
    key: Key = None,
    since: Annotated[str | None, typer.Option("--since", metavar="24h|@TIME", help="Only letters of this time or later.")] = None,
    request_id: Annotated[str | None, typer.Option("--id", help="Only this request.")] = None,
    partitions: Partitions = None,
    count: Most = None,
) -> None:
    """List the dead letters that are there: place, time, reason, key, message, stage and attempts."""
    from dispatcher import client
    from dispatcher.core.operations.positions import START, Span

    options: Options = ctx.obj
    query = client.Query(
        Span(START if since is None else _since(since)),
        partition_numbers(partitions),
        until_end=True,
        key=key,
        request_id=request_id,
        reason=_reason(reason),
    )
    show(client.dead_letters(options.settings(), query, timeout_s=options.timeout_s), options, LETTER, count)


def _show(
    ctx: typer.Context,
    at: Annotated[str, typer.Argument(metavar="P/O", help="Place of the letter, as `dlq list` shows it: partition/offset.")],
) -> None:
    """Show one dead letter whole: why it is here, and the original record."""
    from dispatcher import client
    from dispatcher.core.messages.record_json import record_line
    from dispatcher.core.operations.positions import NUMBER_MAX, Anchor, Position, Span

    options: Options = ctx.obj
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,19})", at)
    if match is None or int(match[2]) >= NUMBER_MAX:
        raise ConfigError(f"{word(at[:64])} is not partition/offset", "for example 3/17, as `dispatcher dlq list` shows it")
    span = Span(Position(Anchor.OFFSET, int(match[2])), Position(Anchor.OFFSET, int(match[2]) + 1))
    query = client.Query(span, (int(match[1]),), until_end=True)
    with client.dead_letters(options.settings(), query, timeout_s=options.timeout_s) as search:
        letter = next(iter(search), None)
    if letter is None:
        raise CallFailed(f"there is no dead letter at {at}", "`dispatcher dlq list` shows those that are there")
    say(record_line(letter) if options.json else _whole(letter))


def _since(text: str) -> Position:
    """Read `24h` or an absolute `@` time. Raises ConfigError."""
    from dispatcher.core.operations.positions import Anchor, Position, parse_position

    now = datetime.now(UTC)
    if text.startswith("@"):
        return parse_position(text, now)
    try:
        return Position(Anchor.TIME, max(0, int((now.timestamp() - parse_duration(text)) * 1000)))
    except ValueError as error:
        raise ConfigError(f"--since: {error}", "for example --since 24h") from None


def _reason(text: str | None) -> str | None:
    """Check a reason against the closed list: a mistyped one would find nothing and look like good news."""
    from dispatcher.core.messages.status import Reason

    known = sorted({reason.value for reason in Reason} - {Reason.REPLY_TOO_LARGE.value})
    if text is not None and text not in known:
        raise ConfigError(f"{word(text[:64])} is not a reason of dead letters", f"one of {', '.join(known)}")
    return text


def _row(letter: Record, whole: bool) -> str:
    from dispatcher.core.messages.glance import error_header

    columns = [place(letter), moment(letter.timestamp_ms), word(error_header(letter, "reason")), key_word(letter.key, whole=whole)]
    columns += [word(error_header(letter, name)) for name in ("message", "stage", "delivery.count")]
    return " ".join(columns)


LETTER = Table("PLACE TIME REASON KEY MESSAGE STAGE ATTEMPTS", _row)


def _whole(letter: Record) -> str:
    """Show a letter for reading: why, where from, the original's headers, the original's value."""
    from dispatcher.core.messages import dead_letter
    from dispatcher.core.messages.glance import dead_id, error_header, number

    known = {name: error_header(letter, name) for name in ("topic", "partition", "offset", "timestamp")}
    facts = {
        "reason": word(error_header(letter, "reason")),
        "message": word(error_header(letter, "message")),
        "stage": word(error_header(letter, "stage")),
        "error": word(error_header(letter, "exception.class.name")),
        "http status": word(error_header(letter, "http.status")),
        "upstream": word(error_header(letter, "upstream")),
        "attempts": word(error_header(letter, "delivery.count")),
        "group": word(error_header(letter, "group")),
        "request": word(dead_id(letter)),
        "from": f"{word(known['topic'])}/{word(known['partition'])}/{word(known['offset'])}",
        "sent": moment(number(known["timestamp"])),
        "dead since": moment(letter.timestamp_ms),
        "key": word(letter.key),
    }
    original = [h for h in letter.headers or () if not h[0].startswith(dead_letter.PREFIX) and h[0] != dead_letter.ORIGINAL_TOPIC]
    lines = [f"{name:12} {value}" for name, value in facts.items()]
    lines += [f"{'header':12} {word(name)}: {word(content)}" for name, content in original]
    return "\n".join([*lines, "", _value(letter.value)])


def _value(value: bytes | None) -> str:
    """Show the value as it stands where it is text; what could move the cursor is escaped."""
    if value is None:
        return "(no value)"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        more = "" if len(value) <= _SHOWN_BYTES else f" … ({len(value)} bytes; --json has all)"
        return f"not text: {value[:_SHOWN_BYTES].hex(' ')}{more}"
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
