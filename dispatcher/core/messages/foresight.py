"""What has to be known of a request before its turn, as its record says it: when it expires, who asks, and how urgent it is."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from dispatcher.core.instant import rfc3339_s
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import PRIORITY_MAX, PRIORITY_USUAL


class Foresight(NamedTuple):
    """`deadline` in seconds since 1970, None where it names no time; `priority` as the request's, the usual one where it names none.

    `agent` who asks, empty where it does not say: those are one agent of its own.
    """

    deadline: float | None = None
    priority: int = PRIORITY_USUAL
    agent: str = ""


NOTHING = Foresight()
# What stands in a value that has to be parsed for it. An escape may hide a name, and an agent must be known of all of its requests.
DEADLINE = (b'"deadline"',)
DEADLINE_AND_AGENT = (*DEADLINE, b'"agent"', b"\\u")
_ALL = (*DEADLINE_AND_AGENT, b'"priority"')


def foresee(record: Record, names: tuple[bytes, ...] = _ALL) -> Foresight:
    """What is to be known of `record` before its turn; all of it, or nothing where none of the `names` stands in it.

    Asked of every record that comes, so most are not parsed for it. A deadline whose name JSON writes with escapes may not be seen: such a
    request expires when its turn comes, as everything does that this function does not know of.
    """
    value = record.value
    if value is None or not any(name in value for name in names):
        return NOTHING
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError:
        return NOTHING
    if not isinstance(fields, dict):
        return NOTHING
    text, priority, agent = fields.get("deadline"), fields.get("priority"), fields.get("agent")
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        priority = PRIORITY_USUAL
    deadline = rfc3339_s(text) if isinstance(text, str) else None
    return Foresight(deadline, priority, agent if isinstance(agent, str) else "")
