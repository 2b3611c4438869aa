"""A partition under one assignment: its lanes, its progress, and how much of it is held in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dispatcher.core.lane import Lane
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.progress import Progress
from dispatcher.core.record import Record
from dispatcher.core.request import Decoder


class Flow(Enum):
    """What the source should do with this partition now."""

    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Room:
    """How much one partition may hold, and for how long what has ended may wait to be published.

    Pausing throws away what the client has fetched ahead: it starts at the full mark and ends at half of it, never record by record.
    """

    records: int
    size_bytes: int
    unpublished_s: float


class Partition:
    """One object per assignment: a late result of an earlier one lands on an object that nobody reads.

    With `ordering = "partition"` it holds one lane. Owned by the engine.
    """

    __slots__ = (
        *("_held_bytes", "_held_records", "_paused", "_room", "_unpublished", "_unpublished_bytes"),
        *("closed", "lane", "owner", "progress"),
    )

    def __init__(self, owner: Owner, position: int, decoder: Decoder, room: Room) -> None:
        self.owner = owner
        self.progress = Progress(position)
        self.lane = Lane(owner, decoder)
        self.closed = False
        self._room = room
        self._held_records = 0
        self._held_bytes = 0
        # Outcomes handed out and not yet acknowledged, the oldest first: their bytes, and since when they wait (monotonic seconds).
        self._unpublished: dict[int, tuple[int, float]] = {}
        self._unpublished_bytes = 0
        self._paused = False

    @property
    def held_records(self) -> int:
        """Records in memory: queued, called, or waiting for their acknowledgement."""
        return self._held_records

    @property
    def is_drained(self) -> bool:
        """Whether a closed partition has nothing in flight: no call, no outcome that waits to be fetched, no publication."""
        return self.closed and len(self.lane) == 0 and not self._unpublished

    def is_held_back(self, now: float) -> bool:
        """Whether no further call may start since too much waits to be published, or something for too long.

        Too much: answers may be far larger than requests. Too long: who cannot reach Kafka does not hear that it has lost the
        partition (a KIP-848 client is told by the broker alone), and would go on beside the new owner until its buffer is empty.
        """
        if self._unpublished_bytes >= self._room.size_bytes:
            return True
        oldest = next(iter(self._unpublished.values()), None)
        return oldest is not None and now - oldest[1] >= self._room.unpublished_s

    def accept(self, records: Iterable[Record], now: float) -> Flow | None:
        """Queue records that came at `now` (monotonic seconds), each at most once; says if the source should pause."""
        if self.closed:
            return None
        for record in records:
            if self.progress.deliver(record.offset):
                self.lane.add(record, now)
                self._held_records += 1
                self._held_bytes += record.size_bytes
        return self._flow()

    def settle(self, outcome: Outcome, now: float) -> Outcome:
        """`outcome` with the position that may be committed with it. Outcomes are to be published in the order of these calls."""
        assert outcome.record is not None
        position = self.progress.settle(outcome.record.offset)
        return self._hand_out(Outcome(outcome.owner, outcome.record, outcome.reply, outcome.letter, position), now)

    def reach_end(self, end: int, now: float) -> Outcome | None:
        """The log ends at `end`; an outcome that only moves the position there, if everything before is settled."""
        position = None if self.closed else self.progress.reach_end(end)
        if position is None:
            return None
        return self._hand_out(Outcome(self.owner, None, None, position=position), now)

    def acknowledge(self, outcome: Outcome) -> Flow | None:
        """`outcome` is published and its position committed; says if the source should go on."""
        # As it was noted, not as it is: what was published may have been cut meanwhile.
        self._unpublished_bytes -= self._unpublished.pop(_name(outcome))[0]
        self.progress.acknowledge(outcome.position)
        if outcome.record is not None:
            self._held_records -= 1
            self._held_bytes -= outcome.record.size_bytes
        return self._flow()

    def close(self) -> None:
        """Start nothing more; the call in hand may end."""
        self.closed = True
        self.lane.close()

    def _hand_out(self, outcome: Outcome, now: float) -> Outcome:
        self._unpublished[_name(outcome)] = outcome.size_bytes, now
        self._unpublished_bytes += outcome.size_bytes
        return outcome

    def _flow(self) -> Flow | None:
        held, size = self._held_records, self._held_bytes
        if not self._paused and (held >= self._room.records or size >= self._room.size_bytes):
            self._paused = True
            return Flow.PAUSE
        if self._paused and held * 2 <= self._room.records and size * 2 <= self._room.size_bytes:
            self._paused = False
            return Flow.RESUME
        return None


def _name(outcome: Outcome) -> int:
    """What tells an outcome from others of its partition: its record's offset, or minus the position that it only moves to."""
    return -outcome.position if outcome.record is None else outcome.record.offset
