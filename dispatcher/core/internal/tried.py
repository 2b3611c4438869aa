"""What has happened to a request so far, as one record of the state topic: it outlives the worker that tried it.

    key       `attempts/<topic id>/<partition>/<offset>` of the request
    value     JSON: calls, failures, since when hints hold it, when its first call began, until when it waits and why; and whether a call
              may have been made that is not known to have ended (`begun`: the intent of a request that is called at most once);
              and what its answers were billed for, if they say so

The last record of a key counts, and a tombstone ends it. Times in it are wall clock, seconds since 1970.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from dispatcher.core.bounds import is_count, is_offset, is_time
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.account import Account
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.usage import Usage, read_usage

_VERSION = 1
_WHY = re.compile(r"[a-z_]{0,32}")
_KEY = re.compile(r"attempts/([A-Za-z0-9_-]{1,64})/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Tried:
    """What is known of the tries of the request at `offset`.

    `tries.hinted_since` is of one process's monotonic clock: it is None here, and `hinted_wall` travels. `at` is when this was known,
    `due` when the next attempt is (0: at once); `why` it waits: backoff, retry_after. `started_wall`: when the first call began.
    """

    offset: int
    tries: Tries
    at: float = 0.0
    due: float = 0.0
    why: str = ""
    hinted_wall: float | None = None
    started_wall: float | None = None
    begun: bool = False
    used: Usage | None = None

    def message(self, topic: str, topic_id_text: str, partition: int) -> Message:
        """The record to write to the state `topic`, into the partition of the request's number."""
        facts: dict[str, Any] = {
            "v": _VERSION,
            "calls": self.tries.calls,
            "failures": self.tries.failures,
            "hinted": self.hinted_wall,
            "started": self.started_wall,
            "at": self.at,
            "due": self.due,
            "why": self.why,
            "begun": self.begun,
        }
        if self.used is not None:
            facts["used"] = self.used.body()
        return Message(topic, partition, _key(topic_id_text, partition, self.offset), orjson.dumps(facts), ())

    def tries_at(self, instant: Instant) -> Tries:
        """The tries, on the monotonic clock that `instant` reads."""
        return replace(self.tries, hinted_since=mono_of(self.hinted_wall, instant))

    def started_at(self, instant: Instant) -> float | None:
        """When the first call began, on that clock; None where there was none."""
        return mono_of(self.started_wall, instant)

    def until_at(self, instant: Instant) -> float:
        """When the next attempt is due, on that clock; 0 for at once.

        Never later than if its whole wait began now: two machines' clocks differ.
        """
        if self.due == 0:
            return 0.0
        return instant.mono + min(self.due - instant.wall, max(0.0, self.due - self.at))


@dataclass(frozen=True, slots=True)
class Noted:
    """What the state topic says of a partition's requests, the last word of each; where their log ends, asked after that; and of accounts.

    A note at or beyond that end is of a request that the log has lost: the next one that comes gets its offset, and is another one.
    `accounts`: what keys have spent of their budgets.
    """

    tried: Iterable[Tried] = ()
    log_end: int = sys.maxsize
    accounts: Iterable[Account] = ()


NOTHING_NOTED = Noted()


@dataclass(frozen=True, slots=True)
class Note:
    """A record of the state topic on its way there: of the request at `offset`, whose key is `key`. Known by identity, not by content."""

    key: bytes | None
    offset: int
    message: Message


def tried(
    offset: int,
    tries: Tries,
    until: float,
    why: str,
    instant: Instant,
    started: float | None = None,
    *,
    begun: bool = False,
    used: Usage | None = None,
) -> Tried:
    """What is known now. `tries`, `until` (0: due at once) and `started` are of the monotonic clock that `instant` reads."""
    due = 0.0 if until == 0 else instant.wall + until - instant.mono
    plain = replace(tries, hinted_since=None)
    return Tried(offset, plain, instant.wall, due, why, wall_of(tries.hinted_since, instant), wall_of(started, instant), begun, used)


def forgotten(topic: str, topic_id_text: str, partition: int, offset: int) -> Message:
    """The tombstone of what is known of a request: written with its terminal reply, or with its move to the parked topic."""
    return Message(topic, partition, _key(topic_id_text, partition, offset), None, ())


def place_of(record: Record, topic_id_text: str) -> int | None:
    """Which request of the partition a record of the state topic is about; None where it is about none of this topic id."""
    match = _KEY.fullmatch(record.key.decode("latin-1")) if record.key is not None else None
    if match is None or (match[1], int(match[2])) != (topic_id_text, record.partition):
        return None
    offset = int(match[3])
    return offset if is_offset(offset) else None


def read_tried(record: Record, topic_id_text: str) -> Tried | None:
    """What a record of the state topic says; None for a tombstone, and for what is foreign, of another topic id, or corrupt.

    Of a corrupt one with our key nothing is known but that there was a call: it counts as begun, so that what must not be repeated is not.
    """
    offset = place_of(record, topic_id_text)
    if offset is None or record.value is None:
        return None
    facts = _facts(record.value)
    if facts is None:
        return Tried(offset, Tries(1), begun=True)
    tries = Tries(facts["calls"], facts["failures"])
    at, due = float(facts["at"]), float(facts["due"])
    return Tried(offset, tries, at, due, facts["why"], facts["hinted"], facts["started"], facts["begun"], read_usage(facts.get("used")))


def _facts(raw: bytes) -> dict[str, Any] | None:
    """The JSON of the value, every field of the kind that it must be."""
    try:
        facts = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(facts, dict) or facts.get("v") != _VERSION:
        return None
    right = has_tries(facts) and is_time(facts.get("at")) and type(facts.get("begun")) is bool
    return {"hinted": None, "started": None} | facts if right else None


def has_tries(facts: Mapping[str, Any]) -> bool:
    """Whether JSON says what notes and parked requests both say of tries, every field of the kind that it must be."""
    return (
        is_count(facts.get("calls"))
        and is_count(facts.get("failures"))
        and is_time(facts.get("due"))
        and all(facts.get(name) is None or is_time(facts[name]) for name in ("hinted", "started"))
        and isinstance(facts.get("why"), str)
        and _WHY.fullmatch(facts["why"]) is not None
    )


def _key(topic_id_text: str, partition: int, offset: int) -> bytes:
    return f"attempts/{topic_id_text}/{partition}/{offset}".encode()


def wall_of(mono: float | None, instant: Instant) -> float | None:
    """The wall-clock time of a monotonic one, as `instant` relates the two."""
    return None if mono is None else instant.wall - (instant.mono - mono)


def mono_of(wall: float | None, instant: Instant) -> float | None:
    """The monotonic time of a past wall-clock time: never in the future, since two machines' clocks differ."""
    return None if wall is None else instant.mono - max(0.0, instant.wall - wall)
