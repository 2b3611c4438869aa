"""The guarantees as objects: each sees the events of a world and says at the end what was broken. They know nothing of how it was built.

Positions are (partition, offset) of the request log. `see` is called in the order in which things happened; `findings` at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from dispatcher.sample_upstream.history import LaneHistory
from tests.guarantees.events import (
    CallEnded,
    CallStarted,
    Committed,
    Crashed,
    Ended,
    Event,
    HandedOver,
    LetterVisible,
    Lost,
    ReplyVisible,
    Submitted,
    Unreadable,
    Withheld,
)

Position = tuple[int, int]


class Judge(Protocol):
    """One guarantee."""

    def see(self, event: Event) -> None:
        """Take in what happened."""

    def findings(self) -> list[str]:
        """Say what was broken, one sentence each."""


class Order:
    """Calls of a lane start in log order, retries included; replies of calls stand in their topic in that order.

    The lane is the partition. A new epoch may begin again at a committed position; what the lost worker of an older epoch still starts
    has to be in order among itself.

    >>> def starts(*offsets):
    ...     order, epoch, last = Order(), 1, 0
    ...     for call, offset in enumerate(offsets):
    ...         epoch, last = epoch + (offset < last), offset
    ...         order.see(CallStarted(call, 0, offset, epoch))
    ...     return order.findings()
    >>> starts(1, 2, 1, 2, 3)
    []
    >>> starts(1, 3, 2)
    ['partition 0: offset 3 of an earlier epoch was never started again']
    >>> one_epoch = Order()
    >>> for call, offset in enumerate((1, 3, 2)):
    ...     one_epoch.see(CallStarted(call, 0, offset, 1))
    >>> one_epoch.findings()
    ['partition 0: offset 2 started after offset 3 in epoch 1']

    `resends_allowed`: at least once, a reply that had to be sent again may stand later; elsewhere places are judged, whenever told.

    >>> def replies(*offsets, **how):
    ...     order = Order(**how)
    ...     for place, offset in enumerate(offsets):
    ...         order.see(ReplyVisible(0, offset, (0, place)))
    ...     return order.findings()
    >>> replies(1, 2, 4)
    []
    >>> replies(1, 3, 2)
    ['partition 0: the reply to 3 stands before the one to 2']
    >>> replies(1, 3, 2, resends_allowed=True)
    []
    """

    def __init__(self, *, resends_allowed: bool = False) -> None:
        self._resends_allowed = resends_allowed
        self._lanes: dict[int, LaneHistory] = defaultdict(LaneHistory)
        self._last: dict[tuple[int, int], int] = {}  # (partition, epoch) -> last offset started
        self._replied: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # (partition, reply partition) -> (place, offset)
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in starts and replies."""
        match event:
            case CallStarted(partition=partition, offset=offset, epoch=epoch):
                self._start(partition, offset, epoch)
            case ReplyVisible(partition, offset, (reply_partition, place), called=True):
                self._replied[partition, reply_partition].append((place, offset))
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what overtook what, and what a new owner went back over and never did."""
        owed = [
            f"partition {partition}: offset {offset} of an earlier epoch was never started again"
            for partition, lane in sorted(self._lanes.items())
            for offset in lane.owed
        ]
        return self._found + owed + list(self._misplaced())

    def _start(self, partition: int, offset: int, epoch: int) -> None:
        lane = self._lanes[partition]
        last = self._last.get((partition, epoch), -1)
        self._last[partition, epoch] = offset
        if epoch < lane.epoch:
            # A lost worker that does not know it yet. Whether it may still live is for `OneAtATime` to say.
            finding = f"offset {offset} started after offset {last} in epoch {epoch}" if offset < last else None
        else:
            finding = lane.start(epoch=epoch, offset=offset)
        if finding is not None:
            self._found.append(f"partition {partition}: {finding}")

    def _misplaced(self) -> Iterator[str]:
        for (partition, _), replied in sorted(self._replied.items()):
            last = -1
            for _, offset in () if self._resends_allowed else sorted(replied):
                if offset < last:
                    yield f"partition {partition}: the reply to {last} stands before the one to {offset}"
                last = max(last, offset)


class OneAtATime:
    """At most one call of a lane is in flight, as the workers see it. The call in hand of a *lost* owner may overlap its successor's.

    A loss excuses the epochs that it was about, and nothing that the same worker is given later.

    >>> judge = OneAtATime()
    >>> for event in (CallStarted(1, 0, 5, 1, "a"), CallEnded(1), CallStarted(2, 0, 6, 1, "a"), Lost("a", 1), CallStarted(3, 0, 6, 2, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(4, 0, 7, 2, "b"))
    >>> judge.findings()
    ['partition 0: offset 7 (b, epoch 2) started while offset 6 (b, epoch 2) was in flight']
    >>> judge = OneAtATime()
    >>> for event in (CallStarted(1, 0, 5, 1, "a"), Lost("a", 1), CallEnded(1), CallStarted(2, 0, 5, 3, "a"), CallStarted(3, 0, 5, 4, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    ['partition 0: offset 5 (b, epoch 4) started while offset 5 (a, epoch 3) was in flight']
    """

    def __init__(self) -> None:
        self._open: dict[int, CallStarted] = {}
        self._lost: dict[str, int] = {}  # worker -> the highest epoch that its losses excuse
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in starts, ends and losses."""
        match event:
            case CallStarted():
                self._start(event)
            case CallEnded(call):
                self._open.pop(call, None)
            case Crashed(worker):
                for call in [number for number, open_ in self._open.items() if open_.worker == worker]:
                    del self._open[call]
            case Lost(worker, epoch):
                self._lost[worker] = max(self._lost.get(worker, 0), epoch)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which call began while which other one ran."""
        return list(self._found)

    def _start(self, event: CallStarted) -> None:
        for other in self._open.values():
            if other.partition == event.partition and not self._excused(other, event):
                mine, theirs = (f"offset {e.offset} ({e.worker}, epoch {e.epoch})" for e in (event, other))
                self._found.append(f"partition {event.partition}: {mine} started while {theirs} was in flight")
        self._open[event.call] = event

    def _excused(self, one: CallStarted, two: CallStarted) -> bool:
        older = one if one.epoch < two.epoch else two
        return one.epoch != two.epoch and one.worker != two.worker and older.epoch <= self._lost.get(older.worker, 0)


class NothingLost:
    """Every request has a terminal reply in the end, and where the last one says that it is dead, there is a letter.

    >>> judge = NothingLost()
    >>> for event in (Submitted(0, 1), Submitted(0, 2), ReplyVisible(0, 2, dead=True)):
    ...     judge.see(event)
    >>> judge.findings()
    ['(0, 1) has no reply', '(0, 2) is dead without a letter']
    """

    def __init__(self) -> None:
        self._submitted: list[Position] = []
        self._is_dead: dict[Position, bool] = {}
        self._letters: set[Position] = set()

    def see(self, event: Event) -> None:
        """Take in requests, replies and letters."""
        match event:
            case Submitted(partition, offset):
                self._submitted.append((partition, offset))
            case ReplyVisible(partition, offset, dead=dead):
                self._is_dead[partition, offset] = dead
            case LetterVisible(partition, offset):
                self._letters.add((partition, offset))
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was lost."""
        lost = [f"{position} has no reply" for position in self._submitted if position not in self._is_dead]
        dead = sorted(position for position, is_dead in self._is_dead.items() if is_dead and position not in self._letters)
        return lost + [f"{position} is dead without a letter" for position in dead]


class OneOutcome:
    """One terminal reply (and one letter) per request.

    `repeats_allowed`: at least once, where each crash, loss, or answer that the cluster owes may cost one copy more of what its worker
    called; of what nobody called, since then it is not known whose it was.

    >>> def doubled(worker, **how):
    ...     judge = OneOutcome(**how)
    ...     for event in (CallStarted(1, 0, 1, 1, "a"), ReplyVisible(0, 1), Crashed(worker), ReplyVisible(0, 1)):
    ...         judge.see(event)
    ...     return judge
    >>> doubled("a").findings()
    ['(0, 1) has 2 replies']
    >>> doubled("b", repeats_allowed=True).findings()
    ['(0, 1) has 2 replies']
    >>> weaker = doubled("a", repeats_allowed=True)
    >>> weaker.findings()
    []
    >>> weaker.see(ReplyVisible(0, 1))
    >>> weaker.findings()
    ['(0, 1) has 3 replies']
    """

    def __init__(self, *, repeats_allowed: bool = False) -> None:
        self._repeats_allowed = repeats_allowed
        self._disturbed: Counter[str] = Counter()  # worker -> what has happened to it that allows repeats
        self._callers: dict[Position, set[str]] = defaultdict(set)
        self._copies: Counter[tuple[str, Position]] = Counter()
        self._found: dict[tuple[str, Position], str] = {}

    def see(self, event: Event) -> None:
        """Take in replies and letters."""
        match event:
            case ReplyVisible(partition, offset):
                self._count("replies", (partition, offset))
            case LetterVisible(partition, offset):
                self._count("letters", (partition, offset))
            case CallStarted(partition=partition, offset=offset, worker=worker):
                self._callers[partition, offset].add(worker)
            case Crashed(worker, orderly=False) | Lost(worker) | Withheld(worker):
                self._disturbed[worker] += 1
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was answered more than once."""
        return [self._found[of] for of in sorted(self._found, key=lambda of: (of[0] == "letters", of[1]))]

    def _count(self, what: str, position: Position) -> None:
        self._copies[what, position] += 1
        count = self._copies[what, position]
        if count > 1 + (self._excused(position) if self._repeats_allowed else 0):
            self._found[what, position] = f"{position} has {count} {what}"

    def _excused(self, position: Position) -> int:
        callers = self._callers.get(position) or self._disturbed.keys()
        return sum(self._disturbed[worker] for worker in callers)


class CommitAfterAcknowledgement:
    """A position is committed only with, or after, the replies (and letters) of all requests below it; and it never goes back.

    >>> judge = CommitAfterAcknowledgement()
    >>> for event in (Submitted(0, 0), Submitted(0, 4), ReplyVisible(0, 0), Committed(0, 1), Committed(0, 4)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (Committed(0, 5), Committed(0, 1), Submitted(0, 7), ReplyVisible(0, 7, dead=True), Committed(0, 8)):
    ...     judge.see(event)
    >>> for finding in judge.findings():
    ...     print(finding)
    partition 0: position 5 was committed before the reply to offset 4
    partition 0: the position went back from 5 to 1
    partition 0: position 8 was committed before the letter of offset 7
    """

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, str]] = defaultdict(dict)  # what is missing, per partition and offset
        self._letters: set[Position] = set()
        self._position: dict[int, int] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests, replies, letters and commits."""
        match event:
            case Submitted(partition, offset):
                self._waiting[partition][offset] = "the reply to"
            case ReplyVisible(partition, offset, dead=dead):
                if not dead or (partition, offset) in self._letters:
                    self._waiting[partition].pop(offset, None)
                elif offset in self._waiting[partition]:
                    self._waiting[partition][offset] = "the letter of"
            case LetterVisible(partition, offset):
                self._letters.add((partition, offset))
                if self._waiting[partition].get(offset) == "the letter of":
                    del self._waiting[partition][offset]
            case Committed(partition, position):
                self._commit(partition, position)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which positions came too early, or went back."""
        return list(self._found)

    def _commit(self, partition: int, position: int) -> None:
        waiting = self._waiting[partition]
        for offset in sorted(offset for offset in waiting if offset < position):
            self._found.append(f"partition {partition}: position {position} was committed before {waiting.pop(offset)} offset {offset}")
        before = self._position.get(partition, 0)
        if position < before:
            self._found.append(f"partition {partition}: the position went back from {before} to {position}")
        self._position[partition] = position


class NothingStuck:
    """When the time that the promise allows has passed, everything is committed up to the end, no call runs and readers see everything.

    And a partition is given back within `handover_max_s` of being asked for.

    >>> judge = NothingStuck()
    >>> for event in (Submitted(0, 0), ReplyVisible(0, 0), Committed(0, 1), Ended(0, 1)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(Ended(0, 3))
    >>> judge.see(Unreadable("replies-0"))
    >>> judge.findings()
    ['partition 0: the position is 1, the log ends at 3', 'replies-0 is hidden from readers by an open transaction']
    >>> judge = NothingStuck(handover_max_s=10)
    >>> judge.see(HandedOver("a", 10.5))
    >>> judge.findings()
    ['a took 10.5 s to give partitions back']
    """

    def __init__(self, *, handover_max_s: float = float("inf")) -> None:
        self._handover_max_s = handover_max_s
        self._position: dict[int, int] = {}
        self._open: dict[int, CallStarted] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in commits, calls, and the end."""
        match event:
            case Committed(partition, position):
                self._position[partition] = position
            case CallStarted(call=call):
                self._open[call] = event
            case CallEnded(call):
                self._open.pop(call, None)
            case Crashed(worker):
                self._open = {number: call for number, call in self._open.items() if call.worker != worker}
            case Ended(partition, end):
                self._end(partition, end)
            case HandedOver(worker, seconds) if seconds > self._handover_max_s:
                self._found.append(f"{worker} took {seconds:.1f} s to give partitions back")
            case Unreadable(topic):
                self._found.append(f"{topic} is hidden from readers by an open transaction")
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what stands still."""
        return list(self._found)

    def _end(self, partition: int, end: int) -> None:
        position = self._position.get(partition, 0)
        if position != end:
            self._found.append(f"partition {partition}: the position is {position}, the log ends at {end}")
        stuck = [call.offset for call in self._open.values() if call.partition == partition]
        if stuck:
            self._found.append(f"partition {partition}: the calls of {stuck} have not ended")


def judges(publishing: str, handover_max_s: float = float("inf")) -> list[Judge]:
    """All guarantees, as `worker.publishing` promises them."""
    one_outcome = OneOutcome(repeats_allowed=publishing == "at_least_once")
    stuck = NothingStuck(handover_max_s=handover_max_s)
    order = Order(resends_allowed=publishing == "at_least_once")
    return [order, OneAtATime(), NothingLost(), one_outcome, CommitAfterAcknowledgement(), stuck]


def findings(of: Iterable[Judge]) -> list[str]:
    """Everything that was broken, each with the guarantee's name before it."""
    return [f"{type(judge).__name__}: {finding}" for judge in of for finding in judge.findings()]


def judged(publishing: str, events: Sequence[Event]) -> list[str]:
    """What a finished history broke."""
    all_ = judges(publishing)
    for event in events:
        for judge in all_:
            judge.see(event)
    return findings(all_)
