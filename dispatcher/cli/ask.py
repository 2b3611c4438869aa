"""`dispatcher ask` and `dispatcher wait`: the reply to one request, its body on stdout."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli import request
from dispatcher.cli.app import Options
from dispatcher.cli.lines import LINE_MAX_BYTES, read_input
from dispatcher.cli.rows import note, say, word
from dispatcher.errors import AskTimeout, CallFailed, ConfigError, SubmitUnknown, WaitTimeout

if TYPE_CHECKING:
    from dispatcher.client import Receipt, Reply

# A request that was submitted; `wanted` reads it.
Named = Annotated[
    str,
    typer.Argument(metavar="ID|@FILE|-", help="Id of the request, or topic/partition/offset; or its receipt (JSON) in a file or on stdin."),
]
# As the Python client's: a lane may be busy with one call for a minute.
ASK_TIMEOUT_S = 120.0
# An acknowledgement takes milliseconds, an election of a leader seconds.
ACK_TIMEOUT_S = 30.0


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("ask")(_ask)
    app.command("wait")(_wait)


def _ask(
    ctx: typer.Context,
    path: request.Path = None,
    key: request.Key = None,
    upstream: request.Upstream = None,
    method: request.Method = None,
    data: request.Data = None,
    request_id: request.Id = None,
    header: request.Headers = None,
    deadline: request.Deadline = None,
    credential: request.Credential = None,
    timeout_s: request.CallTimeout = None,
    attempts_max: request.AttemptsMax = None,
    metadata: request.Metadata = None,
    after_failure: request.AfterFailure = None,
    repeat: request.Repeat = None,
    priority: request.Priority = None,
    agent: request.Agent = None,
) -> None:
    """Submit one request and wait for its reply: the body on stdout, how it ended on stderr. Within --timeout (default: 2m).

    Exit code 1 when the call failed. 4 when no reply came in time: the request is executed all the same, and `dispatcher wait` with the
    id that is printed gets its reply. So it is after Ctrl-C.
    """
    from dispatcher.client import SyncDispatcher, stamp

    options: Options = ctx.obj
    within_s = options.timeout_s or ASK_TIMEOUT_S
    given = request.Given(
        *(path, key, upstream, method, data, request_id, header or [], deadline, credential, timeout_s, attempts_max),
        *(metadata, after_failure, repeat, priority, agent),
    )
    asked = given.request("ask")
    hear(options)
    asked = replace(asked, request_id=stamp(request_id=asked.request_id).request_id)  # to be told, whatever happens
    with SyncDispatcher(options.request_settings(), ack_timeout_s=min(ACK_TIMEOUT_S, within_s)) as client:
        try:
            reply = client.ask(asked.call, timeout=within_s, **asked.options)
        except AskTimeout as error:
            hint = f"it will be answered: dispatcher wait {word(error.receipt.request_id)}"
            raise AskTimeout(error.message, hint, receipt=error.receipt) from None
        except SubmitUnknown as error:
            name = word(error.request_id)
            hint = f"it may be in the topic: dispatcher show {name} tells; to send it again: --id {name}"
            raise SubmitUnknown(error.message, hint, request_id=error.request_id) from None
        except KeyboardInterrupt:
            note(f"hint: if it was sent, it will be answered: dispatcher wait {word(asked.request_id)}")
            raise
    _answer(options, reply)


def _wait(
    ctx: typer.Context,
    request_id: Named,
) -> None:
    """Wait for the reply to a request that was submitted: the body on stdout, how it ended on stderr. Without --timeout for ever.

    Exit code 1 when the call failed, 4 when no reply came in time.
    """
    from dispatcher.client import SyncDispatcher

    options: Options = ctx.obj
    given = wanted(request_id)
    hear(options)
    with SyncDispatcher(options.request_settings()) as client:
        try:
            reply = client.wait(given, timeout=options.timeout_s)
        except WaitTimeout as error:
            name = given if isinstance(given, str) else given.request_id
            raise WaitTimeout(error.message, f"`dispatcher show {word(name)}` says where it stands") from None
    _answer(options, reply)


class _Notes(logging.Handler):
    """Says on stderr what the client has to say while somebody waits for it."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"note: {record.getMessage()}")


def hear(options: Options) -> None:
    """Let what the client says while somebody waits come out on stderr."""
    if not options.quiet:
        logging.getLogger("dispatcher.client").addHandler(_Notes())


def wanted(given: str) -> Receipt | str:
    """Read an id, or a receipt. Raises ConfigError."""
    from dispatcher.client import Receipt

    if given != "-" and not given.startswith(("@", "{")):
        return given
    text = given.encode("utf-8", "surrogateescape") if given.startswith("{") else read_input(given.removeprefix("@"), LINE_MAX_BYTES)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise ConfigError("this is not a receipt", "`dispatcher submit --json` prints them, one a line: give one")
    return Receipt.from_json(fields)


def _answer(options: Options, reply: Reply) -> None:
    """Print a reply, and end as the call did."""
    if options.json:
        say(_record_line(options, reply))
    else:
        _print_body(reply.content)
    if not options.quiet:
        note(_status(reply))
    if not reply.ok:
        reply.raise_for_status()


def _print_body(body: bytes) -> None:
    """Write the body as it is; on a terminal the prompt then stands on a line of its own."""
    out = sys.stdout.buffer
    out.write(body)
    if body and not body.endswith(b"\n") and sys.stdout.isatty():
        out.write(b"\n")
    out.flush()


def _status(reply: Reply) -> str:
    """Say how a request ended, in one line."""
    words = [reply.status.value]
    if reply.reason is not None:
        words.append(f"({reply.reason.value})")
    if reply.http is not None:
        words.append(f"http {reply.http.status}")
    calls = "1 call" if reply.attempts == 1 else f"{reply.attempts} calls"
    told = [f"request {word(reply.request_id)}", f"{calls} in {reply.duration_ms} ms"]
    return f"{' '.join(words)}: {', '.join(told)}, reply {reply.topic}/{reply.partition}/{reply.offset}"


def _record_line(options: Options, reply: Reply) -> bytes:
    """Give the whole record of a reply, headers too, as `replies --json` prints it: read again from where it stands."""
    from dispatcher.client import Query, replies
    from dispatcher.core.messages.record_json import record_line
    from dispatcher.core.operations.positions import Anchor, Position, Span

    span = Span(Position(Anchor.OFFSET, reply.offset), Position(Anchor.OFFSET, reply.offset + 1))
    query = Query(span, (reply.partition,), until_end=True)
    with replies(options.request_settings(), query, topic=reply.topic, timeout_s=options.timeout_s) as search:
        record = next(iter(search), None)
    if record is None:
        raise CallFailed("the reply came and is not in its topic any more", f"request {word(reply.request_id)}")
    return record_line(record)
