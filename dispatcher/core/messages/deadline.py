"""When a request expires, as its record says it."""

from __future__ import annotations

import orjson

from dispatcher.core.instant import rfc3339_s
from dispatcher.core.messages.record import Record


def deadline_of(record: Record) -> float | None:
    """When the request in `record` expires, seconds since 1970; None where it names no time.

    Asked of every record that comes, so most are not parsed for it. A name that JSON writes with escapes is not seen: such a request
    expires when its turn comes, as everything does that this function does not know of.
    """
    value = record.value
    if value is None or b'"deadline"' not in value:
        return None
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    text = fields.get("deadline") if isinstance(fields, dict) else None
    return rfc3339_s(text) if isinstance(text, str) else None
