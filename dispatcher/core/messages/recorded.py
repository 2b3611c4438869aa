"""A reply that was published before, as far as it is said once more to a duplicate of its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any

import orjson

from dispatcher.core.bounds import COUNT_MAX, OFFSET_MAX
from dispatcher.core.messages.members import members
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.status import Reason, Status

# What a reply says about one request or one execution, and not about the answer; who is answered again is billed for nothing.
_OWN = frozenset({"status", "reason", "error", "attempts", "metadata", "agent", "duplicate", "usage"})


@dataclass(frozen=True, slots=True)
class Recorded:
    """`error` as in the reply's value; `rest` are the other members of it (the callee's answer among them), as they were written."""

    status: Status
    attempts: int
    duration_ms: int
    reason: Reason | None = None
    error: Mapping[str, Any] | None = None
    http_status: str = ""
    rest: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """What saying it again takes, about."""
        return sum(map(len, self.rest.values()))


def read_recorded(record: Record) -> Recorded | None:
    """The reply in a record; None where it cannot be read: it was cut by somebody, or a later version wrote it.

    A topic of a sender's may hold whatever the sender wrote there.
    """
    headers = dict(record.headers or ())
    try:
        value = members((record.value or b"").decode())
        text = {name: (headers.get(name) or b"").decode() for name in ("dispatcher-http-status", "dispatcher-duration-ms")}
        reason, error = (orjson.loads(value[name]) if name in value else None for name in ("reason", "error"))
        return Recorded(
            status=Status(orjson.loads(value["status"])),
            attempts=_bounded(value["attempts"], COUNT_MAX),
            duration_ms=_bounded(text["dispatcher-duration-ms"], OFFSET_MAX),
            reason=None if reason is None else Reason(reason),
            error=None if error is None else {"kind": str(error["kind"]), "message": str(error["message"])} | _retry_at(error),
            http_status=text["dispatcher-http-status"],
            rest={name: content for name, content in value.items() if name not in _OWN},
        )
    except (JSONDecodeError, StopIteration, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return None


def recorded_in(reply: Message) -> Recorded | None:
    """What a reply that is not published yet will say; None as above."""
    return read_recorded(Record(reply.topic, reply.partition, -1, reply.key, reply.value, reply.headers))


def _bounded(digits: str, most: int) -> int:
    number = int(digits)
    if not 0 <= number <= most:
        raise ValueError(digits)
    return number


def _retry_at(error: Mapping[str, Any]) -> dict[str, str]:
    return {"retry_at": str(error["retry_at"])} if error.get("retry_at") is not None else {}
