"""One request as a command line says it: the options that `submit` and `ask` share, and what they mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, cast

import orjson
import typer

from dispatcher.cli.lines import LINE_MAX_BYTES, read_input
from dispatcher.core.durations import parse_duration
from dispatcher.core.instant import rfc3339_s
from dispatcher.errors import ConfigError

if TYPE_CHECKING:
    from dispatcher.client import Request
    from dispatcher.client.call import AfterFailure as Wanted
    from dispatcher.client.call import Repeat as Repeated

Path = Annotated[str | None, typer.Argument(help="Path on the upstream, with one leading slash.")]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Lane key: what the call contends for, such as doc:42.")]
Upstream = Annotated[str | None, typer.Option("-u", "--upstream", help="Alias of the callee.")]
Method = Annotated[str | None, typer.Option("-m", "--method", help="HTTP method.", show_default="POST")]
Data = Annotated[str | None, typer.Option("-d", "--data", metavar="BODY|@FILE|-", help="Body: JSON, unless -H content-type says else.")]
Id = Annotated[str | None, typer.Option("--id", help="Id of the request; a new one is made without.")]
Headers = Annotated[list[str] | None, typer.Option("-H", "--header", metavar="'NAME: VALUE'", help="Request header; repeatable.")]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="10m|TIME", help="No call begins later than so long from now, or than a time with its zone."),
]
Credential = Annotated[str | None, typer.Option("--credential", help="Alias of the credential.")]
CallTimeout = Annotated[float | None, typer.Option("--timeout-s", help="Longest time of the call, seconds.")]
AttemptsMax = Annotated[int | None, typer.Option("--attempts-max", help="Most calls.")]
AfterFailure = Annotated[
    str | None, typer.Option("--after-failure", metavar="continue|halt_key", help="What a dead letter does to the lane.")
]
Repeat = Annotated[
    str | None,
    typer.Option("--repeat", metavar="allowed|never", help="never: no second call of what may have been done, even after a crash."),
]
Priority = Annotated[int | None, typer.Option("--priority", metavar="0-9", help="9 is the most urgent.", show_default="4")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Who asks, where the agents of a lane share it.")]
Metadata = Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="Echoed in the reply.")]


@dataclass(frozen=True, slots=True)
class Given:
    """What stood on the command line about one request; None and an empty list where nothing did."""

    path: str | None
    key: str | None
    upstream: str | None
    method: str | None
    data: str | None
    request_id: str | None
    headers: list[str]
    deadline: str | None
    credential: str | None
    timeout_s: float | None
    attempts_max: int | None
    metadata: str | None
    after_failure: str | None
    repeat: str | None
    priority: int | None
    agent: str | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        single = (
            self.path,
            self.key,
            self.upstream,
            self.method,
            self.data,
            self.request_id,
            self.deadline,
            self.credential,
            self.metadata,
            self.after_failure,
            self.repeat,
            self.agent,
        )
        return not self.headers and all(value is None for value in (*single, self.timeout_s, self.attempts_max, self.priority))

    def request(self, command: str, instead: str = "") -> Request:
        """Make the request; `command` needs at least key, upstream and path, or what it takes `instead`. Raises ConfigError."""
        from dispatcher.client import Call, Request

        if self.key is None or self.upstream is None or self.path is None:
            raise ConfigError(f"{command} needs -k KEY, -u UPSTREAM and PATH{instead}", f"dispatcher {command} --help")
        headers = dict(_header(text) for text in self.headers)
        metadata = None
        if self.metadata is not None:
            raw = self.metadata.encode("utf-8", "surrogateescape")
            metadata = _json(raw, "--metadata is not JSON", "a text needs its quotes: '\"text\"'")
        body = None if self.data is None else _content(self.data)
        is_json = body is not None and _says_json(headers)
        if body is not None and is_json:
            _json(body, "the body is not JSON", "-H 'content-type: text/plain' sends it as it is")
        call = Call(self.upstream, self.method or "POST", self.path, headers, body, is_json)
        return Request(
            call,
            self.key,
            self.request_id,
            None if self.deadline is None else _deadline(self.deadline),
            self.credential,
            self.timeout_s,
            self.attempts_max,
            metadata,
            cast("Wanted", self.after_failure),  # what these may be, the model of a request says
            cast("Repeated", self.repeat),
            self.priority,
            self.agent,
        )


def _deadline(text: str) -> timedelta | datetime:
    """Read a length of time from now, or a time."""
    if (at := rfc3339_s(text)) is not None:
        return datetime.fromtimestamp(at, UTC)
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        hint = "for example 10m from now, or 2026-11-29T10:00:00Z"
        raise ConfigError("--deadline is neither a length of time nor an RFC 3339 date and time with its zone", hint) from None


def _content(data: str) -> bytes:
    if data == "-" or data.startswith("@"):
        return read_input("-" if data in {"-", "@-"} else data[1:], LINE_MAX_BYTES)
    return data.encode("utf-8", "surrogateescape")


def _says_json(headers: dict[str, str]) -> bool:
    kind = next((text for name, text in headers.items() if name.lower() == "content-type"), "application/json")
    kind = kind.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _json(raw: bytes, fault: str, hint: str) -> orjson.Fragment:
    """Check JSON and pass it on as it was typed, so that no number changes its digits."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise ConfigError(fault, hint) from None
    return orjson.Fragment(raw)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"header {json.dumps(text[:64])} is not 'NAME: VALUE'", "for example -H 'content-type: text/plain'")
    return name.strip(), value.strip()
