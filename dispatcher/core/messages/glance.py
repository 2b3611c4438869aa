"""What can be told of a record by its headers alone, for lists and filters. The first of several headers of a name counts."""

from __future__ import annotations

import re

from dispatcher.core.messages import dead_letter
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.record import Record

# The id of a request without `ce_id`: its position, and in the full form the beginning of its topic's id.
_POSITION_ID = re.compile(r"(.+/[0-9]+/[0-9]+)(?:@.{8})?")
# As much as a header may say: no offset and no time has more digits, and Python refuses to read thousands of them.
_NUMBER = re.compile(r"[0-9]{1,18}")


def header(record: Record, name: str) -> str | None:
    """Return a header as text, odd bytes replaced; None where it is missing or has no value."""
    for found, content in record.headers or ():
        if found == name:
            return None if content is None else content.decode("utf-8", "replace")
    return None


def error_header(letter: Record, name: str) -> str | None:
    """Return one of a dead letter's error headers by the last part of its name."""
    return header(letter, dead_letter.PREFIX + name)


def number(text: str | None) -> int | None:
    """Read a whole number as headers have it, at most 18 ASCII digits; None for everything else."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def number_header(record: Record, name: str) -> int | None:
    """Return a header as a whole number; None where it is none."""
    return number(header(record, name))


def request_place(reply: Record) -> tuple[str, int, int] | None:
    """Tell where the answered request stood: topic, partition, offset. None where the reply does not say it as every reply does."""
    topic = header(reply, "dispatcher-request-topic")
    partition, offset = (number_header(reply, f"dispatcher-request-{name}") for name in ("partition", "offset"))
    return None if not topic or partition is None or offset is None else (topic, partition, offset)


def dead_place(letter: Record) -> tuple[str, int, int] | None:
    """Tell where a dead request stood: topic, partition, offset. None where the letter does not say it as every letter does."""
    topic = error_header(letter, "topic")
    partition, offset = (number(error_header(letter, name)) for name in ("partition", "offset"))
    return None if not topic or partition is None or offset is None else (topic, partition, offset)


def request_id(request: Record) -> str:
    """Name a request: its `ce_id`, else its position."""
    return header(request, "ce_id") or f"{request.topic}/{request.partition}/{request.offset}"


def answered_id(reply: Record) -> str:
    """Name the request that a reply answers; empty for what is no reply."""
    return header(reply, "ce_causationid") or ""


def reply_names(reply: Record) -> tuple[str, ...]:
    """Give every name that the answered request has: its id, and its position with its topic's id. Empty for no reply.

    Not the position alone: it is the name of one request in each topic that ever had this name.
    """
    of, _, kind = (header(reply, "ce_id") or "").rpartition("/")
    names = [answered_id(reply)] + ([of] if kind == "reply" else [])
    return tuple(dict.fromkeys(name for name in names if name))


def dead_id(letter: Record) -> str:
    """Name the request in a dead letter: its `ce_id`, else the position where it stood."""
    place = (error_header(letter, name) or "" for name in ("topic", "partition", "offset"))
    return header(letter, "ce_id") or "/".join(place)


def answered_place(reply: Record, topic: str, topic_id: str) -> tuple[int, int] | None:
    """Tell which request of `topic` a reply answers: partition and offset. None for one of another topic that had this name, too."""
    place = request_place(reply)
    if place is None or place[0] != topic or position_id(Record(*place, None, None), topic_id) not in reply_names(reply):
        return None
    return place[1:]


def same_request(wanted: str, found: str) -> bool:
    """Tell whether two ids name one request; where one is a position with its topic's id and the other without, the position decides."""
    if wanted == found:
        return True
    ours, theirs = _POSITION_ID.fullmatch(wanted), _POSITION_ID.fullmatch(found)
    if ours is None or theirs is None:
        return False
    return ours[1] == theirs[1] and ("@" not in wanted or "@" not in found)
