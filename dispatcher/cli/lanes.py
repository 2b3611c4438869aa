"""`dispatcher lanes`: what lanes do and why they stand, and holding them, letting them go on, or passing over a request."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from dispatcher.cli import lanes_seek
from dispatcher.cli.app import Options
from dispatcher.cli.planned import columns, command, confirm, counted
from dispatcher.cli.rows import NOTHING, beginning, key_word, moment, note, say, word
from dispatcher.errors import ConfigError, WaitTimeout

if TYPE_CHECKING:
    from dispatcher.client.lanes import Description, Effect, Lanes, Skip
    from dispatcher.core.internal.control import Command, Target
    from dispatcher.core.operations.balance import Balance
    from dispatcher.core.operations.lane_board import Facts, LaneRow, PartitionRow

# As often as workers tell of themselves, by default.
WATCH_S = 2.0

_Key = Annotated[str | None, typer.Argument(metavar="KEY", help="Lane key, such as doc:42.")]
_Partition = Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Instead of a key: the whole partition.")]
_Reason = Annotated[str, typer.Option("--reason", help="Why, for those who look at it later.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(help="Lanes: see what they do and why they stand; hold them, let them go on, pass over a request.")
    group.command("list")(_list)
    group.command("describe")(_describe)
    group.command("pause")(_pause)
    group.command("resume")(_resume)
    group.command("skip")(_skip)
    lanes_seek.register(group)
    app.add_typer(group, name="lanes")


def _list(ctx: typer.Context, watch: Annotated[bool, typer.Option("--watch", help="Again every 2 seconds, until Ctrl-C.")] = False) -> None:
    """List partitions, and the lanes that are worth a look: held, waiting long, or long.

    Partitions: number, owner's slot, position, lag, and, as their worker tells, records held, calls in flight and requests parked; then
    how many of its keys are paused and halted, and why it stands. Lanes: partition, key, state, why, until when, queued, parked, attempts,
    head request. Without a worker a - stands where only a worker knows.
    """
    options: Options = ctx.obj
    lanes = _lanes(options)
    if not watch:
        _show_board(options, lanes.facts())
        return
    for number, facts in enumerate(_again(lanes)):
        if number and not options.json:
            _clear()
        _show_board(options, facts)


def _describe(ctx: typer.Context, key: _Key = None, partition: _Partition = None) -> None:
    """Describe one lane, or one partition: why it stands and until when, what is queued and parked, and the request whose turn it is.

    And what its key, and the credential that this names, have left of their budgets, by the [budgets] of this configuration.
    """
    from dispatcher.core.operations.lane_board import Facts  # noqa: F401 - pydantic models, needed only here

    options: Options = ctx.obj
    found = _lanes(options).describe(_target(key, partition))
    say(orjson.dumps(_description_object(found))) if options.json else _say_lines(_description_lines(found))


def _pause(ctx: typer.Context, key: _Key = None, partition: _Partition = None, reason: _Reason = "") -> None:
    """Hold a lane, or a partition: the call in hand ends, no further one starts. Until `lanes resume`, across restarts.

    Where a partition is one lane (ordering = "partition"), what stands behind a request of this key waits as well.
    Ends with 0 once a worker that has the partition says that it knows, or where no worker has it; with 4 where it has not said so in
    time: it is written all the same.
    """
    options: Options = ctx.obj
    target = _target(key, partition)
    _show_effect(options, _lanes(options).pause(target, reason), "paused")


def _resume(ctx: typer.Context, key: _Key = None, partition: _Partition = None, reason: _Reason = "") -> None:
    """Let a paused or halted lane, or a paused partition, go on. Ends as `lanes pause` does."""
    options: Options = ctx.obj
    target = _target(key, partition)
    _show_effect(options, _lanes(options).resume(target, reason), "running")


def _skip(
    ctx: typer.Context,
    key: _Key = None,
    request_id: Annotated[str | None, typer.Option("--id", help="Instead of a key: this request.")] = None,
    reason: _Reason = "",
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Asks for the number of requests, or takes -y.")] = False,
) -> None:
    """Pass over a request: it ends as cancelled, without a further call. Without --execute: only say what that would mean.

    With KEY: the first one of that lane that has not ended; where the lane is halted, its failed request has its dead letter, and the
    lane goes on. A call in hand is not cut off: the request ends with it.
    """
    options: Options = ctx.obj
    lanes = _lanes(options)
    plan = _plan(lanes, key, request_id)
    if plan.target is None:
        _show_nothing(options, plan)
        return
    if not execute:
        _show_plan(options, plan)
        return
    if not options.json and not options.quiet:
        note(_plan_text(plan))
    confirm(options, 1, "this passes over 1 request")
    _show_effect(options, lanes.skip(plan, reason), "running" if plan.target.kind.value == "key" else "skipped")


def _lanes(options: Options) -> Lanes:
    from dispatcher.client.lanes import Lanes

    return Lanes(options.class_settings(), timeout_s=options.timeout_s)


def _target(key: str | None, number: int | None) -> Target:
    """Read what a command is about. Raises ConfigError."""
    from dispatcher.client.lanes import lane, partition

    if (key is None) == (number is None):
        raise ConfigError("name a lane by its KEY, or a partition by -p N", "for example: dispatcher lanes pause doc:42")
    return lane(key) if key is not None else partition(number or 0)


def _plan(lanes: Lanes, key: str | None, request_id: str | None) -> Skip:
    from dispatcher.client.lanes import lane

    if (key is None) == (request_id is None):
        raise ConfigError("name a lane by its KEY, or a request by --id", "for example: dispatcher lanes skip doc:42")
    return lanes.plan_skip(lane(key).name.encode()) if key is not None else lanes.plan_skip_request(request_id or "")


def _clear() -> None:
    """Begin anew at the top of a terminal; elsewhere an empty line keeps two boards apart."""
    if not sys.stdout.isatty():
        say("")
        return
    from rich.console import Console

    Console().clear()


def _again(lanes: Lanes) -> Iterator[Facts]:
    while True:
        began = time.monotonic()
        yield lanes.facts()
        time.sleep(max(0.1, began + WATCH_S - time.monotonic()))


# --- the board ------------------------------------------------------------------------------------------------------------------------


def _show_board(options: Options, facts: Facts) -> None:
    """Print both tables; for programs one object a line."""
    from dispatcher.core.operations.lane_board import lane_rows, partition_rows

    partitions, lanes = partition_rows(facts), lane_rows(facts)
    if options.json:
        for row in partitions:
            say(orjson.dumps({"kind": "partition"} | asdict(row)))
        for lane in lanes:
            say(orjson.dumps({"kind": "lane"} | _lane_object(lane)))
        return
    _say_lines(columns([PARTITIONS, *(_partition_cells(row) for row in partitions)]))
    if lanes:
        say("")
        _say_lines(columns([LANES, *(_lane_cells(lane) for lane in lanes)]))


PARTITIONS: tuple[str, ...] = ("PARTITION", "OWNER", "POSITION", "LAG", "HELD", "CALLS", "PARKED", "PAUSED", "HALTED", "STANDS")
LANES: tuple[str, ...] = ("PARTITION", "KEY", "STATE", "WHY", "UNTIL", "QUEUED", "PARKED", "ATTEMPTS", "HEAD")


def _partition_cells(row: PartitionRow) -> tuple[str, ...]:
    numbers = (row.position, row.lag, row.held, row.in_flight, row.parked, row.paused_keys, row.halted_keys)
    return (str(row.partition), word(row.owner), *map(_cell, numbers), row.why or NOTHING)


def _lane_cells(row: LaneRow) -> tuple[str, ...]:
    why = (
        row.why or NOTHING
        if row.command is None
        else word(f"{row.command.by}: {row.command.reason}" if row.command.reason else row.command.by)
    )
    return (
        str(row.partition),
        key_word(row.key),
        row.state + (", calling" if row.command is not None and row.calling else ""),
        beginning(why),
        _until(row.until),
        _cell(row.queued),
        _cell(row.parked),
        _cell(row.attempts),
        word(row.head),
    )


def _lane_object(row: LaneRow) -> dict[str, Any]:
    return asdict(row) | {"command": _command_object(row.command), "until": None if row.until is None else _until(row.until)}


def _cell(number: int | None) -> str:
    return NOTHING if number is None else str(number)


def _until(seconds: float | None) -> str:
    return NOTHING if seconds is None else moment(round(seconds * 1000))


def _say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


# --- one lane -------------------------------------------------------------------------------------------------------------------------


def _description_object(found: Description) -> dict[str, Any]:
    row = found.row
    entry = found.first_parked
    parked = None if entry is None else {"offset": entry.offset, "why": entry.why, "due": _due(entry.due)}
    return {
        "key": row.key,
        "partition": row.partition,
        "owner": found.owner,
        "state": row.state,
        "why": row.why or None,
        "until": None if row.until is None else _until(row.until),
        "queued": found.queued,
        "exact": found.is_exact,
        "parked": found.parked,
        "first_parked": parked,
        "head": found.head,
        "head_id": found.head_id,
        "attempts": row.attempts,
        "command": _command_object(row.command),
        "budget": None if found.balance is None else found.balance.fields(),
        "credential_budget": None if found.shared is None else found.shared.fields(),
    }


def _description_lines(found: Description) -> Iterator[str]:
    row, entry = found.row, found.first_parked
    name = f"partition {row.partition}" if row.key is None else f"lane {word(row.key if isinstance(row.key, str) else None)}"
    yield f"{name}: {_state(found)}"
    if row.key is not None:
        yield f"partition: {row.partition}"
    yield f"owner: {'no worker' if found.owner is None else word(found.owner)}"
    if row.until is not None:
        yield f"until: {_until(row.until)}"
    if row.command is not None:
        yield f"since: {word(row.command.at)} by {word(row.command.by)}" + (f", {word(row.command.reason)}" if row.command.reason else "")
    yield f"queued: {'' if found.is_exact else 'at least '}{found.queued}, of which parked {found.parked}"
    if entry is not None:
        yield f"first parked: offset {entry.offset}, {entry.why}, due {_due(entry.due) or 'now'}"
    if found.head is not None:
        attempts = "" if row.attempts is None else f", attempts {row.attempts}"
        of = "" if found.head_id in {None, found.head} else f"{word(found.head_id)} at "
        yield f"head: {of}{found.head}{attempts}"
    for of, balance in (("budget", found.balance), ("credential's budget", found.shared)):
        if balance is not None:
            yield _balance_line(of, balance)


def _balance_line(of: str, balance: Balance) -> str:
    told = balance.fields()
    aside = f", {told['reserved_usd']} set aside for a call" if balance.reserved else ""
    return f"{of} {balance.budget}: {told['left_usd']} of {told['usd_per_day']} USD left until {told['until']}{aside}"


def _state(found: Description) -> str:
    """What a lane does; without its worker's word what can be said for certain."""
    row = found.row
    if row.command is None and found.queued == 0 and not (row.queued or row.parked):
        return "empty"
    return row.state if not row.why or row.why == row.state else f"{row.state} ({row.why})"


def _due(seconds: float) -> str | None:
    return moment(round(seconds * 1000)) if seconds else None


def _command_object(command: Command | None) -> dict[str, Any] | None:
    return None if command is None else {name: given for name, given in asdict(command).items() if name not in {"target", "ends", "key"}}


# --- commands -------------------------------------------------------------------------------------------------------------------------


def _show_effect(options: Options, effect: Effect, state: str) -> None:
    """Say what a command did, and who says so; WaitTimeout where the worker that should has not."""
    waited_for = effect.changed and effect.owner is not None and effect.confirmed_by is None
    if options.json:
        say(orjson.dumps(_effect_object(effect, state)))
    elif not waited_for:
        say(_effect_text(effect, state))
    if effect.around is not None and state == "running" and not options.quiet:
        note(f"note: partition {effect.partition} is paused as a whole, and its lanes with it: see `dispatcher lanes resume -p`")
    if waited_for:
        raise _unheard(effect, state)


def _unheard(effect: Effect, state: str) -> WaitTimeout:
    """Say that a command stands in its topic, and that the worker it is for has not been heard."""
    is_skip = state == "skipped"
    wanted = f"{word(str(effect.target))} is {'to be ' if is_skip else ''}{state}"
    what = "has not ended it" if is_skip else "has not said that it knows"
    hint = "a call in hand has to end first" if is_skip else "it may stand still, or be cut off: see `dispatcher lanes list`"
    return WaitTimeout(
        f"that {wanted} stands in the control topic at offset {effect.offset}, and worker {effect.owner} {what}",
        f"{hint}; the command need not be given again",
    )


def _effect_object(effect: Effect, state: str) -> dict[str, Any]:
    return {
        "target": str(effect.target),
        "partition": effect.partition,
        "state": effect.command.state if state == "running" and effect.command is not None else state,
        "changed": effect.changed,
        "offset": effect.offset,
        "owner": effect.owner,
        "confirmed_by": effect.confirmed_by,
        "command": _command_object(effect.command),
    }


def _effect_text(effect: Effect, state: str) -> str:
    name = word(str(effect.target))
    if not effect.changed:
        since = "" if effect.command is None else f" since {word(effect.command.at)} by {word(effect.command.by)}"
        if state == "running" and effect.command is not None:
            return f"{name} is {effect.command.state} anew{since}"
        is_so = state if effect.command is None or state == "skipped" else effect.command.state
        return f"{name} is {'already to be ' if state == 'skipped' else 'already '}{is_so}{since}: nothing was written"
    if effect.owner is None:
        return f"{name} {state}: no worker has partition {effect.partition} now, whoever gets it reads this first"
    verb = "ended it" if state == "skipped" else "knows"
    return f"{name} {state}: worker {word(effect.confirmed_by)} {verb}"


def _show_nothing(options: Options, plan: Skip) -> None:
    """Say why there is nothing to skip."""
    if options.json:
        say(orjson.dumps({"target": None, "changed": False, "why": plan.why}))
    else:
        say(f"nothing to skip: {plan.why}")


def _plan_object(plan: Skip) -> dict[str, Any]:
    from dispatcher.core.messages.record_json import shown

    return {
        "target": str(plan.target),
        "partition": plan.partition,
        "key": shown(plan.key),
        "request_id": plan.request_id,
        "parked": plan.parked,
        "behind": plan.behind,
        "command": _command_object(plan.command),
    }


def _show_plan(options: Options, plan: Skip) -> None:
    """Say what would be done, and the command that does just this."""
    target = plan.target
    assert target is not None
    if options.json:
        say(orjson.dumps(_plan_object(plan)))
        return
    say(_plan_text(plan))
    words = [target.name] if target.kind.value == "key" else ["--id", target.name]
    say(f"nothing was done; to do it: {command(options, 'lanes', 'skip', *words, '--execute')}")


def _plan_text(plan: Skip) -> str:
    """Say what would be done."""
    target, behind = plan.target, counted(plan.behind, "request")
    assert target is not None
    if target.kind.value == "key":
        since = "" if plan.command is None else f" since {word(plan.command.at)} ({word(plan.command.reason)})"
        return f"{word(str(target))} is halted{since}: it goes on, {behind} waiting"
    aside = " (parked)" if plan.parked else ""
    return f"request {word(plan.request_id)}{aside} of key {key_word(plan.key)} ends as cancelled, {behind} waiting behind it"
