"""Replies: valid against the published schema, the callee's words unchanged, the headers of the contract, and always in bounds."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.envelope import Envelope
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.reply import KEPT_BYTES, Fault, Reply
from dispatcher.core.messages.status import Reason, Status
from tests.specimens import REPLIES, answer, record

SCHEMA = Draft202012Validator(orjson.loads((Path(__file__).resolve().parents[3] / "schemas" / "reply.schema.json").read_bytes()))
ENVELOPE = Envelope("id-1", "dispatcher.requests/0/5@pX3kQ9aZ", REPLIES, 0)
SHOWN = ("content-type", "retry-after", "x-ratelimit-*")
PLAIN = Reply(record(), ENVELOPE, Status.OK, 1, "2026-11-29T10:00:00.000Z", "dispatcher/g", shown_headers=SHOWN)


def value(reply: Reply) -> Any:
    """The value as a reader sees it, checked against the schema."""
    read = orjson.loads(reply.message().value or b"")
    SCHEMA.validate(read)
    return read


def http(body: bytes, *headers: tuple[str, str], status: int = 200) -> Any:
    """The `http` part of a reply to this answer."""
    return value(replace(PLAIN, answer=Answered(status, headers, body)))["http"]


JSON_TYPE = ("content-type", "application/json")


@pytest.mark.parametrize(
    "text", ["1.10", "-0", "0.1234567890123456789", '{"b":1,"a":1,"a":2}', '"\\u00e9"', " [ 1 ]\n", "null", "false", '"\U0001f600"']
)
@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"])
def test_a_json_answer_stands_in_the_reply_as_written(text: str, kind: str) -> None:
    """Its bytes are a part of the value's: no number or order changes."""
    message = replace(PLAIN, answer=Answered(200, (("content-type", kind),), text.encode())).message()
    assert b'"body":' + text.encode() in (message.value or b"")
    assert "body_base64" not in http(text.encode(), ("content-type", kind))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"hello", "text/plain"),
        (b"{}", "text/event-stream"),
        (b"{}", ""),
        (b'{"a":', "application/json"),
        (b"\xff", "application/json"),
        (b"NaN", "application/json"),
        (b"1e400", "application/json"),
        (b'"\\ud800"', "application/json"),
        (b"\xef\xbb\xbf{}", "application/json"),
        (b"[" * 5000 + b"]" * 5000, "application/json"),
        (b"{}{}", "application/json"),
    ],
)
def test_what_is_no_json_travels_in_base64(body: bytes, kind: str) -> None:
    """Whatever the callee claims, the reply stays readable and the body whole."""
    shown = http(body, ("content-type", kind))
    assert "body" not in shown
    assert base64.b64decode(shown["body_base64"]) == body


def test_an_empty_answer_has_no_body() -> None:
    """204 and the like."""
    assert http(b"", JSON_TYPE, status=204) == {"status": 204, "headers": {"content-type": "application/json"}}


def test_only_listed_headers_are_shown() -> None:
    """By name or by beginning, duplicates joined; a cookie never."""
    headers = [
        ("set-cookie", "s"),
        ("x-ratelimit-a", "1"),
        ("x-ratelimit-a", "2"),
        ("x-other", "3"),
        ("retry-after", "4"),
        ("x-ratelimit", "5"),
    ]
    assert http(b"", *headers)["headers"] == {"x-ratelimit-a": "1, 2", "retry-after": "4"}


def test_headers_are_the_contract() -> None:
    """Enough to judge a reply without its body; the key is the request's."""
    envelope = replace(ENVELOPE, echoed=(("kafka_correlationId", b"\xff\0"),), trace=(("traceparent", "00-a-b-01"),))
    message = replace(PLAIN, envelope=envelope, answer=answer(201), duration_ms=12, attempts=2).message()
    assert (message.topic, message.partition, message.key) == (REPLIES, 0, b"doc:42")
    expected: dict[str, bytes] = {
        "ce_id": b"dispatcher.requests/0/5@pX3kQ9aZ/reply",
        "ce_type": b"dispatcher.reply.v1",
        "ce_source": b"dispatcher/g",
        "ce_time": b"2026-11-29T10:00:00.000Z",
        "ce_specversion": b"1.0",
        "ce_causationid": b"id-1",
        "content-type": b"application/json",
        "dispatcher-status": b"ok",
        "dispatcher-attempt": b"2",
        "dispatcher-http-status": b"201",
        "dispatcher-duration-ms": b"12",
        "dispatcher-request-topic": b"dispatcher.requests",
        "dispatcher-request-partition": b"0",
        "dispatcher-request-offset": b"5",
        "traceparent": b"00-a-b-01",
        "kafka_correlationId": b"\xff\0",
    }
    assert expected == dict(message.headers)
    assert len(expected) == len(message.headers)


def test_no_answer_no_http() -> None:
    """A refused request: status, reason, error, and nothing that is not there."""
    reply = replace(PLAIN, status=Status.DEAD, reason=Reason.MALFORMED, fault=Fault("malformed", "no"), attempts=0)
    assert value(reply) == {"status": "dead", "attempts": 0, "reason": "malformed", "error": {"kind": "malformed", "message": "no"}}
    assert "dispatcher-http-status" not in dict(reply.message().headers)


@pytest.mark.parametrize("metadata", [b"null", b"1.10", b'{"a":[]}'])
def test_metadata_is_echoed_as_given(metadata: bytes) -> None:
    """Null too; absent stays absent."""
    assert b'"metadata":' + metadata in (replace(PLAIN, metadata=metadata).message().value or b"")
    assert "metadata" not in value(PLAIN)


def test_any_message_of_an_error_can_be_written() -> None:
    """Half of a surrogate pair or a page of text from some library: shortened, never a crash of the publisher."""
    for message in ("\udcff", "x" * 100_000, "é" * 100_000):
        shown = value(replace(PLAIN, status=Status.DEAD, fault=Fault("reset", message)))["error"]["message"]
        assert 0 < len(shown.encode()) <= 2000


# --- in bounds ------------------------------------------------------------------------------------------------------------------------


def test_the_first_cut_keeps_the_beginning_of_the_answer() -> None:
    """The call succeeded: `reply_too_large`, HTTP status, 64 KiB and the metadata are kept."""
    shown = value(replace(PLAIN, answer=answer(body=b'"' + b"x" * 200_000 + b'"'), metadata=b'{"m":1}').cut())
    assert (shown["status"], shown["reason"], shown["error"]["kind"]) == ("error", "reply_too_large", "reply_too_large")
    assert (shown["http"]["status"], shown["metadata"]) == (200, {"m": 1})
    assert base64.b64decode(shown["http"]["body_base64"]) == b'"' + b"x" * (KEPT_BYTES - 1)


def test_the_second_cut_keeps_status_and_attempts() -> None:
    """Neither body nor metadata nor headers, which have no bound of ours."""
    reply = replace(PLAIN, answer=Answered(200, (("x-ratelimit-a", "x" * 9000),), b"{}"), metadata=b'"' + b"m" * 9000 + b'"').cut()
    assert value(reply)["http"] == {"status": 200, "headers": {}}
    assert value(reply)["reason"] == "reply_too_large"
    assert "metadata" not in value(reply)


def test_a_cut_does_not_change_how_a_request_died() -> None:
    """A dead reply stays dead for its own reason; only the answer gets shorter."""
    reply = replace(
        PLAIN, status=Status.DEAD, reason=Reason.ATTEMPTS_EXHAUSTED, fault=Fault("http", "500"), answer=answer(500, b"x" * 99_999)
    )
    for cut in (reply.cut(), reply.cut().cut(), reply.cut().cut().cut()):
        assert (cut.status, cut.reason, cut.fault) == (Status.DEAD, Reason.ATTEMPTS_EXHAUSTED, Fault("http", "500"))


@pytest.mark.parametrize("key", [None, b"", b"k", b"\xff" * 1024])
def test_a_usual_key_is_never_cut(key: bytes | None) -> None:
    """Same key on request and reply, as long as a request's key may be."""
    assert key == replace(PLAIN, record=record(key=key), metadata=b"1").cut().cut().cut().message().key


BODIES = st.sampled_from([None, b"", b"{}", b"x" * KEPT_BYTES, b"x" * (KEPT_BYTES + 1), b"x" * 9_000_000])
KEYS = st.sampled_from([None, b"doc:42", b"k" * 1024, b"k" * 9_000_000])
METADATA = st.sampled_from([None, b"null", b'"' + b"m" * 1_000_000 + b'"'])
ECHOED: st.SearchStrategy[tuple[Header, ...]] = st.sampled_from([(), (("kafka_correlationId", b"x" * 4096),)])
ENDS = st.sampled_from([(Status.OK, None), (Status.ERROR, None), (Status.DEAD, Reason.ATTEMPTS_EXHAUSTED), (Status.DEAD, Reason.MALFORMED)])


@given(BODIES, KEYS, METADATA, ECHOED, ENDS)
def test_cuts_end_in_bounds(
    body: bytes | None, key: bytes | None, metadata: bytes | None, echoed: tuple[Header, ...], end: tuple[Status, Reason | None]
) -> None:
    """Each cut is no larger than the one before; after three even what a sender chose freely fits in 12 KiB."""
    reply = replace(PLAIN, record=record(key=key), envelope=replace(ENVELOPE, echoed=echoed), status=end[0], reason=end[1])
    reply = replace(reply, answer=None if body is None else answer(body=body), metadata=metadata, fault=Fault("http", "x" * 5000))
    sizes = [reply.message().size_bytes]
    for _ in range(3):
        reply = reply.cut()
        value(reply)
        sizes.append(reply.message().size_bytes)
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert sizes[-1] < 12 * 1024
