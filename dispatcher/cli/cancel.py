"""`dispatcher cancel`: have a request ended, and see how it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from dispatcher.cli import ask
from dispatcher.cli.app import Options
from dispatcher.cli.rows import say, word
from dispatcher.core.messages.status import Status
from dispatcher.errors import RefusedError

if TYPE_CHECKING:
    from dispatcher.client import Reply


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cancel")(_cancel)


def _cancel(
    ctx: typer.Context,
    request_id: ask.Named,
    reason: Annotated[str, typer.Option("--reason", help="Why; the reply says so.", show_default=False)] = "",
) -> None:
    """Cancel a request: what waits ends without a further call, a call that runs is cut off. Waits for its end, --timeout (default: 30s).

    Exit code 0 when it is cancelled, also by somebody before. 5 when it had ended otherwise, or its answer came first: nothing was
    cancelled. 1 when there is no such request, or its reply is gone. 4 when it has not ended in time: the command stands until a worker
    has read up to the request, also across restarts, and need not be given again.
    """
    from dispatcher.client import SyncDispatcher
    from dispatcher.client.dispatcher import CANCEL_TIMEOUT_S

    options: Options = ctx.obj
    wanted = ask.wanted(request_id)
    ask.hear(options)
    with SyncDispatcher(options.request_settings()) as client:
        reply = client.cancel(wanted, reason=reason, timeout=options.timeout_s or CANCEL_TIMEOUT_S)
    is_cancelled = reply.status is Status.CANCELLED
    if options.json:
        say(orjson.dumps(_object(reply, is_cancelled=is_cancelled)))
    elif is_cancelled:
        say(f"request {word(reply.request_id)} is cancelled: {_why(reply)}")
    if not is_cancelled:
        hint = f"its reply: {reply.topic}/{reply.partition}/{reply.offset}"
        raise RefusedError(f"request {word(reply.request_id)} has ended, as {reply.status.value}: nothing was cancelled", hint)


def _why(reply: Reply) -> str:
    """Say who wanted it, and what became of its calls."""
    return "its reply says no more" if reply.error is None else reply.error.message


def _object(reply: Reply, *, is_cancelled: bool) -> dict[str, Any]:
    return {
        "request_id": reply.request_id,
        "cancelled": is_cancelled,
        "status": reply.status.value,
        "error": None if reply.error is None else {"kind": reply.error.kind, "message": reply.error.message},
        "attempts": reply.attempts,
        "reply": {"topic": reply.topic, "partition": reply.partition, "offset": reply.offset},
    }
