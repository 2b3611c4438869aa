"""Records as rows of text for people, and what goes to stdout: data only, one line each, at once."""

from __future__ import annotations

import json
from collections.abc import Mapping

import typer

from dispatcher.core.instant import Instant
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import shown

NOTHING = "-"
# A key may be as long as a record. What a row shows of it leaves room for the rest; `--json` has it whole.
CELL_MAX = 64
# Headers of ours, which the columns of a row already tell.
_TOLD = ("ce_", "dispatcher-", "content-type")


def say(row: str | bytes) -> None:
    """Write one line to stdout, as UTF-8 whatever the locale, and flush it: somebody may be waiting for it."""
    typer.echo(row if isinstance(row, bytes) else row.encode("utf-8", "replace"))


def note(text: str) -> None:
    """Tell the person something that is no data."""
    typer.echo(text, err=True)


def word(raw: bytes | str | None) -> str:
    """Show one value as one word: quoted where it holds a space or a quote, escaped where it could move the cursor."""
    text = shown(raw) if isinstance(raw, bytes) else raw
    if text is None:
        return NOTHING
    if isinstance(text, dict):
        return f"base64:{text['base64']}"
    quoted = json.dumps(text, ensure_ascii=False)
    if text and " " not in text and quoted == f'"{text}"' and text.isprintable():
        return text
    return quoted if text.isprintable() or not text else json.dumps(text)


def key_word(raw: bytes | str | Mapping[str, str] | None, *, whole: bool = False) -> str:
    """Show a lane key as one word, the beginning of a long one unless `whole` is wanted; what is no text as `shown` gives it."""
    text = f"base64:{raw['base64']}" if isinstance(raw, Mapping) else word(raw)
    return text if whole else beginning(text)


def beginning(text: str) -> str:
    """Cut a cell of a row to a length that leaves room for the others."""
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def place(record: Record) -> str:
    """Show where a record stands: partition/offset."""
    return f"{record.partition}/{record.offset}"


def moment(time_ms: int | None) -> str:
    """Show a record's time; a time beyond the calendar as its number."""
    if time_ms is None:
        return NOTHING
    try:
        return Instant(0, time_ms / 1000).rfc3339()
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def headers(record: Record, *, whole: bool) -> list[str]:
    """Show the headers as one more column, `[name=value …]`; values as words, a missing one as `-`. Not `whole`: only those not ours."""
    if record.headers is None:
        return ["[unreadable]"]
    pairs = [f"{word(name)}={word(content)}" for name, content in record.headers if whole or not name.lower().startswith(_TOLD)]
    return [f"[{' '.join(pairs)}]"] if pairs or whole else []
