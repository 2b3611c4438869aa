"""Replaying requests: which records of a range are called again, as what, and what of a plan is done already.

The log is the ledger. A replayed request carries the id of its replay and the place of its original, both in headers; it goes to the
partition of its original, in the original's order. So what a partition holds of a replay is always a beginning of what was planned for
it, and the place of the last one found says where to go on.

New ids are made of the replay's id and the old id: two records of one id stay two records of one id, and whoever recognises a repeated
request by its id does so again.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dispatcher.core.messages.envelope import REPLAY_ID, REPLAY_OF, REPLAYED_FROM, position_id
from dispatcher.core.messages.glance import header
from dispatcher.core.messages.record import Header, Message, Record, size_bytes
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.request_id import CHANCE_BITS, time_ordered
from dispatcher.core.messages.status import Reason
from dispatcher.core.operations.replay_plan import Part, Plan
from dispatcher.errors import RefusedError

# Why a record is left out beside the reasons of dead letters: it is a replay itself.
ALREADY_A_REPLAY = "replay"
# Keys that are counted one by one: about 10 MB at most for keys of usual length. Beyond that only their number is open.
KEYS_COUNTED_MAX = 65_536

_PLACE = re.compile(r".+/([0-9]{1,9})/([0-9]{1,19})")
# What no worker of this version calls, however its upstreams are set up: it would only end as a dead letter again.
_HOPELESS = frozenset(
    {Reason.MALFORMED, Reason.UNSUPPORTED_SCHEMA, Reason.UNSUPPORTED_FIELD, Reason.WRONG_PARTITION, Reason.TOO_LARGE},
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a range are replayed. `decoder` is one without upstreams: those are the workers' matter."""

    decoder: Decoder
    record_max_bytes: int  # what the request topic takes
    key: bytes | None = None
    include_replays: bool = False

    def asks_for(self, record: Record) -> bool:
        """Whether a record is of the key that was asked for."""
        return self.key is None or record.key == self.key

    def skipped(self, record: Record) -> str | None:
        """Why a record that was asked for is left out, as one word; None for one that is replayed."""
        if not self.include_replays and header(record, REPLAY_OF) is not None:
            return ALREADY_A_REPLAY
        decoded = self.decoder.decode(record)
        if not isinstance(decoded, Request) and decoded[1].reason in _HOPELESS:
            return decoded[1].reason.value
        return Reason.TOO_LARGE.value if self._grown(record) > self.record_max_bytes else None

    def takes(self, record: Record) -> bool:
        """Whether a record is replayed."""
        return self.asks_for(record) and self.skipped(record) is None

    def old_id(self, record: Record) -> str:
        """The id of a request, in the long form where it is a position."""
        return header(record, "ce_id") or position_id(record, self.decoder.topic_id)

    def _grown(self, record: Record) -> int:
        """The size that the copy of a record has at most."""
        return size_bytes(record.key, record.value, _headers(record, "0" * 36, self.old_id(record), "0" * 36, "0" * 24))


def replayed(record: Record, plan: Plan, old_id: str, time: str) -> Message:
    """The record to write in place of a record that is replayed. `time` is now, as RFC 3339.

    Bytes of key, value and headers stay, but for the id, the time and the marks of a replay; a trace goes on, since who follows the
    old request wants to find the new one.
    """
    digest = hashlib.sha256(f"{plan.replay_id}\n{old_id}".encode()).digest()
    chance = int.from_bytes(digest[: (CHANCE_BITS + 7) // 8], "big")
    headers = _headers(record, time_ordered(plan.time_ms, chance), old_id, plan.replay_id, time)
    return Message(record.topic, record.partition, record.key, record.value, headers)


def _headers(record: Record, new_id: str, old_id: str, replay_id: str, time: str) -> tuple[Header, ...]:
    instead = {"ce_id": new_id.encode(), "ce_time": time.encode()}
    marks = {
        REPLAY_OF: old_id.encode(),
        REPLAY_ID: replay_id.encode(),
        REPLAYED_FROM: f"{record.topic}/{record.partition}/{record.offset}".encode(),
    }
    kept = tuple((name, instead.get(name, content)) for name, content in record.headers or () if name not in marks)
    own_id = () if any(name == "ce_id" for name, _ in kept) else (("ce_id", instead["ce_id"]),)
    return (*kept, *own_id, *marks.items())


class Survey:
    """Counts what a range holds, for a plan: fed record by record, in the order of each partition. Its memory is bounded."""

    def __init__(self, selection: Selection, most: int | None = None) -> None:
        """`most` is how many requests to take; behind them records count no more."""
        self.skipped: Counter[str] = Counter()
        self.keys: Counter[bytes] = Counter()
        self.keys_are_all = True
        self.requests = 0
        self.oldest_ms: int | None = None
        self._selection = selection
        self._most = most
        self._found: dict[int, list[int]] = {}  # partition to first offset, last offset, count

    @property
    def is_limited(self) -> bool:
        """Whether not all are wanted."""
        return self._most is not None

    @property
    def is_full(self) -> bool:
        """Whether as many as wanted are found."""
        return self._most is not None and self.requests >= self._most

    def take(self, record: Record) -> None:
        """Count one record."""
        if self.is_full or not self._selection.asks_for(record):
            return
        if (why := self._selection.skipped(record)) is not None:
            self.skipped[why] += 1
            return
        self.requests += 1
        found = self._found.setdefault(record.partition, [record.offset, 0, 0])
        found[1:] = record.offset, found[2] + 1
        if record.timestamp_ms is not None:
            self.oldest_ms = min(record.timestamp_ms, self.oldest_ms or record.timestamp_ms)
        key = record.key or b""
        if key in self.keys or len(self.keys) < KEYS_COUNTED_MAX:
            self.keys[key] += 1
        else:
            self.keys_are_all = False

    def parts(self, ends: dict[int, int]) -> tuple[Part, ...]:
        """Give the parts of the plan; `ends` are the ends of the partitions."""
        found = sorted(self._found.items())
        return tuple(Part(partition, first, last + 1, count, ends[partition]) for partition, (first, last, count) in found)


class Ledger:
    """What a plan's replay has left in the log: fed the records from each part's `end` on, in the order of each partition."""

    def __init__(self, plan: Plan) -> None:
        self.disorder = 0  # found again, or in another order than planned: never, if nobody forges our headers
        self._plan = plan
        self._last: dict[int, int] = {}
        self._count: Counter[int] = Counter()

    def take(self, record: Record) -> None:
        """Look at one record, of whomever it is."""
        if header(record, REPLAY_ID) != self._plan.replay_id:
            return
        place = _PLACE.fullmatch(header(record, REPLAYED_FROM) or "")
        if place is None or int(place[1]) != record.partition or int(place[2]) <= self._last.get(record.partition, -1):
            self.disorder += 1
            return
        self._last[record.partition] = int(place[2])
        self._count[record.partition] += 1

    @property
    def requests(self) -> int:
        """How many requests of the plan are in the log."""
        return self._count.total()

    def left(self) -> dict[int, int]:
        """How many are left, by partition; a partition that is done is not in it. RefusedError where there are more than planned."""
        left = {part.partition: part.requests - self._count[part.partition] for part in self._plan.parts}
        if self.disorder or any(count < 0 for count in left.values()):
            raise RefusedError(
                "the request topic holds other requests of this replay than were planned", "plan it anew, and look at what is there first"
            )
        return {partition: count for partition, count in left.items() if count}

    def ranges(self) -> dict[int, tuple[int, int]]:
        """From where to where the originals stand that are left, by partition."""
        left = self.left()
        return {
            part.partition: (max(part.start, self._last.get(part.partition, -1) + 1), part.stop)
            for part in self._plan.parts
            if part.partition in left
        }


def due(ledger: Ledger, selection: Selection, records: Iterable[Record]) -> Iterator[Record]:
    """Pick what is left to replay from the records of `ledger.ranges()`. RefusedError where they are not as many as planned."""
    left = ledger.left()
    for record in records:
        if selection.takes(record):
            left[record.partition] -= 1
            if left[record.partition] < 0:
                raise changed(record.partition, "more")
            yield record
    for partition, count in left.items():
        if count:
            raise changed(partition, f"{count} fewer")


def changed(partition: int, how: str) -> RefusedError:
    """Say that a range is not what it was."""
    return RefusedError(
        f"the set changed since the plan: partition {partition} has {how} requests to replay than were planned",
        "retention may have removed some, or the settings differ: plan it anew",
    )
