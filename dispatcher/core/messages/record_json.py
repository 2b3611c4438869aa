"""A record as one JSON object, byte-faithful both ways: what `--json` prints, `submit --jsonl` takes.

`topic partition offset ts key headers value`: `ts` in milliseconds since 1970 or null, headers a list of `[name, value]` (null where
the client could not read a name), bytes as text where they are UTF-8 and as `{"base64": …}` where they are not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import orjson

from dispatcher.core.messages.record import Header, Record
from dispatcher.errors import ConfigError

FIELDS = frozenset({"topic", "partition", "offset", "ts", "key", "headers", "value"})
Shown = str | dict[str, str] | None


def shown(raw: bytes | None) -> Shown:
    """Show bytes as text where they are UTF-8, else as base64; None stays None."""
    if raw is None:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode("ascii")}


def raw_of(value: Any, name: str) -> bytes | None:  # noqa: ANN401 - whatever stands in the JSON
    """Give back the bytes that `shown` showed. Raises ConfigError that names the field."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(f"{name} holds half of a surrogate pair", 'write what is not text as {"base64": "…"}') from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{name} is not base64") from None
    raise ConfigError(f"{name} is neither text nor null", 'write what is not text as {"base64": "…"}')


def record_object(record: Record) -> dict[str, Any]:
    """Give the object of a record, its names in the order of the contract."""
    headers = None if record.headers is None else [[name, shown(content)] for name, content in record.headers]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "ts": record.timestamp_ms,
        "key": shown(record.key),
        "headers": headers,
        "value": shown(record.value),
    }


def record_line(record: Record) -> bytes:
    """Give the object of a record as one line of JSON, without its end of line."""
    return orjson.dumps(record_object(record))


def content_of(fields: Mapping[str, Any]) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    """Take key, value and headers out of a record's object; where it stood before is not looked at. Raises ConfigError."""
    for name in fields:
        if name not in FIELDS:
            raise ConfigError(
                f"unknown field {name[:64]!r} beside a record's", "a record has topic, partition, offset, ts, key, headers and value"
            )
    for name in ("key", "value"):
        if name not in fields:
            raise ConfigError(f"field {name} is missing", "null stands for none")
    return raw_of(fields["key"], "field key"), raw_of(fields["value"], "field value"), _headers(fields.get("headers", []))


def _headers(listed: Any) -> tuple[Header, ...]:  # noqa: ANN401 - whatever stands in the JSON
    if listed is None:
        raise ConfigError("the headers of this record could not be read", "its header names are not UTF-8: give headers, or [] for none")
    if not isinstance(listed, list):
        raise ConfigError("field headers is not a list", "write it as [[name, value], …]")
    headers: list[Header] = []
    for pair in listed:
        if not (isinstance(pair, list) and len(pair) == len(("name", "value")) and isinstance(pair[0], str) and pair[0].isprintable()):
            raise ConfigError("a header is not [name, value]", "write them as [[name, value], …]")
        headers.append((pair[0], raw_of(pair[1], f"header {pair[0][:64]}")))
    return tuple(headers)
