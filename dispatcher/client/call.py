"""What a program asks for: a `Call` (what to send to whom), and a `Request` (a call under a lane key). Pure values."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import orjson

from dispatcher.core.messages.envelope import REPLY_PARTITION, REPLY_TOPIC
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.submission import Stamp, Submission, request
from dispatcher.errors import ConfigError

AfterFailure = Literal["continue", "halt_key"]
Repeat = Literal["allowed", "never"]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP call on an upstream that the workers know by this alias. `path` is relative to its base URL, with one leading slash.

    `body` is sent as it is; where `is_json`, it stands readable in the request and is sent as application/json.
    """

    upstream: str
    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    is_json: bool = False

    @classmethod
    def http(
        cls,
        upstream: str,
        method: str,
        path: str,
        *,
        json: Any = None,  # noqa: ANN401 - whatever JSON can say
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """Make any call: with `json`, or with `content` and its content-type among `headers` (JSON keeps every digit as written).

        `json=None` is no body, as in httpx. Raises ConfigError for a body that is not what it says.
        """
        given = dict(headers or {})
        if json is not None:
            if content is not None:
                raise ConfigError("a call has json or content, not both")
            return cls(upstream, method.upper(), path, given, _dumped(json, "the JSON body"), is_json=True)
        if content is None:
            return cls(upstream, method.upper(), path, given)
        raw = content.encode() if isinstance(content, str) else content
        if not _says_json(given):
            return cls(upstream, method.upper(), path, given, raw)
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise ConfigError("the content is not JSON, and its content-type says that it is") from None
        return cls(upstream, method.upper(), path, given, raw, is_json=True)

    @classmethod
    def chat(
        cls,
        upstream: str,
        *,
        model: str,
        messages: Iterable[Mapping[str, Any]],
        **parameters: Any,  # noqa: ANN401 - whatever the callee's API takes
    ) -> Self:
        """Make a chat completion in OpenAI's form: `parameters` (temperature, tools, …) go into the body as they are."""
        body = {"model": model, "messages": list(messages), **parameters}
        return cls.http(upstream, "POST", "/chat/completions", json=body)


@dataclass(frozen=True, slots=True)
class Request:
    """A call under the key of its lane, and what the request says about it; what is None is left to the workers' settings.

    `request_id`: 1 to 200 visible ASCII characters, made when it is missing; it is the call's `Idempotency-Key`. `deadline`: from now, or
    a time with its zone. `credential`: an alias. `timeout_s` and `attempts_max`: within the upstream's own. `metadata`: any JSON, echoed.
    `after_failure`: `halt_key` holds the lane behind a dead letter until somebody resumes or skips (`dispatcher lanes`). `repeat`: `never`
    makes no second call of what may have been done, whatever happens; its reply may then be dead with the reason `outcome_unknown`.
    `priority`: 0 to 9, 9 is the most urgent and 4 usual; which of a worker's lanes that are ready calls first. `agent`: who asks, where
    workers share a lane among its agents. `class_`: its class, where there are some.
    """

    call: Call
    key: str
    request_id: str | None = None
    deadline: timedelta | datetime | None = None
    credential: str | None = None
    timeout_s: float | None = None
    attempts_max: int | None = None
    metadata: Any = None
    after_failure: AfterFailure | None = None
    repeat: Repeat | None = None
    priority: int | None = None
    agent: str | None = None
    class_: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `submit` beside the call."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "call"}

    def submission(self, stamp: Stamp, reply_to: tuple[Header, ...] = ()) -> Submission:
        """Write the request down. What a worker would surely refuse, a field whose feature is not built yet too, is a ConfigError."""
        call = self.call
        value: dict[str, Any] = {"upstream": call.upstream, "method": call.method, "path": call.path}
        if call.headers:
            value["headers"] = dict(call.headers)
        if call.body is not None:
            value |= {"body": orjson.Fragment(call.body)} if call.is_json else {"body_base64": base64.b64encode(call.body).decode("ascii")}
        optional = {"deadline": self._deadline(stamp), "credential": self.credential, "timeout_s": self.timeout_s}
        optional |= {"attempts_max": self.attempts_max, "repeat": self.repeat, "after_failure": self.after_failure}
        optional |= {"priority": self.priority, "agent": self.agent, "class": self.class_, "metadata": self.metadata}
        value |= {name: given for name, given in optional.items() if given is not None}
        made = request(self.key, _dumped(value, "the request"), stamp)
        return replace(made, headers=(*made.headers, *reply_to))

    def _deadline(self, stamp: Stamp) -> str | None:
        """Write the deadline as RFC 3339; a length of time counts from the time of the stamp."""
        end = self.deadline
        if isinstance(end, timedelta):
            end = datetime.fromisoformat(stamp.time) + end
        if end is None:
            return None
        if end.tzinfo is None:
            raise ConfigError("a deadline needs its zone", "datetime.now(UTC) + timedelta(minutes=5), or the timedelta alone")
        return end.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reply_to(topic: str | None, partition: int | None) -> tuple[Header, ...]:
    """Ask for the reply in a topic (one of the workers' `topics.reply_topics`) and partition; None leaves it where replies usually are.

    Raises ConfigError for what no topic or partition can be called.
    """
    if topic is not None and not _TOPIC.fullmatch(topic):
        raise ConfigError("reply_topic is not the name of a topic", "1 to 249 letters, digits, dots, dashes and underscores")
    if partition is not None and not 0 <= partition <= _PARTITION_MAX:
        raise ConfigError(f"reply_partition cannot be {partition}", "partitions have numbers from 0 on")
    headers: list[Header] = []
    if topic is not None:
        headers.append((REPLY_TOPIC[0], topic.encode()))
    if partition is not None:
        headers.append((REPLY_PARTITION, partition.to_bytes(4, "big")))
    return tuple(headers)


def _dumped(value: Any, what: str) -> bytes:  # noqa: ANN401 - whatever JSON can say
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ConfigError(f"{what} cannot be written as JSON: {error}") from None


def _says_json(headers: Mapping[str, str]) -> bool:
    kind = next((text for name, text in headers.items() if name.lower() == "content-type"), "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")
