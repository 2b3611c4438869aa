"""What a client submits, and what it gets for it. Pure: ids, clock and topics are arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from dispatcher.core.messages.classes import Classes
from dispatcher.core.messages.envelope import REQUEST_ID, REQUEST_TYPE
from dispatcher.core.messages.members import members
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.record_json import Shown, content_of, raw_of, shown
from dispatcher.core.messages.request import KEY_MAX_BYTES, RequestBody, never, refusal_of
from dispatcher.errors import ConfigError

# What Kafka has: signed integers of 32 and 64 bits, and names of topics.
_PARTITION_MAX = 2**31 - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Submission:
    """A record for the request topic. `request_id` is its `ce_id`; None where it has none, and its position becomes its id.

    `topic`: where there are several request topics that of its class, or where it is only about a request another one.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    request_id: str | None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a new request is marked with: an id for one that brings none, who made it, and when (RFC 3339).

    `publishing`: how the workers publish that it is for, as far as its maker knows; `classes`: those that they have.
    """

    request_id: str
    source: str
    time: str
    publishing: str = "exactly_once"
    classes: Classes = field(default_factory=Classes)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The acknowledgement of a submitted request: where it stands. JSON, so that another process may wait for its reply.

    `reply_topic` and `reply_partition` are where a reply was asked for; None is the usual place, the request's partition number.
    """

    request_id: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    time: str  # RFC 3339, as the record has it
    reply_topic: str | None = None
    reply_partition: int | None = None

    def as_json(self) -> dict[str, str | int | Shown]:
        """Give the receipt as a JSON object; a key that is not UTF-8 as `{"base64": …}`, an unusual place of the reply beside it."""
        place: dict[str, str | int | Shown] = {"request_id": self.request_id, "topic": self.topic, "partition": self.partition}
        place |= {"offset": self.offset, "key": shown(self.key), "time": self.time}
        unusual = {"reply_topic": self.reply_topic, "reply_partition": self.reply_partition}
        return place | {name: given for name, given in unusual.items() if given is not None}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Receipt:
        """Read what `as_json` gave. Raises ConfigError."""
        try:
            topic, number = fields.get("reply_topic"), fields.get("reply_partition")
            return cls(
                _text(fields["request_id"]),
                _topic(fields["topic"]),
                _number(fields["partition"], _PARTITION_MAX),
                _number(fields["offset"], _OFFSET_MAX),
                raw_of(fields["key"], "field key"),
                _text(fields["time"]),
                None if topic is None else _topic(topic),
                None if number is None else _number(number, _PARTITION_MAX),
            )
        except (KeyError, TypeError, ValueError):
            raise ConfigError("this is not a receipt", "`dispatcher submit --json` prints them") from None


def request(key: str, value: bytes, stamp: Stamp) -> Submission:
    """Make a new request of a lane key and a JSON value. What a worker would surely refuse is refused here: ConfigError."""
    try:
        raw_key = key.encode("utf-8")
        body = RequestBody.model_validate_json(value)
        refusal = never(body)
    except ValidationError as error:
        raise ConfigError(refusal_of(error).message, "schemas/request.schema.json says what a request is") from None
    except UnicodeEncodeError:
        raise ConfigError("the key is not UTF-8") from None
    except RecursionError:
        raise ConfigError("the request is nested too deeply") from None
    if refusal is not None:
        raise ConfigError(refusal.message, "nothing was sent: a worker would make a dead letter of it")
    if body.repeat == "never" and stamp.publishing != "exactly_once":
        raise ConfigError('repeat "never" is kept only where worker.publishing is "exactly_once"', "nothing was sent")
    if not 0 < len(raw_key) <= KEY_MAX_BYTES:
        raise ConfigError(f"the key has {len(raw_key)} bytes: it needs 1 to {KEY_MAX_BYTES}", "the key names the lane, such as doc:42")
    if not REQUEST_ID.fullmatch(stamp.request_id):
        raise ConfigError("the id is not 1 to 200 visible ASCII characters", "it travels as the header Idempotency-Key")
    return Submission(raw_key, value, _headers(stamp), stamp.request_id, stamp.classes.topic_of(body.class_))


def request_of_line(line: bytes, stamp: Stamp) -> Submission:
    """Read one line of `submit --jsonl`: a record as `--json` prints it, taken byte for byte, or a request with `key` and maybe `id`."""
    try:
        text = line.decode("utf-8")
        fields = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ConfigError("this is nested too deeply") from None
    except ValueError:
        raise ConfigError("this is not JSON", "one JSON object a line") from None
    if not isinstance(fields, dict):
        raise ConfigError("this is not a JSON object", "one JSON object a line")
    if isinstance(fields.get("value"), dict) and "base64" not in fields["value"]:
        raise ConfigError(
            "field value is an object: the fields of a request stand beside key", '{"key": "doc:42", "upstream": "crm", "path": "/x"}'
        )
    if "value" in fields and "upstream" not in fields:
        copy = copy_of(*content_of(fields))
        return replace(copy, topic=stamp.classes.topic_of_copy(copy.value, fields.get("topic")))
    key, given = fields.pop("key", None), fields.pop("id", None)
    if not isinstance(key, str):
        raise ConfigError("field key is missing or not text", "the key names the lane, such as doc:42")
    if given is not None and not isinstance(given, str):
        raise ConfigError("field id is not text")
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        raise ConfigError("this holds a number out of range, or half of a surrogate pair") from None
    # As it was written: numbers that are read and written again lose digits.
    parts = (f"{json.dumps(name)}:{part}" for name, part in members(text).items() if name in fields)
    return request(key, f"{{{','.join(parts)}}}".encode(), stamp if given is None else replace(stamp, request_id=given))


def copy_of(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> Submission:
    """Make a submission of a record that exists: nothing is added, so nothing is checked; the worker judges it."""
    first = next((content for name, content in headers if name == "ce_id"), None)
    text = (first or b"").decode("utf-8", "replace")
    return Submission(key, value, headers, text if REQUEST_ID.fullmatch(text) else None)


def _headers(stamp: Stamp) -> tuple[Header, ...]:
    texts = {
        "ce_id": stamp.request_id,
        "ce_type": REQUEST_TYPE,
        "ce_source": stamp.source,
        "ce_time": stamp.time,
        "ce_specversion": "1.0",
        "content-type": "application/json",
    }
    return tuple((name, text.encode("utf-8")) for name, text in texts.items())


def _text(given: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    """Take a field of a receipt; ValueError where it is no text, or empty."""
    if not isinstance(given, str) or not given:
        raise ValueError("not text")
    return given


def _topic(given: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    """Take a field of a receipt; ValueError where no topic can have this name."""
    if not _TOPIC.fullmatch(_text(given)):
        raise ValueError("not a topic")
    return _text(given)


def _number(given: Any, most: int) -> int:  # noqa: ANN401 - whatever JSON can say
    """Take a field of a receipt; ValueError where Kafka has no such number."""
    if type(given) is not int or not 0 <= given <= most:
        raise ValueError("not such a number")
    return given


def _no_constant(name: str) -> float:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)
