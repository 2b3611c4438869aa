"""The replies that are recorded for the requests of a replay's plan, in the requests' order: what was answered then, without a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader
from dispatcher.adapters.spool import Spool
from dispatcher.core.messages.glance import answered_id, request_place
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import content_of, record_line
from dispatcher.core.operations.positions import END, START, Anchor, Position, Span
from dispatcher.core.operations.replay import Selection
from dispatcher.core.operations.replay_plan import Plan
from dispatcher.settings import Settings

# A reply is younger than its request, but by two clocks. Where they differ by more, what is missing is looked for in all replies.
CLOCKS_DIFFER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Pair:
    """A request, and the reply that is recorded for it. `request_id` is as the reply names it."""

    request_id: str
    request: Record
    reply: Record | None


def recorded(
    settings: Settings, plan: Plan, selection: Selection, *, since_ms: int | None = None, timeout_s: float | None = None
) -> Iterator[Pair]:
    """Yield each request of a plan with its reply, one partition after another, in log order; the first one where there are several.

    `since_ms` is the time of the oldest request, where it is known: replies from before are read only if some are missing. Replies wait
    on disk until their request is reached, so that a range may be larger than memory. Errors as `LogReader` has them.
    """
    contact_s = timeout_s or TIMEOUT_S
    with Spool() as spool:
        begin = START if since_ms is None else Position(Anchor.TIME, max(0, since_ms - CLOCKS_DIFFER_MS))
        _collect(settings, plan, spool, Span(begin, END), contact_s)
        if begin != START and any(
            spool.get(_name(request, name)) is None for name, request in _requests(settings, plan, selection, contact_s)
        ):
            _collect(settings, plan, spool, Span(START, begin), contact_s)
        for name, request in _requests(settings, plan, selection, contact_s):
            line = spool.get(_name(request, name))
            yield Pair(name, request, None if line is None else _record(line))


def _requests(settings: Settings, plan: Plan, selection: Selection, timeout_s: float) -> Iterator[tuple[str, Record]]:
    """Read the requests of a plan and their ids."""
    for part in plan.parts:
        with LogReader(settings, settings.topics.requests, timeout_s) as reader:
            for request in reader.read_ranges({part.partition: (part.start, part.stop)}):
                if selection.takes(request):
                    yield selection.old_id(request), request


def _collect(settings: Settings, plan: Plan, spool: Spool, span: Span, timeout_s: float) -> None:
    """Put aside the replies that answer something in the ranges of a plan."""
    ranges = {part.partition: range(part.start, part.stop) for part in plan.parts}
    for topic in (settings.topics.replies, *settings.topics.reply_topics):
        with LogReader(settings, topic, timeout_s) as reader:
            for reply in reader.read(span, until_end=True):
                topic_of, partition, offset = request_place(reply) or ("", -1, -1)
                if topic_of == settings.topics.requests and offset in ranges.get(partition, ()):
                    spool.keep(f"{partition}/{offset} {answered_id(reply)}", record_line(reply))


def _name(request: Record, request_id: str) -> str:
    """Name the reply of a request: by its place, which tells two requests of one id apart, and by its id, as topics may be made anew."""
    return f"{request.partition}/{request.offset} {request_id}"


def _record(line: bytes) -> Record:
    fields = orjson.loads(line)
    where = fields.pop("topic"), fields.pop("partition"), fields.pop("offset")
    time_ms = fields.pop("ts")
    return Record(*where, *content_of(fields), time_ms)
