"""Moving a group's positions: what it means for the requests of a partition, and the plan of it. Facts in, plan out.

After a move to `to` the map beside the position is empty: what stands at `to` or behind is executed, again where it has ended before;
what stands below and was not settled never is. A parked request below `to` keeps its entry, and its turn. An entry at `to` or behind is
void from then on, since its request is read from the log anew.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.plan_text import OFFSET_MAX, PARTITIONS_MAX, TOPIC_ID_BYTES, count, packed, unpacked
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from dispatcher.errors import ConfigError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's position, `since` where (None: it had none) and `to` where.

    `epoch` and `transaction` are of the note beside the old one: as long as they stand, nobody has owned the partition since.
    """

    partition: int
    since: int | None
    to: int
    epoch: int | None = None
    transaction: int | None = None

    def is_open(self, headway: Headway) -> bool:
        """Whether the position is the one that was planned for, and nobody has moved it since."""
        note = headway.note
        found = (headway.position, *((None, None) if note is None else (note.epoch, note.transaction)))
        return found == (self.since, self.epoch, self.transaction)

    def is_done(self, headway: Headway, topic_id: bytes) -> bool:
        """Whether what stands there is what this move commits."""
        return headway == Headway(self.to, self.note(topic_id))

    def note(self, topic_id: bytes) -> CommitNote | None:
        """What to commit beside the new position: nothing is settled above it, and the epochs that callees saw do not go back."""
        if self.epoch is None or self.transaction is None:
            return None
        return CommitNote(topic_id, self.epoch, self.transaction + 1, self.to)


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves of one command. `group`, and the request topic's id (16 bytes), are those that it was planned for."""

    group: str
    topic_id: bytes
    moves: tuple[Move, ...]

    def encode(self) -> str:
        """The text form: one word."""
        moves = [[move.partition, move.since, move.to, move.epoch, move.transaction] for move in self.moves]
        return packed([_VERSION, self.group, base64.b64encode(self.topic_id).decode("ascii"), moves])


def decode(text: str) -> Plan:
    """Read what `encode` gave. Raises ConfigError for anything else, also for a text that lost its end."""
    try:
        version, group, topic_id, moves = unpacked(text)
        plan = Plan(group, base64.b64decode(topic_id, validate=True), tuple(_move(*fields) for fields in moves))
    except (ValueError, TypeError):
        raise _fault() from None
    numbers = {move.partition for move in plan.moves}
    fits = len(plan.topic_id) == TOPIC_ID_BYTES and len(numbers) == len(plan.moves) and all(n < PARTITIONS_MAX for n in numbers)
    if version != _VERSION or not isinstance(group, str) or not fits or any(move.to > OFFSET_MAX for move in plan.moves):
        raise _fault()
    return plan


def _move(partition: object, since: object, to: object, epoch: object, transaction: object) -> Move:
    given = [None if number is None else count(number) for number in (since, epoch, transaction)]
    return Move(count(partition), given[0], count(to), given[1], given[2])


def _fault() -> ConfigError:
    return ConfigError("this is not a plan of a seek, or not all of it", "`dispatcher lanes seek --to POS` prints one")


class Effect:
    """What a move means for one partition, which has offsets from `first` up to `end`, and parked entries by offset.

    Counted by records that are fed to `take`, or by `estimate` from offsets alone; then it is not `exact`. What retention removed
    before it had ended is never executed either, wherever the position goes: its offsets count, at least as many as there were requests.
    """

    def __init__(self, headway: Headway, to: int, first: int, end: int, entries: Mapping[int, Entry]) -> None:
        self.to = to
        self.headway = headway
        self.again = 0
        self.never = self._removed = _unsettled_below(headway, first)
        self.keys: Counter[bytes | None] = Counter()
        self.exact = True
        # What no worker takes up, before the move either: it would come to life if the position passed it.
        self.void = tuple(sorted(offset for offset in entries if not headway.is_settled(offset)))
        valid = sorted(offset for offset in entries if headway.is_settled(offset))
        self.dropped = tuple(offset for offset in valid if offset >= to)
        self.kept = tuple(offset for offset in valid if offset < to)
        self._parked = frozenset(valid)
        self._first = first
        self._end = end

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to do."""
        return self.headway.position == self.to and not self.headway.settled and not self.dropped and not self.void

    @property
    def settled_above(self) -> int:
        """How many offsets are settled above the old position."""
        return sum(stop - start for start, stop in self.headway.settled)

    @property
    def reach(self) -> tuple[int, int]:
        """From where to where the records stand that it is about."""
        position = self._position
        above = max((stop for _, stop in self.headway.settled), default=position)
        return max(self._first, min(position, self.to)), min(self._end, max(above, position, self.to))

    def take(self, record: Record) -> None:
        """Count one record of `reach`."""
        settled, parked = self.headway.is_settled(record.offset), record.offset in self._parked
        if record.offset >= self.to and settled and not parked:
            self.again += 1
            self.keys[record.key] += 1
        elif record.offset < self.to and not settled:
            self.never += 1

    def estimate(self) -> None:
        """Count offsets in place of records: at least as many."""
        self.exact = False
        low, high = self.reach
        ranges = ((low, self._position), *self.headway.settled)
        self.again = _within(ranges, self.to, high) - len(self.dropped)
        self.never = self._removed + max(0, self.to - low) - _within(ranges, low, self.to)

    @property
    def _position(self) -> int:
        return self._first if self.headway.position is None else max(self._first, self.headway.position)


def _unsettled_below(headway: Headway, first: int) -> int:
    """How many offsets from the position up to `first` have not ended."""
    position = first if headway.position is None else headway.position
    return max(0, first - position) - _within(headway.settled, position, first)


def _within(ranges: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """Count the offsets of disjoint ranges that lie from `low` up to `high`."""
    return sum(max(0, min(stop, high) - max(start, low)) for start, stop in ranges)
