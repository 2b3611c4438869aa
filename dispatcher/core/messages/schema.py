"""JSON Schemas (draft 2020-12) of the message values, made from the models; `make schemas` writes them to schemas/.

`text` gives every published description by its name, the AsyncAPI document too: nothing is read from files, so nothing can be stale.

What the worker checks beyond types and bounds is added here where JSON Schema can say it, so that a producer in another language
learns it before its request is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from dispatcher.core.messages.asyncapi import asyncapi_document
from dispatcher.core.messages.envelope import REQUEST_TYPE
from dispatcher.core.messages.reply import REPLY_TYPE, ReplyBody
from dispatcher.core.messages.request import HEADER_NAME, HEADER_VALUE, PATH, RequestBody

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def request_schema() -> dict[str, Any]:
    """The schema of a request's value. It knows no configuration: which upstreams and headers are allowed, only workers can say."""
    schema = _headed(REQUEST_TYPE, RequestBody.model_json_schema(mode="validation"))
    fields = schema["properties"]
    fields["path"]["pattern"] = _whole(PATH)
    fields["headers"] |= {
        "propertyNames": {"pattern": _whole(HEADER_NAME)},
        "additionalProperties": {"type": "string", "pattern": _whole(HEADER_VALUE)},
    }
    fields["body_base64"]["contentEncoding"] = "base64"
    given = {"not": {"type": "null"}}
    schema["not"] = {"required": ["body", "body_base64"], "properties": {"body": given, "body_base64": given}}
    return schema


def reply_schema() -> dict[str, Any]:
    """The schema of a reply's value. What a reply has not is absent, never null; what it always has may be null: it is not known then."""
    schema = _headed(REPLY_TYPE, ReplyBody.model_json_schema(mode="serialization"))
    for model in (schema, *schema["$defs"].values()):
        required = model.get("required", ())
        for name, field in model.get("properties", {}).items():
            field.pop("default", None)
            if name in required:
                continue
            options = [option for option in field.pop("anyOf", []) if option != {"type": "null"}]
            field.update(options[0] if options else {})
    return schema


PUBLISHED: Mapping[str, Callable[[], dict[str, Any]]] = {"request": request_schema, "reply": reply_schema, "asyncapi": asyncapi_document}


def text(name: str) -> str:
    """One of `PUBLISHED` as JSON: `request` and `reply` as they stand in schemas/<name>.schema.json. KeyError for another name."""
    return orjson.dumps(PUBLISHED[name](), option=orjson.OPT_INDENT_2).decode() + "\n"


def _headed(message_type: str, generated: dict[str, Any]) -> dict[str, Any]:
    """Head a model's schema with its dialect and its name, which carries the message's type and major version.

    Pydantic titles every field by its own name in other letters: those say nothing and are dropped.
    """
    for model in (generated, *generated.get("$defs", {}).values()):
        for field in model.get("properties", {}).values():
            field.pop("title", None)
    return {"$schema": DIALECT, "$id": f"urn:{message_type.replace('.', ':')}", **generated}


def _whole(pattern: re.Pattern[str]) -> str:
    """A pattern that `fullmatch` uses, as JSON Schema needs it: JSON Schema searches."""
    return f"^{pattern.pattern}$"
