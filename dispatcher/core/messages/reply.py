"""The terminal reply of an execution: its value (`ReplyBody`), and a reply turned into the message that is published."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.envelope import Envelope
from dispatcher.core.messages.record import Header, Message, Record, bounded
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.status import Reason, Status
from dispatcher.core.messages.usage import Usage, UsageBody

REPLY_TYPE = "dispatcher.reply.v1"
# What is kept of an answer that no reply can carry (SURFACE: reply_too_large).
KEPT_BYTES = 64 * 1024
# What is kept of a key that no reply can carry: as much as a request's key may have.
KEY_KEPT_BYTES = 1024
MESSAGE_MAX_BYTES = 2000

# The models of a reply take further fields: a reader that checks v1 must not fail on what a later worker adds.


class ErrorBody(BaseModel):
    """What went wrong, for a program (`kind`) and for a person (`message`)."""

    model_config = ConfigDict(frozen=True)

    kind: Annotated[str, Field(description="http, timeout, reset, cancelled_in_call, ... or the dead letter's reason")]
    message: Annotated[str, Field(description="one sentence; never holds a secret")]
    retry_at: Annotated[str | None, Field(description="RFC 3339: not before then, where the callee said so")] = None


class HttpBody(BaseModel):
    """The callee's answer."""

    model_config = ConfigDict(frozen=True)

    status: int
    headers: Annotated[dict[str, str], Field(description="allow-listed, names in lower case, duplicates joined by a comma")]
    body: Annotated[Any, Field(description="the body, where it is JSON")] = None
    body_base64: Annotated[str | None, Field(description="the body, where it is not; cut where the reply was too large")] = None


class ReplyBody(BaseModel):
    """The value of a reply record."""

    model_config = ConfigDict(frozen=True, title="dispatcher reply")

    status: Status
    reason: Annotated[Reason | None, Field(description="why, where it was given up or cut")] = None
    error: ErrorBody | None = None
    http: HttpBody | None = None
    usage: UsageBody | None = None
    attempts: Annotated[int, Field(ge=0, description="calls made for this execution, as far as is known")]
    metadata: Annotated[Any, Field(description="the request's, untouched")] = None
    agent: Annotated[str | None, Field(description="who asked: the request's")] = None
    duplicate: Annotated[
        bool, Field(description="nothing was called for it: a request of this key and id had ended so before, within the dedup window")
    ] = False


@dataclass(frozen=True, slots=True)
class Fault:
    """The error of a reply, before it is written down. `retry_at` is RFC 3339."""

    kind: str
    message: str
    retry_at: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """All that a reply says, before it becomes bytes. `duration_ms` runs from the first call to the last answer."""

    record: Record
    envelope: Envelope
    status: Status
    attempts: int
    time: str  # RFC 3339, wall clock at the end
    source: str  # ce_source: who answered
    duration_ms: int = 0
    reason: Reason | None = None
    fault: Fault | None = None
    answer: Answered | None = None
    shown_headers: tuple[str, ...] = ()
    metadata: bytes | None = None  # JSON
    agent: str = ""
    is_duplicate: bool = False
    usage: Usage | None = None  # of all its attempts
    recorded: Recorded | None = None  # what a duplicate is answered with, in place of `answer`

    def message(self) -> Message:
        """The record to publish: same key and, unless the request says otherwise, the same partition number."""
        return Message(
            self.envelope.reply_topic,
            self.envelope.reply_partition,
            self.record.key,
            orjson.dumps(self._value()),
            self._headers(),
        )

    def too_large(self) -> Reply:
        """The same outcome where the answer is more than is kept: a call is not repeated because its answer cannot be published."""
        answer = self.answer and replace(self.answer, body=self.answer.body[:KEPT_BYTES], truncated=True)
        if self.status not in {Status.OK, Status.ERROR}:
            return replace(self, answer=answer)
        fault = Fault("reply_too_large", "the callee answered, but the reply is too large: at most the answer's beginning is kept")
        return replace(self, status=Status.ERROR, reason=Reason.REPLY_TOO_LARGE, fault=fault, answer=answer)

    def cut(self) -> Reply:
        """The same outcome in less space: at first the beginning of the answer's body, then neither body, headers nor metadata.

        What is left then is bounded but for the key: a refused record may have one of any size, and its reply has the beginning.
        """
        if self.recorded is not None:
            # It fitted into its own topic: what is new is the metadata.
            return replace(self, metadata=None) if self.metadata is not None else replace(self, recorded=None).too_large()
        if self.answer is not None and len(self.answer.body) > KEPT_BYTES:
            return self.too_large()
        answer = self.answer and replace(self.answer, body=b"", truncated=True)
        if (answer, (), None) != (self.answer, self.shown_headers, self.metadata):
            return replace(self.too_large(), answer=answer, shown_headers=(), metadata=None)
        key = self.record.key
        return replace(self, record=replace(self.record, key=key and key[:KEY_KEPT_BYTES]))

    def _value(self) -> dict[str, Any]:
        value: dict[str, Any] = {"status": self.status, "attempts": self.attempts}
        if self.reason is not None:
            value["reason"] = self.reason
        if self.fault is not None:
            value["error"] = {"kind": self.fault.kind, "message": bounded(self.fault.message, MESSAGE_MAX_BYTES).decode()}
            if self.fault.retry_at is not None:
                value["error"]["retry_at"] = self.fault.retry_at
        if self.answer is not None:
            value["http"] = _http(self.answer, self.shown_headers)
        if self.usage is not None:
            value["usage"] = self.usage.body()
        if self.recorded is not None:
            value |= {name: orjson.Fragment(content) for name, content in self.recorded.rest.items()}
        if self.metadata is not None:
            value["metadata"] = orjson.Fragment(self.metadata)
        if self.agent:
            value["agent"] = self.agent
        if self.is_duplicate:
            value["duplicate"] = True
        return value

    def _headers(self) -> tuple[Header, ...]:
        envelope, record = self.envelope, self.record
        texts = [
            ("ce_id", reply_id(envelope.position_id)),
            ("ce_type", REPLY_TYPE),
            ("ce_source", self.source),
            ("ce_time", self.time),
            ("ce_specversion", "1.0"),
            ("ce_causationid", envelope.request_id),
            ("content-type", "application/json"),
            ("dispatcher-status", self.status.value),
            ("dispatcher-attempt", str(self.attempts)),
            ("dispatcher-duration-ms", str(self.duration_ms)),
            ("dispatcher-request-topic", record.topic),
            ("dispatcher-request-partition", str(record.partition)),
            ("dispatcher-request-offset", str(record.offset)),
            *envelope.trace,
        ]
        http_status = str(self.answer.status) if self.answer is not None else self.recorded.http_status if self.recorded is not None else ""
        if http_status:
            texts.append(("dispatcher-http-status", http_status))
        return (*((name, text.encode()) for name, text in texts), *envelope.echoed)


def reply_id(position_id: str) -> str:
    """The reply's own id; `position_id` is the request's, by its place."""
    return f"{position_id}/reply"


def _http(answer: Answered, shown: tuple[str, ...]) -> dict[str, Any]:
    headers: dict[str, str] = {}
    json = False
    for name, text in answer.headers:
        if name == "content-type":
            kind = text.partition(";")[0].strip().lower()
            json = kind == "application/json" or kind.endswith("+json")
        if _is_shown(name, shown):
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
    http: dict[str, Any] = {"status": answer.status, "headers": headers}
    if not answer.body:
        return http
    if json and not answer.truncated and _is_json(answer.body):
        http["body"] = orjson.Fragment(answer.body)
    else:
        http["body_base64"] = base64.b64encode(answer.body).decode("ascii")
    return http


def _is_shown(name: str, shown: tuple[str, ...]) -> bool:
    return name in shown or any(entry.endswith("*") and name.startswith(entry[:-1]) for entry in shown)


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True
