"""Records as rows: one line each that a terminal can hold, with what a person looks for first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Self, cast

import pytest

from dispatcher.cli.app import Options
from dispatcher.cli.dlq import LETTER
from dispatcher.cli.replies import REPLY, REQUEST, Table, show
from dispatcher.cli.rows import key_word
from dispatcher.client import Search
from dispatcher.core.messages.record import Record

OURS = (
    ("ce_id", b"r"),
    ("ce_causationid", b"r-1"),
    ("ce_time", b"2026-11-29T10:00:00Z"),
    ("content-type", b"application/json"),
    ("dispatcher-status", b"error"),
    ("dispatcher-duration-ms", b"12"),
    ("dispatcher-http-status", b"404"),
)
RECORD = Record("t", 3, 7, b"doc:1", b'{"upstream": "crm", "path": "/x"}', (*OURS, ("traceparent", b"00-1")), 0)


class Found:
    """A search that has found these."""

    def __init__(self, *records: Record, searched: dict[int, tuple[int, int]] | None = None) -> None:
        self.records = records
        self.searched = searched or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


def shown(found: Found, table: Table = REPLY, **options: int) -> None:
    """Show it."""
    show(cast("Search", found), Options(**options), table, None)  # type: ignore[arg-type] # flags are numbers here


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (REPLY, "3/7 1970-01-01T00:00:00.000Z doc:1 error 404 12ms r-1 - [traceparent=00-1]\n"),
        (REQUEST, "3/7 1970-01-01T00:00:00.000Z doc:1 POST crm /x r [traceparent=00-1]\n"),
    ],
)
def test_a_row_shows_foreign_headers_and_with_v_all(table: Table, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the columns tell is not told twice; -v leaves nothing out."""
    shown(Found(RECORD), table)
    assert capsys.readouterr() == (row, "")
    shown(Found(RECORD), table, verbose=1)
    whole = capsys.readouterr().out
    assert all(f"{name}={content.decode()}" in whole for name, content in (*OURS, ("traceparent", b"00-1")))


def test_without_foreign_headers_there_is_no_such_column(capsys: pytest.CaptureFixture[str]) -> None:
    """A row ends where there is no more to say; headers that cannot be read are said to be so."""
    shown(Found(Record("t", 3, 7, None, None, OURS), Record("t", 3, 8, None, None, None)))
    assert capsys.readouterr().out == "3/7 - - error 404 12ms r-1 -\n3/8 - - - - - - - [unreadable]\n"


def test_columns_are_named_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, on stderr, since stdout is data; not with -q, --json or on a pipe, and not above nothing."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown(Found(RECORD, RECORD))
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (2, "PLACE TIME KEY STATUS HTTP DURATION REQUEST REASON [HEADERS]\n")
    shown(Found(RECORD), quiet=1)
    shown(Found(RECORD), json=1)
    assert capsys.readouterr().err == ""
    shown(Found())
    assert "PLACE" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("searched", "verbose", "words"),
    [
        ({0: (0, 4), 1: (2, 2), 2: (0, 0)}, 0, "0/0..4, 2 empty partitions"),
        ({0: (0, 0)}, 0, "1 empty partition"),
        ({0: (0, 4), 1: (2, 2)}, 1, "0/0..4, 1/2..2"),
        ({}, 0, "nothing"),
    ],
)
def test_nothing_found_says_where_was_looked(
    searched: dict[int, tuple[int, int]], verbose: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partitions with nothing in them are counted; -v names each."""
    shown(Found(searched=searched), verbose=verbose)
    assert capsys.readouterr() == ("", f"note: nothing found; searched {words}\n")


@pytest.mark.parametrize(
    ("key", "cell"),
    [
        (b"k" * 64, "k" * 64),
        (b"k" * 65, "k" * 63 + "…"),
        ("k" * 1024, "k" * 63 + "…"),
        (b"\xff" * 600, "base64:" + "/" * 56 + "…"),
        ({"base64": "/" * 800}, "base64:" + "/" * 56 + "…"),
        (None, "-"),
    ],
)
def test_a_long_key_leaves_room_for_the_rest_of_its_row(key: bytes | str | dict[str, str] | None, cell: str) -> None:
    """Of text and of what is no text; and whoever wants it whole gets it."""
    assert cell == key_word(key)
    assert (cell == key_word(key, whole=True)) == (not cell.endswith("…"))


@pytest.mark.parametrize("table", [REPLY, REQUEST, LETTER])
def test_rows_show_long_keys_whole_with_v_alone(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """A key of a kilobyte would push everything else out of sight."""
    key = b"k" * 1024
    shown(Found(Record("t", 3, 7, key, b"{}", OURS, 0)), table)
    assert key.decode() not in (row := capsys.readouterr().out)
    assert "k" * 63 + "…" in row
    shown(Found(Record("t", 3, 7, key, b"{}", OURS, 0)), table, verbose=1)
    assert key.decode() in capsys.readouterr().out
