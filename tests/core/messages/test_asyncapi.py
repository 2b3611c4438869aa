"""The AsyncAPI document knows every header that the code reads or writes, and every message of the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dispatcher.core.messages.asyncapi import asyncapi_document
from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.envelope import KNOWN, REPLAY_ID, REPLAY_OF, REPLAYED_FROM, Envelope
from dispatcher.core.messages.message_headers import dead_letter_headers, reply_headers, request_headers
from dispatcher.core.messages.record import Header, Message, Record
from dispatcher.core.messages.reply import Fault, Reply
from dispatcher.core.messages.status import Reason, Status
from tests.schema_files import FOLDER
from tests.specimens import DEAD_LETTERS, answer, record

DOCUMENT = asyncapi_document()
TRACE = (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=b"))
ECHOED: tuple[Header, ...] = (("kafka_correlationId", bytes(range(240, 256))), ("correlation_id", b"7"))


def reply(**fields: Any) -> Message:
    """A reply with nothing but what every one has, unless `fields` add more."""
    envelope = Envelope("r-1", "dispatcher.requests/0/5@pX3kQ9aZ", "dispatcher.replies", 0, *fields.pop("envelope", ()))
    return Reply(record(), envelope, Status.OK, 1, "2026-11-29T10:00:00Z", "dispatcher/w", **fields).message()


def letter(of: Record | None = None, cuts: int = 0, **fields: Any) -> Message:
    """A dead letter with nothing but what every one has, unless `fields` add more."""
    made = DeadLetter(of or record(), DEAD_LETTERS, 0, "g", Reason.MALFORMED, "not JSON", "decode", "malformed", cuts=cuts, **fields)
    return made.letter()


def shown(headers: tuple[Header, ...]) -> dict[str, str]:
    """Headers as the document's schemas see them: a character a byte."""
    return {name: (content or b"").decode("latin-1") for name, content in headers}


def test_every_header_that_is_read_is_declared() -> None:
    """All that the worker reads, and what a replay says of where it comes from."""
    assert set(KNOWN) | {REPLAY_OF, REPLAY_ID, REPLAYED_FROM} == set(request_headers()["properties"])


def test_every_header_of_a_reply_is_declared() -> None:
    """The fullest reply has all of them, the barest has the required ones, and both are valid."""
    schema = reply_headers()
    full = reply(answer=answer(), fault=Fault("http", "x"), envelope=(ECHOED, TRACE)).headers
    assert set(schema["properties"]) == set(shown(full))
    bare = reply().headers
    assert set(schema["required"]) == set(shown(bare))
    for headers in (full, bare):
        Draft202012Validator(schema).validate(shown(headers))


def test_every_header_of_a_dead_letter_is_declared() -> None:
    """A plain one has the required ones; the others stand where something was cut or unreadable, or a call was made."""
    schema = dead_letter_headers()
    plain = letter().headers
    assert set(schema["required"]) == set(shown(plain))
    huge = record(b"v" * 100_000, key=b"k" * 100_000, headers=(("h", b"x" * 100_000),), timestamp_ms=1)
    cut = letter(huge, cuts=1, http_status=500, upstream="openai", attempts=3).headers
    assert set(schema["properties"]) == set(shown(cut))
    for headers in (plain, cut, letter(record(headers=None)).headers):
        Draft202012Validator(schema).validate(shown(headers))


def test_the_original_headers_of_a_dead_letter_are_allowed() -> None:
    """Any header may stand before the error set."""
    Draft202012Validator(dead_letter_headers()).validate(shown(letter(record(headers=(("mine", b"\xff"),))).headers))


@pytest.mark.parametrize("schema", [request_headers(), reply_headers(), dead_letter_headers()], ids=["request", "reply", "dead letter"])
def test_each_header_schema_is_a_schema(schema: dict[str, Any]) -> None:
    """Valid draft 2020-12, and every header has a description."""
    Draft202012Validator.check_schema(schema)
    assert all(header["description"] for header in schema["properties"].values())


def test_every_reference_points_to_something() -> None:
    """Inside the document to a part of it, outside to a file beside it."""
    references = list(found("$ref", DOCUMENT))
    assert {"./request.schema.json", "./reply.schema.json"} < set(references)
    for reference in references:
        if reference.startswith("#/"):
            part: Any = DOCUMENT
            for name in reference[2:].split("/"):
                part = part[name]
        else:
            assert (FOLDER / reference).is_file()


def test_every_topic_has_a_channel_with_its_partitions() -> None:
    """The three topics that others write or read; a fourth channel stands for topics that requests name, so it has no address."""
    addresses = {channel["address"] for channel in DOCUMENT["channels"].values()}
    assert {"{prefix}.requests", "{prefix}.replies", "{prefix}.dlq", None} == addresses
    assert {12} == {channel["bindings"]["kafka"]["partitions"] for channel in DOCUMENT["channels"].values() if channel["address"]}


def found(name: str, value: Any) -> Iterator[str]:
    """Every member of this name, at any depth."""
    if isinstance(value, dict):
        for member, content in value.items():
            if member == name and isinstance(content, str):
                yield content
            else:
                yield from found(name, content)
    elif isinstance(value, list):
        for item in value:
            yield from found(name, item)
