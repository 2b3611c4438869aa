"""What a worker tells of its lanes, a few times a minute, in the workers topic: one record per slot, the last one counts.

It is told for people who look (`lanes list`, `lanes describe`): bounded, and never older than some seconds while the worker lives. Who
owns a partition is for the group to say, and what is wanted of a key for the control topic.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, TypeVar

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from dispatcher.core.bounds import OFFSET_MAX, TIME_MAX_S
from dispatcher.core.messages.record import Message
from dispatcher.core.messages.record_json import Shown

# A person looks at the worst; more of them are a number. The record stays far below its topic's limit (1 MiB).
LANES_MAX = 50
REPORT_MAX_BYTES = 64 * 1024

_Lane = TypeVar("_Lane")


def _key(shown: Shown) -> Shown:
    if isinstance(shown, dict) and set(shown) != {"base64"}:
        raise ValueError("neither text nor base64")
    return shown


# Whoever may write to the topic may have written anything: it goes to people's screens, and into JSON again.
_Number = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
_Seconds = Annotated[float, Field(ge=0, le=TIME_MAX_S)]
_Key = Annotated[Shown, AfterValidator(_key)]


@dataclass(frozen=True, slots=True)
class LaneReport:
    """One lane that is worth telling of. `queued` counts its records in memory, `parked` those that were moved aside.

    `why` it stands: backoff, retry_after, breaker, limit, budget, paused, halted, unpublished (what is noted of its request), or empty;
    `until` (seconds since 1970) is when that ends by itself, None where it does not, or nobody knows. `head` is the id of the request whose
    turn it is, `offset` its place, `attempts` the calls that were made for it. `waited_s`: how long the oldest of its records has been with
    this worker.
    """

    key: _Key
    why: str
    until: _Seconds | None
    calling: bool
    queued: _Number
    parked: _Number
    head: str | None
    offset: _Number | None
    attempts: _Number
    waited_s: _Seconds


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition of this worker: `position` is committed, `held` counts records in memory, `lanes` the lanes that have any.

    `why` it stands as a whole (paused, restoring, unpublished, closing; or is held up, since the parked limit is reached,
    the memory is full of what waits or the commit map is full), empty where it does not.
    """

    partition: _Number
    epoch: _Number
    position: _Number
    held: _Number
    in_flight: _Number
    parked: _Number
    lanes: _Number
    why: str
    notable: tuple[LaneReport, ...] = ()
    kind: str = ""  # the class whose requests it holds, where there are classes


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What one worker tells. `at` is its wall clock, RFC 3339; `control` the offset up to which it has read the control topic."""

    slot: str
    at: str
    ordering: str
    interval_s: _Seconds
    control: _Number
    partitions: tuple[PartitionReport, ...]
    v: Literal[1] = 1

    def message(self, topic: str) -> Message:
        """The record to write: as many notable lanes as fit."""
        return Message(topic, 0, self.slot.encode(), encode(self), (("content-type", b"application/json"),))


def tombstone(slot: str, topic: str) -> Message:
    """What an orderly end leaves: nothing is said of this slot any more."""
    return Message(topic, 0, slot.encode(), None, ())


_ADAPTER = TypeAdapter(WorkerReport)


def encode(report: WorkerReport) -> bytes:
    """The report as JSON, at most `REPORT_MAX_BYTES`: of every partition the first lanes, fewer and fewer until all fit.

    Hundreds of partitions in one worker leave no room for lanes; those beyond a thousand or so are left out themselves.
    """
    lanes, partitions = LANES_MAX, len(report.partitions)
    while True:
        told = tuple(replace(each, notable=each.notable[:lanes]) for each in report.partitions[:partitions])
        content = orjson.dumps(replace(report, partitions=told))
        if len(content) <= REPORT_MAX_BYTES or not partitions:
            return content
        if lanes:
            lanes //= 2
        else:
            partitions //= 2


def decode(content: bytes | None) -> WorkerReport | None:
    """The report in a record of the workers topic; None for a tombstone and for what is not ours. What later versions add is ignored."""
    if content is None:
        return None
    try:
        return _ADAPTER.validate_json(content)
    except ValidationError:
        return None


class Weight(NamedTuple):
    """What makes a lane worth telling of: somebody holds it, it has waited long (`waited_s`), or much stands in it."""

    is_held: bool
    waited_s: float
    queued: int


def notable(lanes: Iterable[_Lane], weigh: Callable[[_Lane], Weight], most: int = LANES_MAX) -> list[_Lane]:
    """The lanes worth telling of, at most `most`: a third each of those that are held, waited longest and are longest; then by waiting."""
    weighed = [(weigh(lane), number, lane) for number, lane in enumerate(lanes)]
    if len(weighed) > most:
        third = max(1, most // 3)
        chosen = heapq.nlargest(third, weighed, key=lambda item: (item[0].is_held, item[0].waited_s))
        chosen += heapq.nlargest(third, weighed, key=lambda item: item[0].queued)
        chosen += heapq.nlargest(most, weighed, key=lambda item: item[0].waited_s)
        first = {number: (weight, number, lane) for weight, number, lane in chosen}
        weighed = [*first.values()][:most]
    weighed.sort(key=lambda item: (not item[0].is_held, -item[0].waited_s, item[1]))
    return [lane for _, _, lane in weighed]
