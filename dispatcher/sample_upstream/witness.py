"""The witness: what the callee saw of every call, and its judgement of order, overlap and repetition. Pure: `now` is an argument."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from dispatcher.sample_upstream.history import LaneHistory

Ending = Literal["answered", "client_closed", "reset", "truncated"]

# Events kept for `GET /witness`, two per call, about 400 bytes each: the whole of a test or demo run, and no more than 80 MB.
EVENTS_KEPT_MAX = 200_000
# Ids whose answers are remembered to find repeated calls; the oldest are forgotten first.
IDS_KEPT_MAX = 200_000
# Keys that are judged as lanes of their own; calls of further keys are counted as not judged by key.
KEYS_JUDGED_MAX = 20_000
# Sentences kept of what was found wrong, for the reader; the counts go on.
FINDINGS_KEPT_MAX = 20
SUCCESS_CLASS = 2  # 2xx


@dataclass(frozen=True, slots=True)
class Visit:
    """One call as its headers describe it; None where a header is absent or unreadable (a caller that is not a dispatcher)."""

    partition: int | None = None
    offset: int | None = None
    epoch: int | None = None
    attempt: int | None = None
    idempotency_key: str | None = None
    key: str | None = None  # lane key, if the caller tells it: headers of a call do not carry it
    lane: str | None = None  # the name of the key's lane, where the caller has a lane for each key


@dataclass(slots=True)
class _Open:
    visit: Visit
    lanes: tuple[LaneHistory, ...]


class Witness:
    """Takes down start and end of every call and judges them. Owned by the server's event loop; the same facts give the same summary.

    `now` is a monotonic time in seconds. Epochs of different partitions have nothing to do with each other. A key is taken to live in
    one partition (it does, while the partition count stays). Calls that name their lane have one for each key: they are judged by key
    alone, by the lane's name where the key is not told.

    >>> witness = Witness()
    >>> for at, (epoch, offset) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]):
    ...     number = witness.start(Visit(partition=0, offset=offset, epoch=epoch, idempotency_key=f"r{offset}"), float(at))
    ...     witness.end(number, "answered", at + 0.5, status=200)
    >>> summary = witness.summary()
    >>> summary["calls"], summary["out_of_order"]["partition"], summary["repeated"]
    (5, 0, {'same_epoch': 0, 'other_epoch': 2})
    """

    def __init__(self, *, events_max: int = EVENTS_KEPT_MAX) -> None:
        self._events_max = events_max
        self.reset()

    def reset(self) -> None:
        """Forget everything, except that calls still open end without being counted."""
        self._events: deque[tuple[Any, ...]] = deque(maxlen=self._events_max)
        self._next = getattr(self, "_next", 0)
        self._open: dict[int, _Open] = {}
        self._partitions: dict[int, LaneHistory] = {}
        self._keys: dict[str, LaneHistory] = {}
        self._in_flight: Counter[int] = Counter()  # by partition, now
        self._in_flight_max: dict[int, int] = {}
        self._answered_by: OrderedDict[str, frozenset[int]] = OrderedDict()
        self._endings: Counter[str] = Counter()
        self._statuses: Counter[int] = Counter()
        self._repeated: Counter[str] = Counter()
        self._findings: list[str] = []
        self._calls = self._events_seen = self._without_position = self._keys_not_judged = self._open_max = 0

    def start(self, visit: Visit, now: float) -> int:
        """Note that a call begins: its whole request has been read. Returns the number by which `end` knows it."""
        number = self._next = self._next + 1
        self._calls += 1
        self._note(("start", number, now, visit))
        epoch = visit.epoch or 0
        lanes = self._lanes(visit)
        for name, lane in lanes:
            lane.opened(number, epoch)
            finding = None if visit.offset is None else lane.start(epoch=epoch, offset=visit.offset)
            if finding is not None and len(self._findings) < FINDINGS_KEPT_MAX:
                self._findings.append(f"{name}: {finding}")
        if (partition := visit.partition) is not None:
            self._in_flight[partition] += 1
            self._in_flight_max[partition] = max(self._in_flight_max.get(partition, 0), self._in_flight[partition])
        self._open[number] = _Open(visit, tuple(lane for _, lane in lanes))
        self._open_max = max(self._open_max, len(self._open))
        return number

    def end(self, number: int, ending: Ending, now: float, *, status: int | None = None) -> None:
        """Note that a call ends, before its answer leaves: the end of a call is always seen before the start that it allows."""
        call = self._open.pop(number, None)
        if call is None:  # began before a reset
            return
        for lane in call.lanes:
            lane.closed(number)
        if call.visit.partition is not None:
            self._in_flight[call.visit.partition] -= 1
        self._endings[ending] += 1
        self._note(("end", number, now, ending, status))
        if ending == "answered" and status is not None:
            self._statuses[status] += 1
            if status // 100 == SUCCESS_CLASS and call.visit.idempotency_key is not None:
                self._answered(call.visit.idempotency_key, call.visit.epoch or 0)

    def events(self) -> Iterator[dict[str, Any]]:
        """Give what is kept of the events, oldest first, as JSON objects. Times in seconds, monotonic."""
        for event in self._events:
            if event[0] == "start":
                _, number, at, visit = event
                yield {
                    "event": "start",
                    "call": number,
                    "t_s": at,
                    "partition": visit.partition,
                    "offset": visit.offset,
                    "epoch": visit.epoch,
                    "attempt": visit.attempt,
                    "id": visit.idempotency_key,
                    "key": visit.key,
                    "lane": visit.lane,
                }
            else:
                _, number, at, ending, status = event
                yield {"event": "end", "call": number, "t_s": at, "outcome": ending, "status": status}

    def summary(self) -> dict[str, Any]:
        """Judge, as one JSON object. Where all went well `out_of_order`, `not_repeated` and `overlaps` hold only zeros."""
        partitions, keys = self._partitions.values(), self._keys.values()
        lanes = {"partition": partitions, "key": keys}
        return {
            "calls": self._calls,
            "open": len(self._open),
            "endings": dict(sorted(self._endings.items())),
            "statuses": {str(status): count for status, count in sorted(self._statuses.items())},
            "out_of_order": {kind: sum(lane.out_of_order for lane in of) for kind, of in lanes.items()},
            # Offsets that a new owner went back over and has not started again: legal while it runs, not at the end.
            "not_repeated": {kind: sum(len(lane.owed) for lane in of) for kind, of in lanes.items()},
            "overlaps": {
                kind: {
                    "same_epoch": sum(lane.overlaps_same_epoch for lane in of),
                    "other_epoch": sum(lane.overlaps_other_epoch for lane in of),
                }
                for kind, of in lanes.items()
            },
            "repeated": {"same_epoch": self._repeated["same_epoch"], "other_epoch": self._repeated["other_epoch"]},
            "in_flight_max": self._open_max,
            "in_flight_max_by_partition": {str(number): most for number, most in sorted(self._in_flight_max.items())},
            "partitions": len(self._in_flight_max),
            "keys": len(keys),
            "without_position": self._without_position,
            "keys_not_judged": self._keys_not_judged,
            "events_dropped": self._events_seen - len(self._events),
            "findings": list(self._findings),
        }

    def _lanes(self, visit: Visit) -> list[tuple[str, LaneHistory]]:
        lanes = []
        if visit.partition is None or visit.offset is None:
            self._without_position += 1
        if visit.partition is not None and visit.lane is None:
            lanes.append((f"partition {visit.partition}", self._partitions.setdefault(visit.partition, LaneHistory())))
        key = visit.key if visit.key is not None else visit.lane
        if key is not None:
            if key in self._keys or len(self._keys) < KEYS_JUDGED_MAX:
                lanes.append((f"key {key}", self._keys.setdefault(key, LaneHistory())))
            else:
                self._keys_not_judged += 1
        return lanes

    def _answered(self, idempotency_key: str, epoch: int) -> None:
        epochs = self._answered_by.pop(idempotency_key, frozenset())
        if epochs:
            self._repeated["same_epoch" if epoch in epochs else "other_epoch"] += 1
        self._answered_by[idempotency_key] = epochs | {epoch}
        if len(self._answered_by) > IDS_KEPT_MAX:
            self._answered_by.popitem(last=False)

    def _note(self, event: tuple[Any, ...]) -> None:
        self._events_seen += 1
        self._events.append(event)
