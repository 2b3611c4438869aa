"""Adding up the demo: does every request have the one ending it must have, what did the callee see, and where did the time go. Pure.

How the time of a request that took one call is divided; the three parts add up to end to end, which runs from just before the record
is given to the producer to the moment that a read_committed reader has the reply:

- *queue wait*: until its lane was free, that is until the call before it there had ended, as the callee saw it;
- *service*: from start to end of its call, as the callee saw it;
- *overhead*: all the rest, on both sides of the call: produce, fetch, decode, connect, publish in a transaction, fetch the reply.

Both clocks are of one machine (the callee's monotonic times are shifted by what it says is the difference to the wall clock).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dispatcher.core.messages.record import Record
from dispatcher.demo.load import Planned

Position = tuple[int, int]  # partition and offset of a request

# Most faults that are told one by one.
FAULTS_TOLD_MAX = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that Kafka has acknowledged. `at_s`: seconds since 1970 when it was given to the producer."""

    planned: Planned
    position: Position
    at_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    """What a reply says."""

    position: Position
    status: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the witness saw it, in seconds since 1970. `lane`: the name of its key's lane, where each key has one."""

    position: Position
    start_s: float
    end_s: float
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 99th percentile of something, in milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Tally:
    """What came out. `faults` are sentences; none means that the numbers add up.

    Some requests are `never_called`, since they are refused before, and some calls are `called_again`, since the one before failed.
    """

    requests: int
    statuses: dict[str, int]
    reasons: dict[str, int]
    calls: int
    never_called: int
    called_again: int
    out_of_order: int
    overlapping: int
    queue_wait: Spread
    service: Spread
    overhead: Spread
    end_to_end: Spread
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is added up. `seen_s`: when the reader had the reply to a request, seconds since 1970."""

    sent: Sequence[Sent]
    endings: Sequence[Ending]
    letters: Mapping[Position, Sequence[str]]  # reasons of the dead letters about a request
    seen_s: Mapping[Position, float]
    calls: Sequence[Call]
    witness: Mapping[str, Any]  # the callee's own summary


def text_of(record: Record, name: str) -> str | None:
    """Read a header of a record as text; None where it is absent or null."""
    found = next((content for header, content in record.headers or () if header == name), None)
    return None if found is None else found.decode("utf-8", "replace")


def position_in(record: Record, partition: str, offset: str) -> Position:
    """Read the position of a request from the two headers that name it; (-1, -1) where they do not."""
    found = text_of(record, partition), text_of(record, offset)
    return (int(found[0]), int(found[1])) if found[0] and found[1] and found[0].isdigit() and found[1].isdigit() else (-1, -1)


def calls_of(events: Iterable[Mapping[str, Any]], monotonic_to_unix_s: float) -> list[Call]:
    """Pair starts and ends of the witness; calls without position or end are left out."""
    starts: dict[int, Mapping[str, Any]] = {}
    calls = []
    for event in events:
        if event["event"] == "start":
            starts[event["call"]] = event
        elif (start := starts.pop(event["call"], None)) is not None and start["partition"] is not None and start["offset"] is not None:
            position = start["partition"], start["offset"]
            calls.append(Call(position, start["t_s"] + monotonic_to_unix_s, event["t_s"] + monotonic_to_unix_s, start["lane"]))
    return calls


def add_up(evidence: Evidence) -> Tally:
    """Judge and measure."""
    order = evidence.witness["out_of_order"]
    repeats = evidence.witness["not_repeated"]
    overlaps = evidence.witness["overlaps"]
    # Each key lives in one partition: what is wrong by key is wrong by partition too, and counted once.
    out_of_order = max(order["partition"] + repeats["partition"], order["key"] + repeats["key"])
    overlapping = max(sum(overlaps["partition"].values()), sum(overlaps["key"].values()))
    faults = [*_endings(evidence), *_callee(evidence, out_of_order, overlapping)]
    called = {call.position for call in evidence.calls}
    if len(faults) > FAULTS_TOLD_MAX:
        faults = [*faults[:FAULTS_TOLD_MAX], f"... and {len(faults) - FAULTS_TOLD_MAX} more"]
    return Tally(
        requests=len(evidence.sent),
        statuses=dict(sorted(Counter(ending.status for ending in evidence.endings).items())),
        reasons=dict(sorted(Counter(reason for reasons in evidence.letters.values() for reason in reasons).items())),
        calls=evidence.witness["calls"],
        never_called=sum(sent.position not in called for sent in evidence.sent),
        called_again=len(evidence.calls) - len(called),
        out_of_order=out_of_order,
        overlapping=overlapping,
        **_spreads(evidence),
        faults=tuple(faults),
    )


def _endings(evidence: Evidence) -> list[str]:
    """Say which requests do not have exactly the one ending that they must have."""
    by_position = defaultdict(list)
    for ending in evidence.endings:
        by_position[ending.position].append(ending)
    faults = []
    for sent in evidence.sent:
        found = by_position.pop(sent.position, [])
        name = f"{sent.planned.what} at {sent.position[0]}/{sent.position[1]}"
        if len(found) != 1:
            faults.append(f"{name} has {len(found)} replies instead of 1")
            continue
        expected, ending = sent.planned.expected, found[0]
        if (ending.status, ending.reason) != (expected.status, expected.reason):
            faults.append(f"{name} ended {_said(ending.status, ending.reason)} instead of {_said(expected.status, expected.reason)}")
        letters = list(evidence.letters.get(sent.position, ()))
        if letters != ([] if expected.reason is None else [expected.reason]):
            faults.append(f"{name} has dead letters {letters} instead of {_said(None, expected.reason)}")
    faults += [f"{len(strange)} replies to {position}, which was never sent" for position, strange in by_position.items()]
    known = {sent.position for sent in evidence.sent}
    return faults + [f"a dead letter about {position}, which was never sent" for position in evidence.letters if position not in known]


def _callee(evidence: Evidence, out_of_order: int, overlapping: int) -> list[str]:
    faults = []
    if out_of_order:
        faults.append(f"{out_of_order} calls out of order: {'; '.join(evidence.witness['findings'][:3])}")
    if overlapping:
        faults.append(f"{overlapping} calls overlapping in one lane")
    called = {call.position for call in evidence.calls}
    missed = [sent for sent in evidence.sent if sent.planned.what == "chat" and sent.position not in called]
    if missed:
        faults.append(f"{len(missed)} chat requests were answered without the callee seeing a call")
    return faults


def _said(status: str | None, reason: str | None) -> str:
    return " ".join(part for part in (status, reason and f"({reason})") if part) or "none"


def _spreads(evidence: Evidence) -> dict[str, Spread]:
    calls = sorted(evidence.calls, key=lambda call: call.start_s)
    times = Counter(call.position for call in calls)
    sent_at = {sent.position: sent.at_s for sent in evidence.sent}
    lane_free: dict[tuple[int, str | None], float] = {}
    parts: dict[str, list[float]] = {"queue_wait": [], "service": [], "overhead": [], "end_to_end": []}
    for call in calls:
        position = call.position
        lane = position[0], call.lane
        free_at = lane_free.get(lane, 0.0)
        lane_free[lane] = call.end_s
        if times[position] != 1 or position not in sent_at or position not in evidence.seen_s:
            continue
        whole = evidence.seen_s[position] - sent_at[position]
        wait = max(0.0, free_at - sent_at[position])
        service = call.end_s - call.start_s
        for name, value in (("queue_wait", wait), ("service", service), ("overhead", whole - wait - service), ("end_to_end", whole)):
            parts[name].append(value)
    return {name: spread(values) for name, values in parts.items()}


def spread(seconds: Sequence[float]) -> Spread:
    """Take median and 99th percentile by nearest rank, in milliseconds; zeros for nothing.

    >>> spread([0.001 * n for n in range(1, 101)])
    Spread(p50_ms=50.0, p99_ms=99.0)
    """
    ranked = sorted(seconds)
    if not ranked:
        return Spread(0.0, 0.0)
    return Spread(*(round(ranked[max(0, math.ceil(len(ranked) * share) - 1)] * 1000, 1) for share in (0.5, 0.99)))
