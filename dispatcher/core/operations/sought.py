"""What is known of a request whose reply is waited for: its name, where it stands, and from when on it may have been answered."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from dispatcher.core.messages.envelope import REQUEST_ID
from dispatcher.core.messages.request_id import time_ms_of
from dispatcher.core.messages.submission import Receipt
from dispatcher.errors import ConfigError

# Clocks of clients and workers that differ by more than this would be noticed elsewhere; and where a receipt says that the request is
# settled, its reply is looked for without regard to clocks.
SKEW_MS = 600_000

_POSITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>[0-9]{1,9})/(?P<offset>[0-9]{1,18})(?:@.{8})?")


@dataclass(frozen=True, slots=True)
class Sought:
    """`name` is an id or a position; `is_place`: a position without its topic's id.

    `since_ms` (since 1970): its reply cannot be older; None where that is not known.
    """

    name: str
    request: tuple[str, int, int] | None = None  # topic, partition, offset
    since_ms: int | None = None
    reply_topic: str | None = None
    reply_partition: int | None = None
    is_place: bool = False


def sought(of: Receipt | str, requests: Collection[str]) -> Sought:
    """Read a receipt, a request's id, or its position `topic/partition/offset`, with `@` and its topic's id or without. ConfigError.

    `requests` are the request topics: only there is a position one, elsewhere it is an id like any other. Ids are compared byte for byte.
    """
    if isinstance(of, Receipt):
        if not REQUEST_ID.fullmatch(of.request_id) and not _POSITION.fullmatch(of.request_id):
            raise ConfigError("the id of this receipt cannot be one", "`dispatcher submit --json` prints receipts")
        since_ms = _milliseconds(of.time) - SKEW_MS
        return Sought(of.request_id, (of.topic, of.partition, of.offset), since_ms, of.reply_topic, of.reply_partition)
    if (request := position(of, requests)) is not None:
        return Sought(of, request, is_place="@" not in of)
    if not REQUEST_ID.fullmatch(of):
        raise ConfigError("this is not the id of a request", "1 to 200 visible ASCII characters, or topic/partition/offset")
    made_ms = time_ms_of(of)
    return Sought(of, None, None if made_ms is None else made_ms - SKEW_MS)


def position(name: str, requests: Collection[str]) -> tuple[str, int, int] | None:
    """Read a position in a request topic, with `@` and its topic's id or without; None for every other name."""
    match = _POSITION.fullmatch(name)
    return None if match is None or match["topic"] not in requests else (match["topic"], int(match["partition"]), int(match["offset"]))


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError("the time of this receipt cannot be read", "`dispatcher submit --json` prints receipts") from None
