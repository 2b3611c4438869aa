"""A dead letter: the original record, byte-identical, and one bounded set of error headers that says why it is here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from dispatcher.core.messages.record import HEADER_OVERHEAD_BYTES, Header, Message, Record, bounded
from dispatcher.core.messages.status import Reason

PREFIX = "__dispatcher.errors."
ORIGINAL_TOPIC = "kafka_dlt-original-topic"
# Stands where the original's headers cannot: their names are unreadable, or they are larger than the topic takes.
UNREADABLE = f"{PREFIX}headers"
# The whole set stays below 4 KiB: one message, a dozen short texts (a topic's name has at most 249 characters), hashes.
MESSAGE_MAX_BYTES = 1000
TEXT_MAX_BYTES = 250
# What is kept of a record that its topic cannot take (SURFACE: 64 KiB); where even that is too much, a glimpse.
KEPT_BYTES = (64 * 1024, 1024)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What could not succeed, and why. `partition` is the record's own; the topic has as many."""

    record: Record
    topic: str
    partition: int
    group: str
    reason: Reason
    message: str
    stage: str  # decode, call, publish
    kind: str  # the error's own class, never a wrapper's
    attempts: int = 0
    http_status: int | None = None
    upstream: str | None = None
    cuts: int = 0

    def letter(self) -> Message:
        """The record to publish."""
        key, value, headers = self.record.key, self.record.value, self._original_headers()
        extra: tuple[Header, ...] = ()
        if self.cuts:
            key, value, headers, extra = _hashed(self.record, headers, KEPT_BYTES[self.cuts - 1])
        return Message(self.topic, self.partition, key, value, (*headers, *self._errors(), *extra))

    def cut(self) -> DeadLetter:
        """The same letter where the topic cannot take it: the record's hash and first 64 KiB, then 1 KiB, marked `too_large`."""
        return replace(self, cuts=min(self.cuts + 1, len(KEPT_BYTES)), reason=Reason.TOO_LARGE)

    def _original_headers(self) -> tuple[Header, ...]:
        if self.record.headers is None:
            return ((UNREADABLE, b"unreadable"),)
        return tuple(header for header in self.record.headers if not header[0].startswith(PREFIX) and header[0] != ORIGINAL_TOPIC)

    def _errors(self) -> tuple[Header, ...]:
        record = self.record
        texts = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": "" if record.timestamp_ms is None else str(record.timestamp_ms),
            "group": self.group,
            "delivery.count": str(self.attempts),
            "stage": self.stage,
            "exception.class.name": self.kind,
            "message": self.message,
            "reason": self.reason.value,
        }
        if self.http_status is not None:
            texts["http.status"] = str(self.http_status)
        if self.upstream is not None:
            texts["upstream"] = self.upstream
        named = tuple(
            (PREFIX + name, bounded(text, MESSAGE_MAX_BYTES if name == "message" else TEXT_MAX_BYTES)) for name, text in texts.items()
        )
        return (*named, (ORIGINAL_TOPIC, record.topic.encode()))


def _hashed(
    record: Record, headers: tuple[Header, ...], kept_bytes: int
) -> tuple[bytes | None, bytes | None, tuple[Header, ...], tuple[Header, ...]]:
    """Key, value and headers within `kept_bytes` each, and the headers that say what was cut."""
    key, value = record.key, record.value
    extra: list[Header] = []
    if value is not None:
        digest = hashlib.sha256(value).hexdigest()
        extra += [(f"{PREFIX}value.sha256", digest.encode()), (f"{PREFIX}value.bytes", str(len(value)).encode())]
        value = value[:kept_bytes]
    if sum(len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES for name, content in headers) > kept_bytes:
        headers = ((UNREADABLE, b"too_large"),)
    if key is not None and len(key) > kept_bytes:
        extra.append((f"{PREFIX}key.sha256", hashlib.sha256(key).hexdigest().encode()))
        key = key[:1024]
    return key, value, headers, tuple(extra)
