"""`dispatcher show`: where a request stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import typer

from dispatcher.cli import ask
from dispatcher.cli.app import Options
from dispatcher.cli.rows import moment, say, word
from dispatcher.errors import CallFailed

if TYPE_CHECKING:
    from dispatcher.client.standing import Extents, Found
    from dispatcher.core.internal.parked import Entry
    from dispatcher.core.operations.standing import Place


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(_show)


def _show(
    ctx: typer.Context,
    request_id: ask.Named,
) -> None:
    """Show where a request stands: queued (lane, place in it, parked or not), running, terminal (status, where the reply is), or not_found.

    What is known is what is committed: a worker publishes some milliseconds after a call has ended. Exit code 1 for not_found.
    """
    from dispatcher.client.standing import stands
    from dispatcher.core.operations.standing import NotFound

    options: Options = ctx.obj
    given = ask.wanted(request_id)
    name = given if isinstance(given, str) else given.request_id
    found = stands(options.request_settings(), given, timeout_s=options.timeout_s)
    say(orjson.dumps({"request_id": name} | _object(found)) if options.json else _text(found))
    if isinstance(found.standing, NotFound):
        raise CallFailed(f"there is no request {word(name[:200])}", "retention may have removed it, or it is of another cluster")


def _object(found: Found) -> dict[str, Any]:
    """Give a standing for programs."""
    from dispatcher.core.operations.standing import Queued, Running, Terminal

    match found.standing:
        case Queued(request, before, exact, is_owned, parked, held):
            place = {"place": before + 1, "before": before, "exact": exact, "owned": is_owned}
            aside: dict[str, Any] = {} if parked is None else {"parked": {"why": parked.why, "due": _due(parked)}}
            aside |= {"held": held} if held else {}
            return {"state": "queued", **_lane_of(found, request), **place, **aside, "request": _where(request)}
        case Running(request):
            return {"state": "running", **_lane_of(found, request), "request": _where(request)}
        case Terminal(request, reply, status, reason, letter):
            ends = {"request": _where(request), "reply": _where(reply), "dead_letter": _where(letter)}
            return {"state": "terminal", "status": status, "reason": reason} | ends
    searched = {topic: {str(n): list(extent) for n, extent in extents.items()} for topic, extents in found.searched.items()}
    return {"state": "not_found", "searched": searched}


def _text(found: Found) -> str:
    """Write a standing for people."""
    from dispatcher.core.operations.standing import Queued, Running, Terminal

    match found.standing:
        case Queued(request, before, exact, is_owned, parked, held):
            about = "" if exact else "at most "
            first = "no worker has this lane"
            if is_owned:
                first = "a worker has this lane" if found.by_key or held else "the first one is being called"
            lane = f"queued: lane {_lane_name(found, request)}, place {before + 1}"
            aside = "" if parked is None else f"parked ({parked.why}), due {_due(parked) or 'at once'}; "
            aside += f"the lane is {held}; " if held else ""
            return f"{lane}, {about}{before} before it; {aside}{first}"
        case Running(request):
            return f"running: lane {_lane_name(found, request)}, offset {request[2]}"
        case Terminal(_, reply, status, reason, letter):
            where = f"reply {_slashed(reply)}" if reply is not None else "its reply is not there any more"
            why = f" ({word(reason)})" if reason is not None else ""
            dead = f", dead letter {_slashed(letter)}" if letter is not None else ""
            return f"terminal: {word(status) if status is not None else 'settled'}{why}, {where}{dead}"
    return "not_found: searched " + "; ".join(f"{topic} {_extents(extents)}" for topic, extents in found.searched.items())


def _lane_of(found: Found, request: Place) -> dict[str, Any]:
    """Name a lane for programs: its partition, and its key where that is the lane."""
    from dispatcher.core.messages.record_json import shown

    key = {} if not found.by_key or found.request is None else {"key": shown(found.request.key)}
    return {"lane": request[1], **key}


def _lane_name(found: Found, request: Place) -> str:
    if not found.by_key or found.request is None:
        return f"{request[1]} of {request[0]}"
    return f"{word(found.request.key)} in {request[0]}/{request[1]}"


def _due(parked: Entry) -> str | None:
    """Write when a parked request goes on; None for at once."""
    return moment(round(parked.due * 1000)) if parked.due else None


def _extents(extents: Extents) -> str:
    """Write what was looked at, as partition/first..behind the last."""
    return ", ".join(f"{number}/{first}..{behind}" for number, (first, behind) in sorted(extents.items()))


def _where(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"topic": place[0], "partition": place[1], "offset": place[2]}


def _slashed(place: Place) -> str:
    return f"{place[0]}/{place[1]}/{place[2]}"
