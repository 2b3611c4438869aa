"""How a request ended, as one record of the journal: what answers those that are sent again under its id.

    key       the lane key, in the partition of the request's number
    value     JSON: `id` of the request, `of` (what makes it: `fingerprint.py`), `status`, `calls`, `at` (when it ended, seconds since
              1970), `offset` of the request and `topic_id` (its beginning) of its topic, `reply` (topic and partition), `redrive`

The reply itself is not in it, and neither is its offset, which nobody knows before the transaction is committed: it is found by its time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson

from dispatcher.core.bounds import is_count, is_offset, is_partition, is_time, is_topic
from dispatcher.core.messages.fingerprint import SIZE_BYTES
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.status import Status

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """`topic` is the journal's, `partition` and `offset` are the request's; `topic_id` is the beginning of Kafka's id of the request topic.

    `calls` made for it. `at` is the wall clock of who answered, in seconds; the reply was written then or a little later. `redrive_id` is
    empty but for what was redriven.
    """

    topic: str
    partition: int
    offset: int
    topic_id: str
    request_id: str
    key: bytes
    fingerprint: bytes
    status: Status
    calls: int
    at: float
    reply_topic: str
    reply_partition: int
    redrive_id: str = ""

    def message(self) -> Message:
        """The record to write, in the transaction of the reply."""
        facts: dict[str, object] = {
            "v": _VERSION,
            "id": self.request_id,
            "of": self.fingerprint.hex(),
            "status": self.status.value,
            "calls": self.calls,
            "at": round(self.at, 3),
            "offset": self.offset,
            "topic_id": self.topic_id,
            "reply": [self.reply_topic, self.reply_partition],
        }
        if self.redrive_id:
            facts["redrive"] = self.redrive_id
        return Message(self.topic, self.partition, self.key, orjson.dumps(facts), ())

    def answered(self, status: Status, reply_topic: str, reply_partition: int) -> Finished:
        """The same end where the reply that is published says something else, or stands elsewhere."""
        if (status, reply_topic, reply_partition) == (self.status, self.reply_topic, self.reply_partition):
            return self
        return replace(self, status=status, reply_topic=reply_topic, reply_partition=reply_partition)


def read_finished(record: Record, topic_id: str) -> Finished | None:
    """What a record of the journal says; None for what is foreign, corrupt, or of another request topic of this name."""
    try:
        facts = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        return None
    if record.key is None or not _is_ours(facts) or facts["topic_id"] != topic_id:
        return None
    return Finished(
        topic=record.topic,
        partition=record.partition,
        offset=facts["offset"],
        topic_id=topic_id,
        request_id=facts["id"],
        key=record.key,
        fingerprint=bytes.fromhex(facts["of"]),
        status=Status(facts["status"]),
        calls=facts["calls"],
        at=float(facts["at"]),
        reply_topic=facts["reply"][0],
        reply_partition=facts["reply"][1],
        redrive_id=facts.get("redrive", ""),
    )


def _is_ours(facts: Any) -> bool:  # noqa: ANN401 - whatever stands in the JSON
    return (
        isinstance(facts, dict)
        and facts.get("v") == _VERSION
        and all(isinstance(facts.get(name), str) for name in ("id", "topic_id"))
        and isinstance(facts.get("redrive", ""), str)
        and _is_fingerprint(facts.get("of"))
        and facts.get("status") in _STATUSES
        and is_count(facts.get("calls"))
        and is_offset(facts.get("offset"))
        and is_time(facts.get("at"))
        and _is_place(facts.get("reply"))
    )


_STATUSES = tuple(status.value for status in Status)


def _is_fingerprint(given: object) -> bool:
    if not isinstance(given, str) or len(given) != 2 * SIZE_BYTES:
        return False
    try:
        return len(bytes.fromhex(given)) == SIZE_BYTES
    except ValueError:
        return False


def _is_place(given: object) -> bool:
    return isinstance(given, list) and len(given) == 2 and is_topic(given[0]) and is_partition(given[1])
