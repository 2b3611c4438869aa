"""A worker's stakes in shared limits as a record of its own in the workers topic, told about once a second.

Its key is of one process, and never used again: what a slot's former process may still have in use does not go when it is started anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from dispatcher.core.callees.stakes import Amount, Seconds, Stake, Stakes
from dispatcher.core.messages.record import Message, Record

# No slot has a slash in its name.
PREFIX = "limits/"


@dataclass(frozen=True, slots=True)
class _Content:
    number: Amount
    lease_s: Seconds
    has: bool
    since_s: Seconds
    of: dict[str, Stake]
    v: Literal[1] = 1


_ADAPTER = TypeAdapter(_Content)


def key_of(who: str) -> bytes:
    """The key of what a process tells."""
    return f"{PREFIX}{who}".encode()


def message(stakes: Stakes, topic: str) -> Message:
    """The record to write."""
    content = orjson.dumps(_Content(stakes.number, stakes.lease_s, stakes.has, stakes.since_s, dict(stakes.of)))
    return Message(topic, 0, key_of(stakes.who), content, (("content-type", b"application/json"),))


def ending(who: str, topic: str) -> Message:
    """Nothing is left of what this process had: whoever reads it forgets it, once that is so by its own clock."""
    return Message(topic, 0, key_of(who), None, ())


def read(record: Record) -> Stakes | str | None:
    """What is told in a record of the workers topic; the name alone where all is over; None for what is neither."""
    key = (record.key or b"").decode("utf-8", "replace")
    if not key.startswith(PREFIX):
        return None
    who = key.removeprefix(PREFIX)
    if record.value is None:
        return who
    try:
        content = _ADAPTER.validate_json(record.value)
    except ValidationError:
        return None
    return Stakes(who, content.number, content.lease_s, content.has, content.since_s, content.of)
