"""Turning what a library read into an answer: the same bytes give the same headers whichever library read them."""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.messages.call import HeaderPairs


def header_pairs(raw: Iterable[tuple[bytes, bytes]]) -> HeaderPairs:
    """Decode headers in the callee's order, duplicates kept: names in lower case, values as UTF-8, else as latin-1."""
    return tuple((name.decode("latin-1").lower(), _text(value)) for name, value in raw)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
