"""The headers by which a callee can refuse the older of two calls of one request, or a call of a former owner of its partition."""

from __future__ import annotations

from dispatcher.core.lanes import lane_name
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.call import Call
from dispatcher.core.messages.request import Request


def fenced(request: Request, owner: Owner, key: bytes | None, attempt: int, wall: float) -> Call:
    """The call of this request under this assignment, number `attempt`; `key` is that of its lane, None in strict mode.

    It begins at `wall`, seconds since 1970, and is cut off at the request's deadline.
    """
    record, of, deadline = request.record, request.call, request.deadline
    timeout_s = of.timeout_s if deadline is None else min(of.timeout_s, deadline - wall)
    fences = (
        ("Dispatcher-Topic", record.topic),
        ("Dispatcher-Partition", str(record.partition)),
        ("Dispatcher-Offset", str(record.offset)),
        ("Dispatcher-Epoch", str(owner.epoch)),
        ("Dispatcher-Attempt", str(attempt)),
        *(((lane_name.HEADER, lane_name.lane_name(key)),) if key is not None else ()),
    )
    # Written out, as everything that is done once per request: `dataclasses.replace` takes 5 us.
    return Call(of.upstream, of.method, of.path, (*of.headers, *fences), of.body, of.credential, timeout_s)
