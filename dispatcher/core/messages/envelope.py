"""What the headers of a request say: its identity, where its reply goes, and what is echoed untouched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dispatcher.core.messages.dead_letter import PREFIX
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.status import Reason

REQUEST_TYPE = "dispatcher.request.v1"
# Echoed byte for byte under the name they came with: Spring sends 16 raw bytes, others a text.
CORRELATION = ("kafka_correlationId", "correlation_id")
TRACE = ("traceparent", "tracestate")
REPLY_TOPIC = ("kafka_replyTopic", "reply_to")
REPLY_PARTITION = "kafka_replyPartition"
# Of a dead letter that is executed once more, under the id that it had.
REDRIVE_ID = "dispatcher-redrive-id"
# Of a request that a replay made of another one.
REPLAY_OF = "dispatcher-replay-of"
REPLAY_ID = "dispatcher-replay-id"
REPLAYED_FROM = "dispatcher-replayed-from"
# Headers that this product reads: each may stand once, and must have a value.
CLOUD_EVENTS = ("ce_id", "ce_type", "ce_source", "ce_time", "ce_specversion", "ce_dataschema")
KNOWN = frozenset({*CLOUD_EVENTS, "content-type", REPLY_PARTITION, REDRIVE_ID, *CORRELATION, *TRACE, *REPLY_TOPIC})
# The id travels as an Idempotency-Key header and in logs: visible ASCII, of a length that both take.
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")
ECHO_MAX_BYTES = 4096
REDRIVE_ID_MAX = 200
# Each record is at one place, whatever it was sent in as.
_DIED_AT = frozenset({f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"})
# Characters of Kafka's topic id in a position id: as many as tell topics of one name apart.
TOPIC_ID_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of a request from its position and headers alone; a refused record has one too, so that it can be answered."""

    request_id: str
    position_id: str  # `<topic>/<partition>/<offset>@<topic id>`: unique also after the topic is made anew
    reply_topic: str
    reply_partition: int
    echoed: tuple[Header, ...] = ()
    trace: tuple[tuple[str, str], ...] = ()
    redrive_id: str = ""  # of a dead letter that is executed once more; empty for other requests

    @property
    def is_named(self) -> bool:
        """Whether its sender gave it its id: another request may have that one too."""
        return self.request_id != self.position_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record is not executed: a reason of the closed list and one sentence for its sender."""

    reason: Reason
    message: str


def position_id(record: Record, topic_id: str) -> str:
    """The id of a request whose producer gave none. `topic_id` is Kafka's, as text; its beginning is used."""
    return f"{record.topic}/{record.partition}/{record.offset}@{topic_id[:TOPIC_ID_SHOWN]}"


def plain_envelope(record: Record, topic_id: str, default_topic: str, reply_topics: Mapping[str, int]) -> Envelope:
    """The envelope of a record whose headers say nothing; arguments as in `read_envelope`."""
    name = position_id(record, topic_id)
    return Envelope(name, name, default_topic, record.partition % reply_topics[default_topic])


def read_envelope(record: Record, topic_id: str, default_topic: str, reply_topics: Mapping[str, int]) -> tuple[Envelope, Refusal | None]:
    """The envelope of `record`, and why it is refused, if it is.

    `reply_topics` maps each topic that may be written to its number of partitions and holds `default_topic`. A refused record's
    envelope keeps whatever could be read, and the default reply topic where the one asked for may not be written.
    """
    plain = plain_envelope(record, topic_id, default_topic, reply_topics)
    if record.headers is None:
        return plain, Refusal(Reason.MALFORMED, "a header's name is not UTF-8")
    given: dict[str, bytes] = {}
    fault: Refusal | None = None
    for header, content in record.headers:
        if header not in KNOWN:
            continue
        if header in given or content is None:
            fault = fault or Refusal(Reason.MALFORMED, f"header {header} {'stands twice' if header in given else 'has no value'}")
            continue
        given[header] = content
    envelope, unread = _texts(plain, given, record.headers)
    envelope, unwritable = _reply_to(envelope, given, record.partition, reply_topics)
    return envelope, fault or unread or _version(given) or unwritable


def _texts(plain: Envelope, given: Mapping[str, bytes], headers: Iterable[Header]) -> tuple[Envelope, Refusal | None]:
    fault: Refusal | None = None
    echoed = tuple((name, given[name]) for name in CORRELATION if name in given)
    if sum(len(content) for _, content in echoed) > ECHO_MAX_BYTES:
        echoed, fault = (), Refusal(Reason.MALFORMED, f"the correlation id is over {ECHO_MAX_BYTES} bytes")
    # A broken trace context is dropped, never a reason to refuse: so says W3C Trace Context.
    trace = tuple((name, text) for name in TRACE if (text := _visible(given.get(name))) is not None)
    request_id = plain.request_id
    if (raw := given.get("ce_id")) is not None:
        text = _visible(raw)
        if text is not None and REQUEST_ID.fullmatch(text):
            request_id = text
        else:
            fault = fault or Refusal(Reason.MALFORMED, "header ce_id is not 1 to 200 visible ASCII characters")
    redrive_id = _letter_id(headers)
    if (raw := given.get(REDRIVE_ID)) is not None:
        redrive_id = _visible(raw) or ""
        if not REQUEST_ID.fullmatch(redrive_id):
            fault = fault or Refusal(Reason.MALFORMED, f"header {REDRIVE_ID} is not 1 to 200 visible ASCII characters")
    return replace(plain, request_id=request_id, echoed=echoed, trace=trace, redrive_id=redrive_id), fault


def _letter_id(headers: Iterable[Header]) -> str:
    """What stands for a redrive id in a dead letter that is sent in as it is: where the record stood that died; empty for other records."""
    place = [content or b"" for name, content in headers if name in _DIED_AT]
    return b"/".join(place).decode("ascii", "replace")[:REDRIVE_ID_MAX] if place else ""


def _visible(raw: bytes | None) -> str | None:
    if raw is None or len(raw) > 1024 or not raw.isascii():
        return None
    text = raw.decode("ascii")
    return text if text.isprintable() else None


def _version(given: Mapping[str, bytes]) -> Refusal | None:
    spec = given.get("ce_specversion", b"1.0")
    if spec.partition(b".")[0] != b"1":
        return Refusal(Reason.UNSUPPORTED_SCHEMA, "header ce_specversion is not 1.x")
    if given.get("ce_type", REQUEST_TYPE.encode()) != REQUEST_TYPE.encode():
        return Refusal(Reason.UNSUPPORTED_SCHEMA, f"header ce_type is not {REQUEST_TYPE}")
    kind = given.get("content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        return Refusal(Reason.UNSUPPORTED_SCHEMA, "header content-type is not application/json")
    return None


def _reply_to(
    envelope: Envelope, given: Mapping[str, bytes], partition: int, reply_topics: Mapping[str, int]
) -> tuple[Envelope, Refusal | None]:
    """Where the reply goes: `kafka_replyTopic` before `reply_to`, a partition of it as a 4-byte big-endian integer."""
    topic = envelope.reply_topic
    for name in REPLY_TOPIC:
        if name in given:
            asked = given[name].decode("utf-8", "replace")
            if asked not in reply_topics:
                return envelope, Refusal(Reason.REPLY_TOPIC_FORBIDDEN, f"header {name} asks for a topic that is not in topics.reply_topics")
            topic = asked
            break
    count = reply_topics[topic]
    number = partition % count
    if (raw := given.get(REPLY_PARTITION)) is not None:
        if len(raw) != 4:
            return envelope, Refusal(Reason.MALFORMED, f"header {REPLY_PARTITION} is not a 4-byte big-endian integer")
        number = int.from_bytes(raw, "big", signed=True)
        if not 0 <= number < count:
            return envelope, Refusal(Reason.REPLY_TOPIC_FORBIDDEN, f"the reply topic has no partition {number}")
    return replace(envelope, reply_topic=topic, reply_partition=number), None
