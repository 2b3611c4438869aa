"""The JSON Schemas say what the models say, stand in schemas/ as generated, and judge examples as a producer would want."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from dispatcher.core.messages.reply import ReplyBody
from dispatcher.core.messages.request import RequestBody
from dispatcher.core.messages.schema import reply_schema, request_schema
from tests.schema_files import FOLDER, generated

REQUESTS: list[dict[str, Any]] = [
    {"upstream": "openai"},
    {
        "upstream": "openai",
        "method": "POST",
        "path": "/chat/completions?x=1",
        "headers": {"Accept": "text/plain"},
        "body": {"model": "m", "messages": []},
        "credential": "team-a",
        "timeout_s": 30,
        "attempts_max": 2,
        "repeat": "allowed",
        "after_failure": "continue",
        "stream": False,
        "metadata": [1, None],
    },
    {"upstream": "crm", "method": "GET", "path": "/v1/x", "body": None, "body_base64": None, "timeout_s": 0.5},
    {"upstream": "crm", "body_base64": "AAEC"},
    {"upstream": "crm", "after_failure": "halt_key", "deadline": "2026-11-29T10:00:00Z"},
    {"upstream": "crm", "body": None, "body_base64": "AAEC"},
]
# Refused by the model's types.
BAD_REQUESTS: list[dict[str, Any]] = [
    {},
    {"upstream": ""},
    {"upstream": 1},
    {"upstream": "openai", "url": "http://example.com"},
    {"upstream": "openai", "method": "post"},
    {"upstream": "openai", "path": ""},
    {"upstream": "openai", "headers": {"Accept": 1}},
    {"upstream": "openai", "timeout_s": 0},
    {"upstream": "openai", "attempts_max": 0},
    {"upstream": "openai", "attempts_max": "3"},
    {"upstream": "openai", "repeat": "sometimes"},
    {"upstream": "openai", "after_failure": "stop"},
    {"upstream": "openai", "stream": True},
    {"upstream": "openai", "deadline": 1796000000},
]
# Refused by the worker one step later.
LATER: list[dict[str, Any]] = [
    {"upstream": "openai", "path": "http://example.com/x"},
    {"upstream": "openai", "path": "//example.com/x"},
    {"upstream": "openai", "path": "/x#part"},
    {"upstream": "openai", "headers": {"a b": "c"}},
    {"upstream": "openai", "headers": {"Accept": "a\r\nHost: b"}},
    {"upstream": "openai", "body": 1, "body_base64": "AAEC"},
]
REPLIES: list[dict[str, Any]] = [
    {"status": "ok", "attempts": 1, "http": {"status": 200, "headers": {"content-type": "application/json"}, "body": {"a": 1}}},
    {"status": "dead", "attempts": 0, "reason": "malformed", "error": {"kind": "malformed", "message": "the value is not JSON"}},
    {"status": "error", "attempts": 2, "http": {"status": 404, "headers": {}, "body_base64": "AAEC"}, "metadata": "x"},
    # What a later worker adds must not fail a reader that checks v1.
    {"status": "ok", "attempts": 1, "usage": {"model": "m", "input_tokens": 3, "output_tokens": 4, "cost_usd": "0.01"}},
    {"status": "ok", "attempts": 1, "usage": {"input_tokens": 3, "output_tokens": 4, "cost_usd": None}},
    {"status": "ok", "attempts": 1, "of_a_later_worker": {"a": 1}},
]
BAD_REPLIES: list[dict[str, Any]] = [
    {"status": "ok"},
    {"status": "fine", "attempts": 1},
    {"status": "dead", "attempts": 0, "reason": "bored"},
    {"status": "ok", "attempts": -1},
    {"status": "ok", "attempts": 1, "http": {"status": 200}},
]


@pytest.mark.parametrize("name", generated())
def test_the_file_on_disk_is_the_generated_one(name: str) -> None:
    """Whoever changes a model changes the published schema with it: `make schemas`."""
    assert generated()[name] == (FOLDER / name).read_text("utf-8")


@pytest.mark.parametrize("schema", [request_schema(), reply_schema()], ids=["request", "reply"])
def test_each_schema_is_a_schema(schema: dict[str, Any]) -> None:
    """It says that it is draft 2020-12 and is valid as such, with a name, a title and a description."""
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator.META_SCHEMA["$id"] == schema["$schema"]
    assert {"$id", "$schema", "title", "description"} <= schema.keys()


@pytest.mark.parametrize("value", REQUESTS)
def test_good_requests_pass_schema_and_model(value: dict[str, Any]) -> None:
    """What the worker takes, the schema takes."""
    Draft202012Validator(request_schema()).validate(value)
    RequestBody.model_validate(value)


@pytest.mark.parametrize("value", BAD_REQUESTS)
def test_bad_requests_fail_schema_and_model(value: dict[str, Any]) -> None:
    """What the model refuses, the schema refuses."""
    assert not Draft202012Validator(request_schema()).is_valid(value)
    with pytest.raises(ValidationError):
        RequestBody.model_validate(value)


@pytest.mark.parametrize("value", LATER)
def test_the_schema_knows_what_the_worker_refuses_later(value: dict[str, Any]) -> None:
    """Absolute URLs, fragments, broken headers and two bodies fail the schema, though the model's types allow them."""
    assert not Draft202012Validator(request_schema()).is_valid(value)
    RequestBody.model_validate(value)


@pytest.mark.parametrize("value", REPLIES)
def test_good_replies_pass_schema_and_model(value: dict[str, Any]) -> None:
    """What workers write, the schema takes."""
    Draft202012Validator(reply_schema()).validate(value)
    ReplyBody.model_validate_json(orjson.dumps(value))


@pytest.mark.parametrize("value", BAD_REPLIES)
def test_bad_replies_fail_schema_and_model(value: dict[str, Any]) -> None:
    """A status or a reason off the closed lists, or a missing field."""
    assert not Draft202012Validator(reply_schema()).is_valid(value)
    with pytest.raises(ValidationError):
        ReplyBody.model_validate_json(orjson.dumps(value))


def test_an_absent_part_of_a_reply_is_not_null() -> None:
    """A reader need not tell absent from null: only the request's own metadata, JSON bodies and a cost that nobody knows may be null."""
    assert not Draft202012Validator(reply_schema()).is_valid({"status": "ok", "attempts": 1, "reason": None})
