"""JSON Schemas of the headers of requests, replies and dead letters, as schemas/asyncapi.yaml publishes them.

A header's content is bytes. A schema sees the text that they spell, or, where the description says bytes, one character a byte.
"""

from __future__ import annotations

from typing import Any

from dispatcher.core.messages.dead_letter import ORIGINAL_TOPIC, PREFIX, UNREADABLE
from dispatcher.core.messages.envelope import (
    CORRELATION,
    ECHO_MAX_BYTES,
    REDRIVE_ID,
    REPLAY_ID,
    REPLAY_OF,
    REPLAYED_FROM,
    REPLY_PARTITION,
    REPLY_TOPIC,
    REQUEST_ID,
    REQUEST_TYPE,
    TRACE,
)
from dispatcher.core.messages.reply import REPLY_TYPE
from dispatcher.core.messages.status import Reason, Status

# The product's own limits do not reach into a topic's name: this is Kafka's.
_TOPIC = {"pattern": r"^[A-Za-z0-9._-]{1,249}$"}
_COUNT = {"pattern": r"^[0-9]+$"}
_SHA256 = {"pattern": r"^[0-9a-f]{64}$"}
Schema = dict[str, Any]


def request_headers() -> Schema:
    """The headers that a request may have. None is required; others are ignored, and kept in a dead letter."""
    topic, older = REPLY_TOPIC
    headers = {
        "ce_id": _text("request id, and Idempotency-Key of the call; without one the record's position is it", pattern=_request_id()),
        "ce_type": _text("another major version becomes a dead letter", const=REQUEST_TYPE),
        "ce_source": _text("who made the request, a URI reference"),
        "ce_time": _text("when it was made, RFC 3339"),
        "ce_specversion": _text("of CloudEvents", pattern=r"^1(\.|$)"),
        "ce_dataschema": _text("URI of the value's schema"),
        "content-type": _text("of the value; without one it is application/json", pattern=r"^\s*(application/json|[^;]*\+json)\s*(;|$)"),
        **_trace(),
        **_correlation(),
        topic: _text("topic of the reply; only those that the workers' configuration lists", **_TOPIC),
        older: _text(f"the same; {topic} goes before it", **_TOPIC),
        REPLY_PARTITION: _bytes("partition of the reply, a 4-byte big-endian integer; without one the request's own number", 4, 4),
        REDRIVE_ID: _text("of a dead letter that is executed once more, under its id", pattern=_request_id()),
        REPLAY_OF: _text("id of the request that a replay made this one of"),
        REPLAY_ID: _text("id of the replay that made this request: a plan is done once under it, however often it is interrupted"),
        REPLAYED_FROM: _text("topic/partition/offset of the request that this one repeats", pattern=r"^.+/[0-9]+/[0-9]+$"),
    }
    return _object(headers, [])


def reply_headers() -> Schema:
    """The headers of a reply: enough to judge it without its value."""
    headers = {
        "ce_id": _text("of the reply itself"),
        "ce_type": _text("another major version is another kind of reply", const=REPLY_TYPE),
        "ce_source": _text("the worker that answered"),
        "ce_time": _text("when it was answered, RFC 3339"),
        "ce_specversion": _text("of CloudEvents", const="1.0"),
        "ce_causationid": _text("the request's id", pattern=_request_id()),
        "content-type": _text("of the value", const="application/json"),
        "dispatcher-status": _text("how the execution ended", enum=[status.value for status in Status]),
        "dispatcher-attempt": _text("calls made", **_COUNT),
        "dispatcher-duration-ms": _text("from the first call to the last answer, milliseconds", **_COUNT),
        "dispatcher-request-topic": _text("where the request stands", **_TOPIC),
        "dispatcher-request-partition": _text("where the request stands", **_COUNT),
        "dispatcher-request-offset": _text("where the request stands", **_COUNT),
    }
    sometimes = {"dispatcher-http-status": _text("of the callee's answer, where there was one", **_COUNT), **_trace(), **_correlation()}
    return _object(headers | sometimes, list(headers))


def dead_letter_headers() -> Schema:
    """The error headers of a dead letter. They stand behind the original record's own, which are there byte for byte."""
    given_up = [reason.value for reason in Reason if reason is not Reason.REPLY_TOO_LARGE]
    headers = {
        "topic": _text("of the original record", **_TOPIC),
        "partition": _text("of the original record", **_COUNT),
        "offset": _text("of the original record", **_COUNT),
        "timestamp": _text("of the original record, milliseconds since 1970; empty where it has none", pattern=r"^[0-9]*$"),
        "group": _text("consumer group of the workers"),
        "delivery.count": _text("calls made", **_COUNT),
        "stage": _text("where it failed", enum=["decode", "call", "publish"]),
        "exception.class.name": _text("kind of the error"),
        "message": _text("the error in one sentence; never holds a secret"),
        "reason": _text("why it was given up", enum=given_up),
    }
    sometimes = {
        "http.status": _text("of the callee's last answer, where there was one", **_COUNT),
        "upstream": _text("alias of the callee, where it is known"),
        UNREADABLE.removeprefix(PREFIX): _text("stands where the original's headers cannot", enum=["unreadable", "too_large"]),
        "value.sha256": _text("of the original value, where it was cut", **_SHA256),
        "value.bytes": _text("length of the original value, where it was cut", **_COUNT),
        "key.sha256": _text("of the original key, where it was cut", **_SHA256),
    }
    named = {PREFIX + name: schema for name, schema in (headers | sometimes).items()}
    named[ORIGINAL_TOPIC] = _text("of the original record, for tools that know Spring's name", **_TOPIC)
    return _object(named, [*(PREFIX + name for name in headers), ORIGINAL_TOPIC])


def _trace() -> dict[str, Schema]:
    return {name: _text("W3C Trace Context: request, call, reply") for name in TRACE}


def _correlation() -> dict[str, Schema]:
    return {name: _bytes("opaque bytes, echoed byte for byte under the same name", 0, ECHO_MAX_BYTES) for name in CORRELATION}


def _request_id() -> str:
    return f"^{REQUEST_ID.pattern}$"


def _text(description: str, **rules: Any) -> Schema:  # noqa: ANN401 - JSON Schema's keywords
    return {"type": "string", "description": description, **rules}


def _bytes(description: str, least: int, most: int) -> Schema:
    return {"type": "string", "format": "binary", "description": f"bytes: {description}", "minLength": least, "maxLength": most}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}
