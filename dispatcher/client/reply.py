"""Replies and dead letters as programs read them: records of the topics, taken apart. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Self

import orjson
from pydantic import ValidationError

from dispatcher.core.messages.glance import answered_id, dead_id, dead_place, error_header, number_header, request_place
from dispatcher.core.messages.members import members
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.reply import ErrorBody, HttpBody, ReplyBody
from dispatcher.core.messages.status import Reason, Status
from dispatcher.core.messages.usage import UsageBody
from dispatcher.errors import CallFailed, DispatcherError


@dataclass(frozen=True, slots=True)
class Reply:
    """The terminal reply of a request: its `body` as the schema says, and where it stands. `key` is the lane key.

    `source` is where the request stood: topic, partition, offset.
    """

    request_id: str
    key: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None  # since 1970
    source: tuple[str, int, int]
    duration_ms: int  # from the first call to the last answer
    body: ReplyBody
    value: bytes  # as it stands in the topic

    @classmethod
    def of(cls, record: Record) -> Self:
        """Read a record of a reply topic. DispatcherError where it is none: its value, or a header that every reply has."""
        try:
            body = ReplyBody.model_validate_json(record.value or b"")
        except ValidationError:
            raise _no_reply(record) from None
        name, source, duration_ms = answered_id(record), request_place(record), number_header(record, "dispatcher-duration-ms")
        if not name or source is None or duration_ms is None:
            raise _no_reply(record)
        place = (record.topic, record.partition, record.offset, record.timestamp_ms)
        return cls(name, record.key, *place, source, duration_ms, body, record.value or b"")

    @property
    def ok(self) -> bool:
        """Whether the callee did what it was asked for."""
        return self.body.status is Status.OK

    @property
    def status(self) -> Status:
        return self.body.status

    @property
    def reason(self) -> Reason | None:
        return self.body.reason

    @property
    def error(self) -> ErrorBody | None:
        return self.body.error

    @property
    def http(self) -> HttpBody | None:
        """The callee's answer, where there was one."""
        return self.body.http

    @property
    def attempts(self) -> int:
        return self.body.attempts

    @property
    def usage(self) -> UsageBody | None:
        """The tokens of all its attempts, and what they cost; None where no answer said anything of tokens, and for a duplicate."""
        return self.body.usage

    @property
    def duplicate(self) -> bool:
        """Whether nothing was called for it: an earlier request of this key and id had ended, and this is what was answered then."""
        return self.body.duplicate

    @property
    def metadata(self) -> Any:  # noqa: ANN401 - the request's own
        return self.body.metadata

    @property
    def content(self) -> bytes:
        """The body of the callee's answer, JSON as it was written; empty where there is none."""
        if self.http is None:
            return b""
        if self.http.body_base64 is not None:
            try:
                return base64.b64decode(self.http.body_base64, validate=True)
            except (binascii.Error, ValueError):
                raise DispatcherError("the body of this reply is not base64") from None
        written = members(members(self.value.decode())["http"]).get("body")
        return b"" if written is None else written.encode()

    def json(self) -> Any:  # noqa: ANN401 - whatever JSON can say
        """Read the body of the callee's answer as JSON; ValueError where it is not."""
        return orjson.loads(self.content)

    def raise_for_status(self) -> Self:
        """Return the reply where it is `ok`; else raise CallFailed, which says in one sentence how it ended."""
        if self.ok:
            return self
        answered = f" with HTTP status {self.http.status}" if self.http is not None else ""
        why = f": {self.error.message}" if self.error is not None else ""
        reason = f" ({self.reason.value})" if self.reason is not None else ""
        raise CallFailed(f"request {self.request_id} ended as {self.status.value}{reason}{answered}{why}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that was given up: the original key, value and headers, and why. `source` is where the request stood."""

    request_id: str
    reason: str
    message: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None  # all of them, the error headers too
    source: tuple[str, int, int] | None  # topic, partition, offset
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None  # since 1970

    @classmethod
    def of(cls, record: Record) -> Self:
        """Read a record of the dead-letter topic."""
        return cls(
            dead_id(record),
            error_header(record, "reason") or "",
            error_header(record, "message") or "",
            record.key,
            record.value,
            record.headers,
            dead_place(record),
            record.topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
        )


def reply_to_request(record: Record, source: tuple[str, int, int] | None) -> Reply:
    """Read the reply to the request that stands at `source`, where that is known. DispatcherError where this is another record.

    Anybody may write an id: a request of the same one has a reply of its own.
    """
    reply = Reply.of(record)
    if source is not None and reply.source != source:
        asked, of = ("/".join(map(str, place)) for place in (source, reply.source))
        raise DispatcherError(f"the record at {_place(record)} is the reply to {of}, not to {asked}", "another request has the same id")
    return reply


def _no_reply(record: Record) -> DispatcherError:
    return DispatcherError(f"the record at {_place(record)} is not a reply that this version can read", "look at `dispatcher replies`")


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"
