"""What has to be known of a request before its turn, as its record says it: when it expires, and how urgent it is."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from dispatcher.core.instant import rfc3339_s
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import PRIORITY_MAX, PRIORITY_USUAL


class Foresight(NamedTuple):
    """`deadline` in seconds since 1970, None where it names no time; `priority` as the request's, the usual one where it names none."""

    deadline: float | None = None
    priority: int = PRIORITY_USUAL


NOTHING = Foresight()
_DEADLINE = (b'"deadline"',)
_ALL = (*_DEADLINE, b'"priority"')


def deadline_of(record: Record) -> float | None:
    """When the request in `record` expires, seconds since 1970; None where it names no time."""
    return foresee(record, _DEADLINE).deadline


def foresee(record: Record, names: tuple[bytes, ...] = _ALL) -> Foresight:
    """What is to be known of `record` before its turn; all of it, or nothing where none of the `names` stands in it.

    Asked of every record that comes, so most are not parsed for it. A name that JSON writes with escapes is not seen: such a request
    expires when its turn comes, as everything does that this function does not know of.
    """
    value = record.value
    if value is None or not any(name in value for name in names):
        return NOTHING
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError:
        return NOTHING
    if not isinstance(fields, dict):
        return NOTHING
    text, priority = fields.get("deadline"), fields.get("priority")
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        priority = PRIORITY_USUAL
    return Foresight(rfc3339_s(text) if isinstance(text, str) else None, priority)
