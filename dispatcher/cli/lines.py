"""Lines of a file or a pipe, numbered, each bounded, and with a sign where the next may take its time."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import FileIO

from dispatcher.errors import ConfigError

CHUNK_BYTES = 64 * 1024
# A record of the largest topic (8 MiB) in base64, and its headers.
LINE_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `content` is None where it is over the limit, and then what it held is gone."""

    number: int
    content: bytes | None


def open_input(path: str) -> FileIO:
    """Open a file, or stdin for `-`. Raises ConfigError."""
    try:
        return FileIO(os.dup(sys.stdin.fileno()) if path == "-" else path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "name a file that is there and may be read, or - for stdin") from None


def read_input(path: str, limit_bytes: int) -> bytes:
    """Read a whole file, or stdin for `-`, of at most `limit_bytes`. Raises ConfigError."""
    content = b""
    with closing(open_input(path)) as stream:
        while piece := _read(stream, path):
            content += piece
            if len(content) > limit_bytes:
                raise ConfigError(f"{'stdin' if path == '-' else path} is over {limit_bytes} bytes", "pass large content by reference")
    return content


def lines_of(path: str) -> Iterator[Line | None]:
    """Yield the lines that are not empty. None means that the next read may wait, so that the caller can finish what is open first."""
    number, begun, too_long = 1, bytearray(), False
    with closing(open_input(path)) as stream:
        while True:
            if not select.select([stream], [], [], 0)[0]:
                yield None
            piece = _read(stream, path)
            *ended, rest = piece.split(b"\n")
            for end in ended:
                yield from _line(number, begun + end, too_long=too_long)
                number, begun, too_long = number + 1, bytearray(), False
            begun += rest
            if len(begun) > LINE_MAX_BYTES:
                begun, too_long = bytearray(), True
            if not piece:
                yield from _line(number, begun, too_long=too_long)
                return


def _line(number: int, content: bytearray, *, too_long: bool) -> Iterator[Line]:
    if too_long or len(content) > LINE_MAX_BYTES:
        yield Line(number, None)
    elif content.strip():
        yield Line(number, bytes(content))


def _read(stream: FileIO, path: str) -> bytes:
    try:
        return stream.read(CHUNK_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
