"""`dispatcher replay`: calls a range of requests again, under new ids; only plans until `--execute`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from dispatcher.cli.app import Options
from dispatcher.cli.planned import columns, command, confirm, counted
from dispatcher.cli.replies import REPLY, Key, Partitions, partition_numbers
from dispatcher.cli.rows import key_word, note, place, say, word
from dispatcher.core.rate import parse_rate
from dispatcher.errors import CallFailed, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispatcher.client.replay import Criteria, Overview
    from dispatcher.core.operations.replay_plan import Gap, Plan


# How the reasons for leaving requests out are worded, where they are not reasons of dead letters.
LEFT_OUT = {"replay": "that are replays themselves"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(_replay)


def _replay(
    ctx: typer.Context,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="FROM:TO",
            help="Which requests: start end N +N -N @2026-11-29T10:00Z @-1h. Offsets need one -p; an end is the end that is there now.",
        ),
    ] = None,
    partitions: Partitions = None,
    key: Key = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="At most so many, partition by partition.")] = None,
    include_replays: Annotated[bool, typer.Option("--include-replays", help="Replay what is a replay itself, too.")] = False,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="PLAN", help="Instead of -o: the plan that was printed. Goes on where it stopped.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it: call again. Asks for the number of requests, or takes -y.")] = False,
    rate: Annotated[str | None, typer.Option("--rate", metavar="5/s", help="At most so fast: 5/s, 300/m, 10/h.")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Call nothing: print the replies that are recorded, in order.")] = False,
) -> None:
    """Call a range of requests again, in order per partition, each under a new id. Without --execute: only say what that would mean.

    The new requests have the header dispatcher-replay-of with the old id. An execution that was interrupted goes on with the
    command that it prints first; nothing is replayed twice under one plan.
    """
    from dispatcher.core.operations.replay_plan import decode

    options: Options = ctx.obj
    if recorded and (execute or rate is not None):
        raise ConfigError("--recorded executes nothing", "leave --execute and --rate out")
    per_s = _rate(rate)
    if plan is None:
        criteria = _criteria(offset, partitions, key, limit, include_replays=include_replays)
        overview = _planned(options, criteria)
        decided, since_ms = overview.plan, overview.oldest_ms
        shown = not execute and not recorded
        _show(overview, options, as_data=shown)
        if shown:
            return
    else:
        if any(value is not None for value in (offset, partitions, key, limit)) or include_replays:
            raise ConfigError("--plan says which requests", "leave -o, -p, -k, -n and --include-replays out")
        decided, since_ms = decode(plan), None
        if not execute and not recorded:
            raise ConfigError("--plan needs --execute, or --recorded", _command(decided, options))
    if recorded:
        _recorded(options, decided, since_ms)
    else:
        _execute(options, decided, per_s)


def _criteria(offset: str | None, partitions: str | None, key: str | None, limit: int | None, *, include_replays: bool) -> Criteria:
    """Read what to replay. Raises ConfigError."""
    from dispatcher.client.replay import Criteria
    from dispatcher.core.operations.positions import Anchor, parse_span

    if offset is None:
        raise ConfigError("replay needs -o FROM:TO, or --plan PLAN", "for example -o @-1h:end")
    span = parse_span(offset, datetime.now(UTC))
    if span.until is None:
        raise ConfigError(f"position {word(offset)} has no end", f"write both, such as -o {offset}:end")
    numbers = partition_numbers(partitions)
    if Anchor.OFFSET in {span.since.anchor, span.until.anchor} and (numbers is None or len(numbers) > 1):
        raise ConfigError("an offset is a place in one partition", "name it with -p; several partitions take times, such as -o @-1h:end")
    return Criteria(span, numbers, key, include_replays, limit)


def _rate(text: str | None) -> float | None:
    try:
        return None if text is None else parse_rate(text)
    except ValueError as error:
        raise ConfigError(f"--rate: {error}", "for example --rate 5/s") from None


def _planned(options: Options, criteria: Criteria) -> Overview:
    from dispatcher.client.replay import Replayer

    return Replayer(options.class_settings(), timeout_s=options.timeout_s).plan(criteria)


def _execute(options: Options, plan: Plan, per_s: float | None) -> None:
    """Replay what is left of a plan, after somebody said yes."""
    from dispatcher.client.replay import Replayer

    if plan.requests:
        confirm(options, plan.requests, f"this calls {counted(plan.requests, 'request')} again")
        note(f"note: to go on after an interruption: {_command(plan, options)}")
    with _progress(options, plan.requests) as told:
        replayed = (
            Replayer(options.class_settings(), timeout_s=options.timeout_s).execute(plan, per_s=per_s, told=told) if plan.requests else 0
        )
    if options.json:
        facts = {"replay_id": plan.replay_id, "requests": plan.requests, "replayed": replayed, "before": plan.requests - replayed}
        say(orjson.dumps(facts))
        return
    before = f", {plan.requests - replayed} before" if replayed < plan.requests else ""
    say(f"replayed {replayed} of {plan.requests} requests{before}: replay {plan.replay_id}")


@contextmanager
def _progress(options: Options, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far it is, to somebody who looks at a terminal."""
    if options.quiet or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("replaying", total=total)
        yield lambda done: progress.update(task, completed=done)


def _recorded(options: Options, plan: Plan, since_ms: int | None) -> None:
    """Print the recorded replies; a request without one is named, and makes this end with 1."""
    from dispatcher.client.recorded import recorded
    from dispatcher.client.replay import Replayer
    from dispatcher.core.messages.record_json import record_line

    settings, missing = options.class_settings(), 0
    selection = Replayer(settings, timeout_s=options.timeout_s).selection(plan)
    for pair in recorded(settings, plan, selection, since_ms=since_ms, timeout_s=options.timeout_s):
        if pair.reply is None:
            missing += 1
            note(f"missing: request {word(pair.request_id)} at {place(pair.request)} has no recorded reply")
        else:
            say(record_line(pair.reply) if options.json else REPLY.row(pair.reply, options.verbose > 0))
    if missing:
        raise CallFailed(
            f"{missing} of {plan.requests} requests have no recorded reply", "they may be queued, or retention removed their replies"
        )


def _show(overview: Overview, options: Options, *, as_data: bool) -> None:
    """Print a plan: as data where it is what was asked for, else as a note for who is about to say yes."""
    if options.json:
        if as_data:
            say(orjson.dumps(_object(overview)))
        return
    lines = [*_lines(overview)]
    if as_data:
        plan = overview.plan
        lines.append(f"nothing was called; this very set: {_command(plan, options)}" if plan.requests else "nothing to replay")
    for line in lines:
        if as_data:
            say(line)
        elif not options.quiet:
            note(line)


def _lines(overview: Overview) -> Iterator[str]:
    """Write an overview for people."""
    more = "" if overview.keys_are_all else "more than "
    yield f"{counted(overview.plan.requests, 'request')} of {more}{counted(overview.keys, 'key')} in {overview.topic}"
    if overview.top_keys:
        yield "most: " + ", ".join(f"{key_word(key)} ({count})" for key, count in overview.top_keys)
    rows = [("PARTITION", "FROM", "TO", "REQUESTS", "QUEUED BEFORE THEM")]
    rows += [
        (str(view.partition), str(view.start), str(view.stop), str(view.requests), str(view.queued))
        for view in overview.partitions
        if view.requests
    ]
    yield from columns(rows)
    if overview.skipped:
        yield "left out: " + ", ".join(f"{count} {LEFT_OUT.get(why, why)}" for why, count in sorted(overview.skipped.items()))
    yield from (_gap(gap) for gap in overview.gaps)


def _gap(gap: Gap) -> str:
    """Say what retention took."""
    where = f"partition {gap.partition}: offsets {gap.start} to {gap.stop - 1}"
    verb = "were removed by retention" if gap.certain else "were removed by retention, and may have been of this time"
    return f"missing: {where} {verb}; the first one now is {gap.stop}"


def _object(overview: Overview) -> dict[str, Any]:
    """Give an overview for programs."""
    from dispatcher.core.messages.record_json import shown

    return {
        "topic": overview.topic,
        "requests": overview.plan.requests,
        "keys": overview.keys,
        "keys_are_all": overview.keys_are_all,
        "top_keys": [{"key": shown(key), "requests": count} for key, count in overview.top_keys],
        "partitions": [
            {"partition": view.partition, "from": view.start, "to": view.stop, "requests": view.requests, "queued": view.queued}
            for view in overview.partitions
        ],
        "skipped": dict(overview.skipped),
        "missing": [{"partition": gap.partition, "from": gap.start, "to": gap.stop, "certain": gap.certain} for gap in overview.gaps],
        "replay_id": overview.plan.replay_id,
        "plan": overview.plan.encode(),
    }


def _command(plan: Plan, options: Options) -> str:
    """Write the command that does a plan, or goes on with it."""
    return command(options, "replay", "--plan", plan.encode(), "--execute")
