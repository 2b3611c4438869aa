"""`dispatcher submit`: puts requests into the request topic and prints their receipts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from dispatcher.cli import request
from dispatcher.cli.app import Options
from dispatcher.cli.lines import LINE_MAX_BYTES, lines_of
from dispatcher.cli.rows import note, say, word
from dispatcher.errors import CallFailed, ConfigError, DispatcherError

if TYPE_CHECKING:
    from dispatcher.core.messages.submission import Receipt, Submission
    from dispatcher.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(_submit)


def _submit(
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
    given = request.Given(
        *(path, key, upstream, method, data, request_id, header or [], deadline, credential, timeout_s, attempts_max),
        *(metadata, after_failure, repeat, priority, agent),
    )
    if jsonl is None:
        _submit_one(options, given)
    elif given.is_empty:
        _submit_lines(options, jsonl)
    else:
        raise ConfigError("--jsonl takes everything from its lines", "leave the other options of the request out")


def _submit_one(options: Options, given: request.Given) -> None:
    from dispatcher import client

    settings = options.request_settings()
    stamp = client.stamp(request_id=given.request_id, settings=settings)
    submission = given.request("submit", ", or --jsonl FILE").submission(stamp)
    with client.Submitter(settings, timeout_s=options.timeout_s) as submitter:
        _print(submitter.submit(submission), options)


def _submit_lines(options: Options, path: str) -> None:
    """Submit a file of requests. A bad line is named and the others still go; a broker that is lost ends it."""
    from dispatcher import client

    settings = options.request_settings()
    batch = _Batch(path, settings)
    with client.Submitter(settings, timeout_s=options.timeout_s) as submitter:
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

    def __init__(self, path: str, settings: Settings) -> None:
        self.open: deque[int] = deque()
        self.failures = 0
        self.lost = False
        self._path = path
        self._settings = settings

    def __iter__(self) -> Iterator[Submission | None]:
        from dispatcher import client
        from dispatcher.core.messages.submission import request_of_line

        for line in lines_of(self._path):
            if self.lost:
                return
            if line is None:
                yield None
                continue
            try:
                if line.content is None:
                    raise ConfigError(f"this is over {LINE_MAX_BYTES} bytes")
                submission = request_of_line(line.content, client.stamp(settings=self._settings))
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
