"""Bytes by name, for more than memory should hold: a temporary SQLite database, in memory while small, then in a file without a name."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Self


class Spool:
    """Keeps the first bytes that come under a name. Owned by one thread; a context manager, and gone with it."""

    def __init__(self) -> None:
        # An empty name is a temporary database: SQLite moves it to a file of its own when its cache is full, and removes it at the end.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("CREATE TABLE spool (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()

    def keep(self, name: str, content: bytes) -> None:
        """Keep some bytes, unless there are some of that name."""
        self._database.execute("INSERT OR IGNORE INTO spool VALUES (?, ?)", (name, content))

    def get(self, name: str) -> bytes | None:
        """Give the bytes of a name; None where there are none."""
        row = self._database.execute("SELECT content FROM spool WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])
