"""What can be told of a record by its headers alone, for lists and filters. The first of several headers of a name counts."""

from __future__ import annotations

import re

from dispatcher.core import dead_letter
from dispatcher.core.record import Record

# The id of a request without `ce_id`: its position, and in the full form the beginning of its topic's id.
_POSITION_ID = re.compile(r"(.+/[0-9]+/[0-9]+)(?:@.{8})?")


def header(record: Record, name: str) -> str | None:
    """Return a header as text, odd bytes replaced; None where it is missing or has no value."""
    for found, content in record.headers or ():
        if found == name:
            return None if content is None else content.decode("utf-8", "replace")
    return None


def error_header(letter: Record, name: str) -> str | None:
    """Return one of a dead letter's error headers by the last part of its name."""
    return header(letter, dead_letter.PREFIX + name)


def request_id(request: Record) -> str:
    """Name a request: its `ce_id`, else its position."""
    return header(request, "ce_id") or f"{request.topic}/{request.partition}/{request.offset}"


def answered_id(reply: Record) -> str:
    """Name the request that a reply answers; empty for what is no reply."""
    return header(reply, "ce_causationid") or ""


def reply_names(reply: Record) -> tuple[str, ...]:
    """Give every name that the answered request has: its id, and its position with and without its topic's id. Empty for no reply."""
    of, _, kind = (header(reply, "ce_id") or "").rpartition("/")
    names = [answered_id(reply)] + ([of, of.rpartition("@")[0]] if kind == "reply" else [])
    return tuple(dict.fromkeys(name for name in names if name))


def dead_id(letter: Record) -> str:
    """Name the request in a dead letter: its `ce_id`, else the position where it stood."""
    place = (error_header(letter, name) or "" for name in ("topic", "partition", "offset"))
    return header(letter, "ce_id") or "/".join(place)


def same_request(wanted: str, found: str) -> bool:
    """Tell whether two ids name one request; where one is a position with its topic's id and the other without, the position decides."""
    if wanted == found:
        return True
    ours, theirs = _POSITION_ID.fullmatch(wanted), _POSITION_ID.fullmatch(found)
    if ours is None or theirs is None:
        return False
    return ours[1] == theirs[1] and ("@" not in wanted or "@" not in found)
