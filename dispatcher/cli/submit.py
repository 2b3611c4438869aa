"""`dispatcher submit`: puts requests into the request topic and prints their receipts."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from dispatcher.cli.app import Options
from dispatcher.cli.lines import LINE_MAX_BYTES, lines_of, read_input
from dispatcher.cli.rows import note, say, word
from dispatcher.errors import CallFailed, ConfigError, DispatcherError

if TYPE_CHECKING:
    from dispatcher.core.submission import Receipt, Submission


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(_submit)


def _submit(
    ctx: typer.Context,
    path: Annotated[str | None, typer.Argument(help="Path on the upstream, with one leading slash.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Lane key: what the call contends for, such as doc:42.")] = None,
    upstream: Annotated[str | None, typer.Option("-u", "--upstream", help="Alias of the callee.")] = None,
    method: Annotated[str | None, typer.Option("-m", "--method", help="HTTP method.", show_default="POST")] = None,
    data: Annotated[
        str | None, typer.Option("-d", "--data", metavar="BODY|@FILE|-", help="Body: JSON, unless -H content-type says else.")
    ] = None,
    request_id: Annotated[str | None, typer.Option("--id", help="Id of the request; a new one is made without.")] = None,
    header: Annotated[list[str] | None, typer.Option("-H", "--header", metavar="'NAME: VALUE'", help="Request header; repeatable.")] = None,
    credential: Annotated[str | None, typer.Option("--credential", help="Alias of the credential.")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout-s", help="Longest time of the call, seconds.")] = None,
    attempts_max: Annotated[int | None, typer.Option("--attempts-max", help="Most calls.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="Echoed in the reply.")] = None,
    jsonl: Annotated[
        str | None,
        typer.Option(
            "--jsonl",
            metavar="FILE|-",
            help='Many, one a line: {"key": "doc:42", "upstream": "crm", "path": "/x", …}, or what `requests --json` prints.',
        ),
    ] = None,
) -> None:
    """Submit one request, or with --jsonl many, and print a receipt for each: its id and where it stands."""
    options: Options = ctx.obj
    fields = {"upstream": upstream, "method": method, "path": path, "credential": credential}
    fields |= {"timeout_s": timeout_s, "attempts_max": attempts_max}  # type: ignore[dict-item] # one table of mixed values
    if jsonl is not None:
        if any(value is not None for value in (*fields.values(), key, data, request_id, metadata)) or header:
            raise ConfigError("--jsonl takes everything from its lines", "leave the other options of the request out")
        _submit_lines(options, jsonl)
        return
    if key is None or upstream is None or path is None:
        raise ConfigError("submit needs -k KEY, -u UPSTREAM and PATH, or --jsonl FILE", "dispatcher submit --help")
    value = _value({name: given for name, given in fields.items() if given is not None}, header or [], data, metadata)
    _submit_one(options, key, value, request_id)


def _submit_one(options: Options, key: str, value: bytes, request_id: str | None) -> None:
    from dispatcher import client
    from dispatcher.core.submission import request

    submission = request(key, value, client.stamp(request_id=request_id))
    with client.Submitter(options.settings(), timeout_s=options.timeout_s) as submitter:
        _print(submitter.submit(submission), options)


def _submit_lines(options: Options, path: str) -> None:
    """Submit a file of requests. A bad line is named and the others still go; a broker that is lost ends it."""
    from dispatcher import client

    batch = _Batch(path)
    with client.Submitter(options.settings(), timeout_s=options.timeout_s) as submitter:
        for outcome in submitter.submit_many(batch):
            if isinstance(outcome, DispatcherError):
                batch.failed(batch.open.popleft(), outcome)
            else:
                batch.open.popleft()
                _print(outcome, options)
    if batch.failures:
        lines = "line was" if batch.failures == 1 else "lines were"
        unread = ", and the rest was not read" if batch.lost else ""
        raise CallFailed(f"{batch.failures} {lines} not submitted{unread}", "the errors above name them")


class _Batch:
    """The lines of a file as submissions, in their order. `open` holds the numbers of those whose outcome is not known yet."""

    def __init__(self, path: str) -> None:
        self.open: deque[int] = deque()
        self.failures = 0
        self.lost = False
        self._path = path

    def __iter__(self) -> Iterator[Submission | None]:
        from dispatcher import client
        from dispatcher.core.submission import request_of_line

        for line in lines_of(self._path):
            if self.lost:
                return
            if line is None:
                yield None
                continue
            try:
                if line.content is None:
                    raise ConfigError(f"this is over {LINE_MAX_BYTES} bytes")
                submission = request_of_line(line.content, client.stamp())
            except ConfigError as error:
                self.failed(line.number, error)
                continue
            self.open.append(line.number)
            yield submission

    def failed(self, number: int, error: DispatcherError) -> None:
        """Name a line that did not go. When Kafka is gone, the next ones would only fail more slowly."""
        self.failures += 1
        self.lost = self.lost or not isinstance(error, ConfigError)
        note(f"error: line {number}: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))


def _print(receipt: Receipt, options: Options) -> None:
    if options.json:
        say(orjson.dumps(receipt.as_json()))
    else:
        say(f"{word(receipt.request_id)} {receipt.topic}/{receipt.partition}/{receipt.offset}")


def _value(fields: dict[str, Any], given: list[str], data: str | None, metadata: str | None) -> bytes:
    """Write the request's value. JSON goes in as it was typed, so that no number changes its digits."""
    headers = dict(_header(text) for text in given)
    if headers:
        fields["headers"] = headers
    if metadata is not None:
        fields["metadata"] = _json(
            metadata.encode("utf-8", "surrogateescape"), "--metadata is not JSON", "a text needs its quotes: '\"text\"'"
        )
    if data is not None:
        body = _content(data)
        kind = next((text for name, text in headers.items() if name.lower() == "content-type"), "application/json")
        kind = kind.partition(";")[0].strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            fields["body"] = _json(body, "the body is not JSON", "-H 'content-type: text/plain' sends it as it is")
        else:
            fields["body_base64"] = base64.b64encode(body).decode("ascii")
    return orjson.dumps(fields)


def _content(data: str) -> bytes:
    if data == "-" or data.startswith("@"):
        return read_input("-" if data in {"-", "@-"} else data[1:], LINE_MAX_BYTES)
    return data.encode("utf-8", "surrogateescape")


def _json(raw: bytes, fault: str, hint: str) -> orjson.Fragment:
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
