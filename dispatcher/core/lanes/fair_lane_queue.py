"""The requests of a lane that is shared fairly: whose turn it is goes by their agents, not by the log (`worker.fairness = "agent"`)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import chain, islice

from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import Entry, until_at
from dispatcher.core.lanes.fairness import FairQueue
from dispatcher.core.lanes.lane_queue import LaneQueue, Waiting, find, offset_of
from dispatcher.settings import AgentSettings

# Of those that are next so many times as many are looked at as are to stay in memory: others may be parked already.
LOOK = 8


class FairLaneQueue(LaneQueue):
    """Owned by one Lane. The look-ahead is all that the lane knows of, in memory (`front`) or parked; `back` stays empty.

    Within an agent turns are in the order of the log. Who has been called goes on first, though it was moved aside while it waited, or its
    owner was another one (`tried`): a retry is in place. `is_tight` says that a commit can carry no more out of the order of the log: the
    oldest goes first then, whoever asks.
    """

    __slots__ = ("_agents", "_current", "_fair", "_is_tight", "_tried")

    def __init__(self, agents: Mapping[str, AgentSettings], is_tight: Callable[[], bool], tried: Collection[int] = ()) -> None:
        super().__init__()
        self._fair = FairQueue(lambda agent: of.weight if (of := agents.get(agent)) is not None else 1.0)
        self._agents: dict[int, str] = {}  # of all that wait for their turn, by offset
        self._current: int | None = None  # was called, and is aside
        self._is_tight = is_tight
        self._tried = tried

    def __contains__(self, offset: int) -> bool:
        return offset in self._agents or any(entry.offset == offset for entry in self.awaited)

    def due(self, instant: Instant) -> float:
        """As in `LaneQueue`."""
        first = self._first
        return until_at(first.due, instant) if isinstance(first, Entry) and first not in self.awaited else 0.0

    def is_foremost(self, offset: int, *, has_head: bool) -> bool:
        """Whether nothing of its agent stands before it: what is of others has no claim to go after it."""
        del has_head
        return offset in self._agents and self._fair.is_first(self._agents[offset], offset)

    def passes(self, offset: int) -> bool:
        """As in `LaneQueue`."""
        oldest = self._oldest if self._is_tight() else None
        return oldest is not None and oldest < offset

    # --- turns ----------------------------------------------------------------------------------------------------------------------

    def turn(self, instant: Instant) -> Waiting | Entry | None:
        """As in `LaneQueue`. Nobody has a turn while one that stood first is read back only to be ended: that may halt the lane's key."""
        del instant
        if any(entry.offset not in self._agents for entry in self.awaited):
            return None
        first = self._first
        if first is None:
            self._fair.rest()
        return None if first in self.awaited else first

    def take(self, waiting: Waiting) -> None:
        """As in `LaneQueue`."""
        place = find(self.front, waiting.record.offset)
        assert place is not None
        del self.front[place]
        waiting.agent = self._agents[waiting.record.offset]
        self._left(waiting.record.offset)

    def put_back(self, waiting: Waiting) -> None:
        """As in `LaneQueue`."""
        insort(self.front, waiting, key=offset_of)
        self._came(waiting.record.offset, waiting.agent)

    def began(self, waiting: Waiting) -> None:
        """As in `LaneQueue`."""
        self._fair.begin(waiting.agent)

    def next_parked(self, count: int, is_placed: Callable[[int], bool]) -> tuple[Entry, ...]:
        """As in `LaneQueue`."""
        first = self._turn
        turns = chain(() if first is None else (first,), (offset for offset in self._fair.order() if offset != first))
        found = (self._parked_at(offset) for offset in islice(turns, LOOK * count) if is_placed(offset))
        return tuple(islice((entry for entry in found if entry is not None), count))

    def send_for(self, entries: tuple[Entry, ...]) -> None:
        """As in `LaneQueue`."""
        gone = {entry.offset for entry in entries}
        self.parked = [entry for entry in self.parked if entry.offset not in gone]
        self.awaited = (*self.awaited, *entries)

    def hasten(self) -> None:
        """As in `LaneQueue`."""
        offset = self._turn
        if offset is not None and (place := find(self.parked, offset)) is not None:
            self.parked[place] = replace(self.parked[place], due=0.0)

    def came_back(self, waiting: Waiting) -> None:
        """As in `LaneQueue`."""
        insort(self.front, waiting, key=offset_of)

    def gone(self, offset: int) -> None:
        """As in `LaneQueue`."""
        self._left(offset)

    def behind_first(self, keep: int) -> list[Waiting]:
        """What can be moved aside: all in memory but for the `keep` whose turns come first."""
        here = (offset for offset in islice(self._fair.order(), LOOK * keep) if find(self.front, offset) is not None)
        stay = set(islice(here, keep))
        return [waiting for waiting in self.front if waiting.record.offset not in stay]

    def move_front(self, keep: int, line: Sequence[tuple[Waiting, Entry | None]]) -> None:
        """As in `LaneQueue`."""
        del keep
        entries = {waiting.record.offset: entry for waiting, entry in line if entry is not None}
        for waiting, _ in line[:1]:
            if waiting.record.offset in entries and waiting.record.offset not in self._agents:  # the head
                self._came(waiting.record.offset, waiting.agent)
                self._current = waiting.record.offset if waiting.tries.calls else None
        self.front = [waiting for waiting in self.front if waiting.record.offset not in entries]
        self.parked = list(merge(self.parked, sorted(entries.values(), key=offset_of), key=offset_of))

    # --- the line -------------------------------------------------------------------------------------------------------------------

    def add(self, waiting: Waiting) -> None:
        """As in `LaneQueue`."""
        self.front.append(waiting)
        self._came(waiting.record.offset, waiting.agent)

    def restore(self, entries: Iterable[Entry], instant: Instant) -> None:
        """As in `LaneQueue`."""
        del instant
        for entry in entries:
            self.admit(entry, 0.0)

    def admit(self, entry: Entry, due: float) -> None:
        """As in `LaneQueue`; when it is due it says itself."""
        del due
        self.parked.append(entry)
        self._came(entry.offset, entry.agent)

    def refill(self, instant: Instant) -> None:
        """As in `LaneQueue`: nothing stands behind."""

    def remove(self, offset: int) -> Waiting | None:
        """As in `LaneQueue`."""
        waiting = super().remove(offset)
        if waiting is not None:
            self._left(offset)
        return waiting

    def remove_parked(self, offset: int) -> Entry | None:
        """As in `LaneQueue`."""
        entry = super().remove_parked(offset)
        if entry is not None:
            self._left(offset)
        return entry

    def clear(self) -> None:
        """As in `LaneQueue`."""
        super().clear()
        self._fair.clear()
        self._agents.clear()
        self._current = None

    @property
    def _first(self) -> Waiting | Entry | None:
        offset = self._turn
        if offset is None:
            return None
        if (place := find(self.front, offset)) is not None:
            return self.front[place]
        return self._parked_at(offset) or next(entry for entry in self.awaited if entry.offset == offset)

    @property
    def _turn(self) -> int | None:
        """The offset whose turn it is."""
        if self._current is not None:
            return self._current
        if self._is_tight():
            return self._oldest
        under_way = next((offset for offset in self._fair.firsts() if offset in self._tried), None) if self._tried else None
        return self._fair.next() if under_way is None else under_way

    @property
    def _oldest(self) -> int | None:
        """The first offset of all that wait for their turn."""
        firsts = [one.offset for one in self.awaited if one.offset in self._agents]
        firsts += [offset_of(queue[0]) for queue in (self.front, self.parked) if queue]
        return min(firsts, default=None)

    def _parked_at(self, offset: int) -> Entry | None:
        place = find(self.parked, offset)
        return None if place is None else self.parked[place]

    def _came(self, offset: int, agent: str) -> None:
        self._agents[offset] = agent
        self._fair.add(agent, offset)

    def _left(self, offset: int) -> None:
        agent = self._agents.pop(offset, None)
        if agent is not None:
            self._fair.remove(agent, offset)
        if self._current == offset:
            self._current = None
