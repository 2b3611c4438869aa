"""A request that was moved aside: the original record, what has happened to it, and when it is due, as one record of the parked topic.

    key       `<topic id>/<partition>/<offset>` of the original: by lane key, compaction would eat all of a lane but the last
    value     the original's, byte for byte; empty where it has none, since a record without a value is a tombstone
    headers   the original's, then `dispatcher-parked-key` (the original's key, raw bytes) and `dispatcher-parked` (JSON, below)

The last record of a key counts, and a tombstone ends it. Times in it are wall clock, seconds since 1970: it outlives its process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import orjson

from dispatcher.core.bounds import is_offset
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.tried import has_tries, mono_of, wall_of
from dispatcher.core.messages.foresight import foresee
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.request import PRIORITY_USUAL
from dispatcher.core.messages.usage import Usage, read_usage

KEY_HEADER = "dispatcher-parked-key"
# Numbers, one word, the name of a model: its length does not depend on the request.
PARKED_HEADER = "dispatcher-parked"
# The most that a parked record is larger than its original, by the estimate of `size_bytes`.
OVERHEAD_MAX_BYTES = 1024

_VERSION = 1
_KEY = re.compile(r"([A-Za-z0-9_-]{1,64})/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Entry:
    """What an index keeps of a parked request; its payload is read again when it is due.

    `offset` of the original, `key` its lane's. `place` is its offset in the parked topic, -1 where that is not known. `due` in seconds
    since 1970, 0 for at once; `why` it waits: backoff, retry_after, breaker, paused, halted, queued. `deadline` in the same seconds, if it
    has one; its `priority`, and its `agent`.
    """

    offset: int
    key: bytes | None
    place: int
    size_bytes: int
    due: float
    why: str
    deadline: float | None = None
    priority: int = PRIORITY_USUAL
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked request. `record` is the original, where it stood and as it was.

    `tries.hinted_since` is of one process's monotonic clock: it is None here, and `hinted_wall` travels. `started_wall` is when the first
    call began. Who moves one aside uses `parked`, who takes one back `tries_at`, `started_at` and `until_at`.
    """

    record: Record
    tries: Tries
    due: float
    why: str
    hinted_wall: float | None = None
    started_wall: float | None = None
    used: Usage | None = None  # what its answers were billed for so far

    def message(self, topic: str, topic_id_text: str) -> Message:
        """The record to write to the parked `topic`, into the partition of the original's number."""
        record = self.record
        facts: dict[str, Any] = {
            "v": _VERSION,
            "calls": self.tries.calls,
            "failures": self.tries.failures,
            "hinted": self.hinted_wall,
            "started": self.started_wall,
            "due": self.due,
            "why": self.why,
            "ts": record.timestamp_ms,
            "has_value": record.value is not None,
            "has_headers": record.headers is not None,
        }
        if self.used is not None:
            facts["used"] = self.used.body()
        headers = (*(record.headers or ()), (KEY_HEADER, record.key), (PARKED_HEADER, orjson.dumps(facts)))
        return Message(topic, record.partition, parked_key(topic_id_text, record.partition, record.offset), record.value or b"", headers)

    def entry(self, place: int = -1) -> Entry:
        """What an index keeps of it."""
        record, told = self.record, foresee(self.record)
        return Entry(record.offset, record.key, place, record.size_bytes, self.due, self.why, told.deadline, told.priority, told.agent)

    def tries_at(self, instant: Instant) -> Tries:
        """What has happened so far, on the monotonic clock that `instant` reads."""
        return replace(self.tries, hinted_since=mono_of(self.hinted_wall, instant))

    def started_at(self, instant: Instant) -> float | None:
        """When the first call began, on that clock; None where there was none."""
        return mono_of(self.started_wall, instant)

    def until_at(self, instant: Instant) -> float:
        """When it is due, on that clock; 0 for at once."""
        return until_at(self.due, instant)


@dataclass(frozen=True, slots=True)
class About:
    """What a record of the parked topic says of a request: the original's offset, and how it is parked; None for that in a tombstone."""

    offset: int
    request: Parked | None


def parked(
    record: Record, tries: Tries, until: float, why: str, instant: Instant, started: float | None = None, used: Usage | None = None
) -> Parked:
    """The request as it travels. `tries`, `until` (0: due at once) and `started` are of the monotonic clock that `instant` reads."""
    due = 0.0 if until == 0 else instant.wall + until - instant.mono
    plain = replace(tries, hinted_since=None)
    return Parked(record, plain, due, why, wall_of(tries.hinted_since, instant), wall_of(started, instant), used)


def until_at(due: float, instant: Instant) -> float:
    """The monotonic time of `due`, wall clock, as `instant` relates the two; 0 stays 0, at once."""
    return 0.0 if due == 0 else instant.mono + due - instant.wall


def parked_key(topic_id_text: str, partition: int, offset: int) -> bytes:
    """The key of a parked request. `topic_id_text` is Kafka's id of the request topic, `offset` the original's."""
    return f"{topic_id_text}/{partition}/{offset}".encode()


def read_key(key: bytes | None) -> tuple[str, int, int] | None:
    """Topic id, partition and offset of the original; None for a key that is not ours."""
    match = _KEY.fullmatch(key.decode("latin-1")) if key is not None else None
    if match is None or not is_offset(offset := int(match[3])):
        return None
    return match[1], int(match[2]), offset


def tombstone(topic: str, topic_id_text: str, partition: int, offset: int) -> Message:
    """What ends a parked request: written with its terminal reply."""
    return Message(topic, partition, parked_key(topic_id_text, partition, offset), None, ())


def read_parked(record: Record, topic_id_text: str, requests_topic: str) -> Parked | None:
    """The request in a record of the parked topic; None for a tombstone, and for what is foreign, corrupt or of another topic id."""
    place = read_key(record.key)
    if place is None or place[:2] != (topic_id_text, record.partition) or record.value is None:
        return None
    if record.headers is None or [name for name, _ in record.headers[-2:]] != [KEY_HEADER, PARKED_HEADER]:
        return None
    facts = _facts(record.headers[-1][1])
    if facts is None:
        return None
    original = Record(
        requests_topic,
        record.partition,
        place[2],
        record.headers[-2][1],
        record.value if facts["has_value"] else None,
        record.headers[:-2] if facts["has_headers"] else None,
        facts["ts"],
    )
    tries = Tries(facts["calls"], facts["failures"])
    return Parked(original, tries, float(facts["due"]), facts["why"], facts["hinted"], facts["started"], read_usage(facts.get("used")))


def read_about(record: Record, topic_id_text: str, requests_topic: str) -> About | None:
    """What a record of the parked topic says; None where it says nothing of ours: it neither parks a request nor ends one."""
    one = read_parked(record, topic_id_text, requests_topic)
    if one is not None:
        return About(one.record.offset, one)
    if record.value is None and (key := read_key(record.key)) and key[:2] == (topic_id_text, record.partition):
        return About(key[2], None)
    return None


def _facts(raw: bytes | None) -> dict[str, Any] | None:
    """The JSON of the header, every field of the kind that it must be."""
    try:
        facts = orjson.loads(raw or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(facts, dict) or facts.get("v") != _VERSION:
        return None
    right = (
        has_tries(facts)
        and facts["why"] != ""
        and (facts.get("ts") is None or is_offset(facts["ts"]))
        and all(type(facts.get(name)) is bool for name in ("has_value", "has_headers"))
    )
    return {"hinted": None, "started": None, "ts": None} | facts if right else None
