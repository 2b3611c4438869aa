"""`dispatcher lanes seek`: moves the group's positions; only plans until `--execute`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from dispatcher.cli.app import Options
from dispatcher.cli.planned import columns, command, confirm, counted
from dispatcher.cli.replies import Partitions, partition_numbers
from dispatcher.cli.rows import key_word, note, say, word
from dispatcher.errors import ConfigError

if TYPE_CHECKING:
    from dispatcher.client.seek import Overview
    from dispatcher.core.operations.seek import Effect, Plan


def register(lanes: typer.Typer) -> None:
    """Add the command to `dispatcher lanes`."""
    lanes.command("seek")(_seek)


def _seek(
    ctx: typer.Context,
    to: Annotated[
        str | None,
        typer.Option(metavar="POS", help="Where to: start end N +N -N @2026-11-29T10:00Z @-1h. An offset needs one -p."),
    ] = None,
    partitions: Partitions = None,
    plan: Annotated[str | None, typer.Option("--plan", metavar="PLAN", help="Instead of --to: the plan that was printed.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Asks for the number of requests, or takes -y.")] = False,
) -> None:
    """Move the group's positions: what stands from there on is executed, again where it has ended; what is passed over never is.

    Without --execute: only say what that would mean. Refused while workers run. Parked requests at the new position or behind are read
    from the log instead, those before it keep their turn. To call a range again beside new requests, under new ids, use `replay`.
    """
    from dispatcher.core.operations.seek import decode

    options: Options = ctx.obj
    if plan is not None:
        if to is not None or partitions is not None:
            raise ConfigError("--plan says what to move, and where to", "leave --to and -p out")
        if not execute:
            raise ConfigError("--plan needs --execute", "without it there is nothing to do with a plan")
        decided = decode(plan)
        if decided.moves:
            confirm(options, len(decided.moves), f"this moves {counted(len(decided.moves), 'partition')} as planned before")
        _execute(options, decided)
        return
    overview = _planned(options, to, partitions)
    _show(overview, options, as_data=not execute)
    if execute:
        if overview.plan.moves:
            confirm(options, overview.again + overview.never, f"{_deed(overview)}, together {overview.again + overview.never}")
        _execute(options, overview.plan)


def _planned(options: Options, to: str | None, partitions: str | None) -> Overview:
    """Plan it. Raises ConfigError for what is no place."""
    from dispatcher.client.seek import Seeker
    from dispatcher.core.operations.positions import Anchor, parse_position

    if to is None:
        raise ConfigError("seek needs --to POS, or --plan PLAN", "for example --to @-1h")
    position, numbers = parse_position(to, datetime.now(UTC)), partition_numbers(partitions)
    if position.anchor is Anchor.OFFSET and (numbers is None or len(numbers) > 1):
        raise ConfigError("an offset is a place in one partition", "name it with -p; several partitions take start, end or a time")
    return Seeker(options.class_settings(), timeout_s=options.timeout_s).plan(position, numbers)


def _execute(options: Options, plan: Plan) -> None:
    from dispatcher.client.seek import Seeker

    ended = Seeker(options.class_settings(), timeout_s=options.timeout_s).execute(plan) if plan.moves else 0
    if options.json:
        moved = {str(move.partition): move.to for move in plan.moves}
        say(orjson.dumps({"group": plan.group, "moved": moved, "parked_ended": ended}))
        return
    aside = f", {counted(ended, 'parked entry')} ended" if ended == 1 else f", {ended} parked entries ended" if ended else ""
    say(f"moved {counted(len(plan.moves), 'partition')} of group {word(plan.group)}{aside}")


def _show(overview: Overview, options: Options, *, as_data: bool) -> None:
    """Print a plan: as data where it is what was asked for, else as a note for who is about to say yes."""
    if options.json:
        if as_data:
            say(orjson.dumps(_object(overview)))
        return
    for line in _lines(overview):
        if as_data:
            say(line)
        elif not options.quiet:
            note(line)
    if as_data:
        text = command(options, "lanes", "seek", "--plan", overview.plan.encode(), "--execute")
        say(f"nothing was done; this very move: {text}" if overview.plan.moves else "nothing to move")


def _deed(overview: Overview) -> str:
    about = "" if overview.exact else "at most "
    return f"this has {about}{counted(overview.again, 'request')} executed again and {overview.never} never"


def _lines(overview: Overview) -> Iterator[str]:
    """Write an overview for people."""
    keys, about = overview.keys, "" if overview.exact else "at most "
    of = f" of {counted(len(keys), 'key')}" if overview.exact else ""
    yield (
        f"group {word(overview.plan.group)}, {overview.topic}: {about}{counted(overview.again, 'request')}{of} "
        f"executed again under the same ids, {overview.never} never executed"
    )
    if keys:
        yield "most: " + ", ".join(f"{key_word(key)} ({count})" for key, count in _top(overview))
    rows: list[tuple[str, ...]] = [
        ("PARTITION", "FROM", "SETTLED ABOVE", "TO", "AGAIN", "NEVER", "PARKED DROPPED", "PARKED KEPT"),
        *((str(number), *_cells(effect)) for number, effect in overview.effects.items()),
    ]
    yield from columns(rows)
    if void := sum(len(effect.void) for effect in overview.effects.values()):
        yield f"{void} entries in the parked topic are of no use any more, and end with it"


def _cells(effect: Effect) -> tuple[str, ...]:
    counts = (effect.settled_above, effect.to, effect.again, effect.never, len(effect.dropped), len(effect.kept))
    return (_from(effect), *map(str, counts))


def _from(effect: Effect) -> str:
    return "none" if effect.headway.position is None else str(effect.headway.position)


def _top(overview: Overview) -> list[tuple[bytes | None, int]]:
    from dispatcher.client.seek import KEYS_SHOWN

    return overview.keys.most_common(KEYS_SHOWN)


def _object(overview: Overview) -> dict[str, Any]:
    """Give an overview for programs."""
    from dispatcher.core.messages.record_json import shown

    return {
        "topic": overview.topic,
        "group": overview.plan.group,
        "again": overview.again,
        "never": overview.never,
        "exact": overview.exact,
        "keys": len(overview.keys),
        "top_keys": [{"key": shown(key), "requests": count} for key, count in _top(overview)],
        "partitions": [{"partition": number} | _effect(effect) for number, effect in overview.effects.items()],
        "plan": overview.plan.encode(),
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "from": effect.headway.position,
        "settled_above": effect.settled_above,
        "to": effect.to,
        "again": effect.again,
        "never": effect.never,
        "exact": effect.exact,
        "parked_dropped": len(effect.dropped),
        "parked_kept": len(effect.kept),
        "parked_void": len(effect.void),
    }
