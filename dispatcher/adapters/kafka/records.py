"""The client's message as the core's record. Called for every message, by whoever reads a topic."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from dispatcher.core.messages.record import Header, Record

if TYPE_CHECKING:
    from confluent_kafka import Message


def record_of(message: Message) -> Record:
    """Return the record in `message`, which holds a record and no error. A header name that is not UTF-8 makes `headers` None."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        cast("str", message.topic()),
        cast("int", message.partition()),
        cast("int", message.offset()),
        message.key(),
        message.value(),
        headers_of(message),
        None if kind == TIMESTAMP_NOT_AVAILABLE or timestamp_ms < 0 else timestamp_ms,
    )


def headers_of(message: Message) -> tuple[Header, ...] | None:
    """Return the headers in their order, duplicates and None values kept; None where the client cannot read a name.

    Ask once per message: after a name that it could not read the client keeps, and gives the next time, a list with a hole in it
    that crashes whoever looks into it.
    """
    try:
        headers = _headers(message)
    except (SystemError, UnicodeDecodeError):
        # confluent-kafka 2.16 decodes names as UTF-8 in C and fails as a whole; the values are out of reach then too.
        return None
    return tuple(cast("list[Header]", headers)) if headers else ()


# Not `message.headers()`: the client returns that list *and* sets an exception, which an interpreter that has warmed up (3.11 and later
# specialise such calls after a few) does not notice before some later, innocent call. `methodcaller` takes the path that always checks.
_headers = methodcaller("headers")
