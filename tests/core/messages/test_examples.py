"""The messages in schemas/examples: what they are called is what schemas and decoder say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dispatcher.core.messages.asyncapi import asyncapi_document
from dispatcher.core.messages.dead_letter import ORIGINAL_TOPIC, PREFIX, UNREADABLE, DeadLetter
from dispatcher.core.messages.glance import error_header
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import content_of
from dispatcher.core.messages.reply import ReplyBody
from dispatcher.core.messages.request import Request
from dispatcher.core.messages.schema import reply_schema, request_schema
from dispatcher.core.messages.status import Reason, Status
from tests import specimens
from tests.schema_files import FOLDER

EXAMPLES = FOLDER / "examples"
# As the README beside the examples says: `openai` takes the credential team-a, `crm` takes none, team.replies may be asked for.
SETTINGS = specimens.settings(upstreams={"crm": {"base_url": "http://127.0.0.1:2"}})
# One partition: every key is on the right one. The record on a wrong partition names its own.
DECODER, WIDE = specimens.decoder(SETTINGS), specimens.decoder(SETTINGS, partitions=12)


def files(folder: str) -> list[Any]:
    """The examples of a folder, each named by it."""
    found = [pytest.param(path, id=path.name) for path in sorted((EXAMPLES / folder).iterdir())]
    assert found
    return found


def judged(value: bytes, schema: dict[str, Any]) -> bool:
    """Whether the schema takes this value; what is not JSON it never does."""
    try:
        read = json.loads(value)
    except ValueError:
        return False
    return Draft202012Validator(schema).is_valid(read)


def reason_of(path: Path) -> Reason:
    """The reason that a file's name tells, up to the first dot."""
    return Reason(path.name.partition(".")[0])


def record_of(path: Path, topic: str = specimens.REQUESTS) -> Record:
    """A record in the form that `--json` prints."""
    fields = json.loads(path.read_bytes())
    key, value, headers = content_of(fields)
    return Record(fields.get("topic", topic), fields.get("partition", 0), fields.get("offset", 0), key, value, headers, fields.get("ts"))


def declared(record: Record, message: str) -> bool:
    """Whether key, headers and value are as the AsyncAPI document says; header contents as a character a byte."""
    schemas = asyncapi_document()["components"]["messages"][message]
    headers = {name: content.decode("latin-1") for name, content in record.headers or () if content is not None}
    try:
        key = record.key and record.key.decode()
    except UnicodeDecodeError:
        return False
    value = {"request": request_schema, "reply": reply_schema}.get(message, dict)()
    good = [
        Draft202012Validator(schemas["bindings"]["kafka"]["key"]).is_valid(key),
        Draft202012Validator(schemas["headers"]).is_valid(headers),
    ]
    return all(good) and (record.value is None or not value or judged(record.value, value))


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("requests/valid"))
def test_valid_requests_are_taken(path: Path) -> None:
    """By the schema and by a worker."""
    assert judged(path.read_bytes(), request_schema())
    specimens.request(specimens.record(path.read_bytes()), DECODER)


@pytest.mark.parametrize("path", files("requests/invalid"))
def test_invalid_requests_are_refused_by_both(path: Path) -> None:
    """The schema says no, and a worker says no with the reason in the file's name."""
    assert not judged(path.read_bytes(), request_schema())
    assert reason_of(path) is specimens.refusal(specimens.record(path.read_bytes()), DECODER)[1].reason


@pytest.mark.parametrize("path", files("requests/refused"))
def test_refused_requests_are_beyond_a_schema(path: Path) -> None:
    """What needs the configuration, or more than JSON Schema can say: the schema takes it, a worker says no."""
    assert judged(path.read_bytes(), request_schema())
    assert reason_of(path) is specimens.refusal(specimens.record(path.read_bytes()), DECODER)[1].reason


@pytest.mark.parametrize("path", files("replies/valid"))
def test_valid_replies_are_taken(path: Path) -> None:
    """By the schema and by the model; the name tells status and reason."""
    assert judged(path.read_bytes(), reply_schema())
    read = ReplyBody.model_validate_json(path.read_bytes())
    status, second, *_ = path.name.split(".")
    assert Status(status) is read.status
    assert (Reason(second) if second in set(Reason) else None) is read.reason


@pytest.mark.parametrize("path", files("replies/invalid"))
def test_invalid_replies_are_refused(path: Path) -> None:
    """The schema says no to what no worker writes."""
    assert not judged(path.read_bytes(), reply_schema())


def test_the_examples_show_every_reason_that_a_request_alone_can_have() -> None:
    """All but those that need a call or another request, and the value that is over the limit: no file of a mebibyte."""
    shown = {
        reason_of(path) for path in EXAMPLES.glob("**/*.json") if path.parent.name in {"invalid", "refused"} and "requests" in path.parts
    }
    called = {
        Reason.BUDGET_EXHAUSTED,
        Reason.ATTEMPTS_EXHAUSTED,
        Reason.DEADLINE_EXCEEDED,
        Reason.OUTCOME_UNKNOWN,
        Reason.QUOTA_EXHAUSTED,
        Reason.REPLY_TOO_LARGE,
    }
    assert set(Reason) - called - {Reason.HALTED_KEY, Reason.ID_CONFLICT, Reason.TOO_LARGE} == shown


# --- whole records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("records/requests/valid"))
def test_valid_request_records_are_taken(path: Path) -> None:
    """Key, headers and value by the AsyncAPI document and by a worker; correlation ids come back as they came, as do reply wishes."""
    record = record_of(path)
    assert declared(record, "request")
    decoded = DECODER.decode(record)
    assert isinstance(decoded, Request), decoded
    given = dict(record.headers or ())
    assert {name: given[name] for name in ("kafka_correlationId", "correlation_id") if name in given} == dict(decoded.envelope.echoed)
    if "kafka_replyPartition" in given:
        assert ("team.replies", 1) == (decoded.envelope.reply_topic, decoded.envelope.reply_partition)


@pytest.mark.parametrize("path", files("records/requests/invalid"))
def test_invalid_request_records_are_refused_by_both(path: Path) -> None:
    """A fault in key or headers that the AsyncAPI document shows."""
    record = record_of(path)
    assert not declared(record, "request")
    assert reason_of(path) is specimens.refusal(record, DECODER)[1].reason


@pytest.mark.parametrize("path", files("records/requests/refused"))
def test_refused_request_records_are_beyond_a_schema(path: Path) -> None:
    """What needs the configuration or the position, or where a header stands twice."""
    record = record_of(path)
    assert declared(record, "request")
    decoder = WIDE if reason_of(path) is Reason.WRONG_PARTITION else DECODER
    assert reason_of(path) is specimens.refusal(record, decoder)[1].reason


@pytest.mark.parametrize("path", files("records/replies/valid"))
def test_reply_records_are_as_declared(path: Path) -> None:
    """Headers and value say the same status."""
    record = record_of(path)
    assert declared(record, "reply")
    headers = dict(record.headers or ())
    assert (headers["dispatcher-status"] or b"").decode() == json.loads(record.value or b"")["status"]


@pytest.mark.parametrize("path", files("records/dead_letters/valid"))
def test_dead_letter_records_are_what_workers_write(path: Path) -> None:
    """Made again from the original record and the same facts, the letter is the same, byte for byte."""
    letter = record_of(path)
    assert declared(letter, "deadLetter")
    facts = {name: error_header(letter, name) for name in ("reason", "message", "stage", "exception.class.name", "group", "upstream")}
    own = tuple(header for header in letter.headers or () if not header[0].startswith(PREFIX) and header[0] != ORIGINAL_TOPIC)
    unreadable = any(name == UNREADABLE for name, _ in letter.headers or ())
    place = [int(error_header(letter, name) or "") for name in ("partition", "offset", "timestamp", "delivery.count")]
    original = Record(
        error_header(letter, "topic") or "", place[0], place[1], letter.key, letter.value, None if unreadable else own, place[2]
    )
    status = error_header(letter, "http.status")
    made = DeadLetter(
        original,
        letter.topic,
        letter.partition,
        str(facts["group"]),
        Reason(facts["reason"] or ""),
        str(facts["message"]),
        str(facts["stage"]),
        str(facts["exception.class.name"]),
        place[3],
        int(status) if status else None,
        facts["upstream"],
    ).letter()
    assert (letter.key, letter.value, letter.headers) == (made.key, made.value, made.headers)
