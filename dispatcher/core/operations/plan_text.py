"""A plan as one word that a shell takes as it is: URL-safe base64 without padding of compressed JSON."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import orjson

# Far above what thousands of partitions take; a plan is typed or pasted, and must not unpack into more than it looks like.
PLAN_MAX_BYTES = 1024 * 1024
# What Kafka can count.
OFFSET_MAX = 2**63 - 1
PARTITIONS_MAX = 2**31 - 1
TOPIC_ID_BYTES = 16


def packed(fields: list[Any]) -> str:
    """Write a plan's fields, plain JSON, as text."""
    return base64.urlsafe_b64encode(zlib.compress(orjson.dumps(fields), 9)).decode("ascii").rstrip("=")


def unpacked(text: str) -> list[Any]:
    """Read what `packed` gave; ValueError for anything else, also for a text that lost its end."""
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), PLAN_MAX_BYTES)
        fields = orjson.loads(raw) if unpacker.eof else None
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from None
    if type(fields) is not list:
        raise ValueError("not a list of fields, or not all of it")
    return fields


def count(number: object) -> int:
    """Take a whole number that is not negative; ValueError for whatever else stands in the JSON."""
    if type(number) is not int or number < 0:
        raise ValueError("not a count")
    return number
