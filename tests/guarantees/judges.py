"""The guarantees as objects: each sees the events of a world and says at the end what was broken. They know nothing of how it was built.

Positions are (partition, offset) of the request log. `see` is called in the order in which things happened; `findings` at the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from tests.guarantees.call_times import EnoughTime, NothingLate
from tests.guarantees.duplicates import Duplicates
from tests.guarantees.events import (
    CallEnded,
    CallStarted,
    Committed,
    Crashed,
    Ended,
    Event,
    HandedOver,
    Held,
    LetterVisible,
    Lost,
    Parked,
    Released,
    Removed,
    ReplyVisible,
    Submitted,
    Unparked,
    Unreadable,
    Withheld,
)
from tests.guarantees.fairness import FairTurns
from tests.guarantees.lanes import CancelCutsOff, HeldStartsNothing, OneAtATime, Order
from tests.guarantees.leftovers import NothingLeft
from tests.guarantees.outages import OneProbe
from tests.guarantees.tries import AtMostOnce, Budget

Position = tuple[int, int]


class Judge(Protocol):
    """One guarantee."""

    def see(self, event: Event) -> None:
        """Take in what happened."""

    def findings(self) -> list[str]:
        """Say what was broken, one sentence each."""


class NothingLost:
    """Every request has a terminal reply in the end, and where the last one says that it is dead, there is a letter.

    But for those that somebody still holds in the end, and those that retention removed.

    >>> judge = NothingLost()
    >>> for event in (Submitted(0, 1), Submitted(0, 2), ReplyVisible(0, 2, dead=True), Submitted(1, 3, "a")):
    ...     judge.see(event)
    >>> for event in (Submitted(2, 4), Removed(2, 5)):
    ...     judge.see(event)
    >>> judge.findings()
    ['(0, 1) has no reply', '(1, 3) has no reply', '(0, 2) is dead without a letter']
    >>> judge.see(Held("key:a"))
    >>> judge.findings()
    ['(0, 1) has no reply', '(0, 2) is dead without a letter']
    """

    def __init__(self) -> None:
        self._submitted: dict[Position, str] = {}
        self._is_dead: dict[Position, bool] = {}
        self._letters: set[Position] = set()
        self._held: set[str] = set()
        self._removed: dict[int, int] = {}

    def see(self, event: Event) -> None:
        """Take in requests, replies and letters, and what is held or removed."""
        match event:
            case Submitted(partition, offset, key):
                self._submitted[partition, offset] = key
            case ReplyVisible(partition, offset, dead=dead):
                self._is_dead[partition, offset] = dead
            case LetterVisible(partition, offset):
                self._letters.add((partition, offset))
            case Removed(partition, before):
                self._removed[partition] = before
            case Held(target, ""):
                self._held.add(target)
            case Released(target, ""):
                self._held.discard(target)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was lost."""
        owed = {position: key for position, key in self._submitted.items() if position not in self._is_dead}
        lost = [f"{position} has no reply" for position, key in owed.items() if not self._is_excused(position, key)]
        dead = sorted(position for position, is_dead in self._is_dead.items() if is_dead and position not in self._letters)
        return lost + [f"{position} is dead without a letter" for position in dead]

    def _is_excused(self, position: Position, key: str) -> bool:
        partition, offset = position
        return offset < self._removed.get(partition, 0) or not self._held.isdisjoint({f"key:{key}", f"partition:{partition}"})


class OneOutcome:
    """One terminal reply (and one letter) per request.

    `repeats_allowed`: at least once, where each crash, loss of the partition, or answer that the cluster owes may cost one copy more of
    what its worker called; of what was ended without a call, since then it is not known whose it was.

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
    >>> weaker.see(Lost("a", 1, 2)), weaker.see(ReplyVisible(0, 1)), weaker.findings()
    (None, None, ['(0, 1) has 3 replies'])

    What one worker called and another one ended out of turn may be repeated by the trouble of the other one:

    >>> heir = OneOutcome(repeats_allowed=True)
    >>> for event in (CallStarted(1, 0, 1, 1, "a"), ReplyVisible(0, 1, skipped=True), Withheld("b"), ReplyVisible(0, 1, skipped=True)):
    ...     heir.see(event)
    >>> heir.findings()
    []
    """

    def __init__(self, *, repeats_allowed: bool = False) -> None:
        self._repeats_allowed = repeats_allowed
        self._disturbed: Counter[tuple[str, int]] = Counter()  # what allows repeats, by worker and partition; -1: all of its partitions
        self._callers: dict[Position, set[str]] = defaultdict(set)
        self._uncalled: set[Position] = set()  # ended without a call, or out of turn after one: by whoever it was
        self._copies: Counter[tuple[str, Position]] = Counter()
        self._found: dict[tuple[str, Position], str] = {}

    def see(self, event: Event) -> None:
        """Take in replies and letters."""
        match event:
            case ReplyVisible(partition, offset, called=called, skipped=skipped):
                if skipped or not called:
                    self._uncalled.add((partition, offset))
                self._count("replies", (partition, offset))
            case LetterVisible(partition, offset):
                self._count("letters", (partition, offset))
            case CallStarted(partition=partition, offset=offset, worker=worker):
                self._callers[partition, offset].add(worker)
            case Crashed(worker, orderly=False) | Withheld(worker):
                self._disturbed[worker, -1] += 1
            case Lost(worker, partition):
                self._disturbed[worker, partition] += 1
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
        known = set() if position in self._uncalled else self._callers.get(position, set())
        about = {-1, position[0]}
        return sum(n for (worker, of), n in self._disturbed.items() if of in about and (worker in known or not known))


class CommitAfterAcknowledgement:
    """What a commit says is settled, by its position or above it, has its reply (and letter), or is parked. No position goes back.

    And a parked request stays so until it has its reply.

    >>> judge = CommitAfterAcknowledgement()
    >>> for event in (Submitted(0, 0), Submitted(0, 4), Submitted(0, 6), ReplyVisible(0, 0), Committed(0, 1), Committed(0, 4)):
    ...     judge.see(event)
    >>> for event in (Parked(0, 6), Committed(0, 4, ((6, 7),)), ReplyVisible(0, 6), Unparked(0, 6)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (Committed(0, 5), Committed(0, 1), Submitted(0, 7), ReplyVisible(0, 7, dead=True), Committed(0, 1, ((7, 8),))):
    ...     judge.see(event)
    >>> for event in (Submitted(1, 0), Parked(1, 0), Committed(1, 1), Unparked(1, 0)):
    ...     judge.see(event)
    >>> for finding in judge.findings():
    ...     print(finding)
    partition 0: position 5 was committed before the reply to offset 4
    partition 0: the position went back from 5 to 1
    partition 0: position 1 was committed, with what is settled above it, before the letter of offset 7
    partition 1: offset 0 was parked and committed, and is parked no more, before the reply to it
    """

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, str]] = defaultdict(dict)  # what is missing, per partition and offset
        self._letters: set[Position] = set()
        self._parked: set[Position] = set()
        self._relying: set[Position] = set()  # committed since they are parked
        self._position: dict[int, int] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests, replies, letters, commits and what is parked."""
        match event:
            case Submitted(partition, offset):
                self._waiting[partition][offset] = "the reply to"
            case Removed(partition, before):
                for offset in [offset for offset in self._waiting[partition] if offset < before]:
                    del self._waiting[partition][offset]
            case ReplyVisible(partition, offset, dead=dead):
                self._reply(partition, offset, dead=dead)
            case LetterVisible(partition, offset):
                self._letters.add((partition, offset))
                if self._waiting[partition].get(offset) == "the letter of":
                    del self._waiting[partition][offset]
            case Parked(partition, offset):
                self._parked.add((partition, offset))
            case Unparked(partition, offset):
                self._unpark(partition, offset)
            case Committed():
                self._commit(event)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which positions came too early, or went back."""
        return list(self._found)

    def _reply(self, partition: int, offset: int, *, dead: bool) -> None:
        if not dead or (partition, offset) in self._letters:
            self._waiting[partition].pop(offset, None)
        elif offset in self._waiting[partition]:
            self._waiting[partition][offset] = "the letter of"

    def _unpark(self, partition: int, offset: int) -> None:
        self._parked.discard((partition, offset))
        if (partition, offset) in self._relying:
            self._relying.discard((partition, offset))
            if offset in self._waiting[partition]:
                missing = self._waiting[partition].pop(offset).replace("reply to", "reply to it").replace("letter of", "letter of it")
                self._found.append(
                    f"partition {partition}: offset {offset} was parked and committed, and is parked no more, before {missing}"
                )

    def _commit(self, event: Committed) -> None:
        partition, position = event.partition, event.position
        waiting = self._waiting[partition]
        due = [offset for offset in waiting if offset < position or any(start <= offset < stop for start, stop in event.settled)]
        for offset in sorted(due):
            if (partition, offset) in self._parked:
                self._relying.add((partition, offset))
                continue
            how = ", with what is settled above it," if offset >= position else ""
            self._found.append(
                f"partition {partition}: position {position} was committed{how} before {waiting.pop(offset)} offset {offset}"
            )
        before = self._position.get(partition, 0)
        if position < before:
            self._found.append(f"partition {partition}: the position went back from {before} to {position}")
        self._position[partition] = position


class NothingAgain:
    """What a commit says is settled, by its position or above it, is called by no later epoch, unless it is parked.

    >>> judge = NothingAgain()
    >>> for event in (Committed(0, 3, ((5, 7),), 1), CallStarted(1, 0, 4, 2), Committed(0, 3, (), 2), CallStarted(2, 0, 6, 1)):
    ...     judge.see(event)
    >>> for event in (Parked(0, 1), CallStarted(3, 0, 1, 2)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (CallStarted(4, 0, 6, 2), CallStarted(5, 0, 2, 2), Unparked(0, 1), CallStarted(6, 0, 1, 2), CallStarted(7, 0, 1, 3)):
    ...     judge.see(event)
    >>> for finding in judge.findings():
    ...     print(finding)
    partition 0: offset 6 was called in epoch 2, and a commit of epoch 1 says that it is settled
    partition 0: offset 2 was called in epoch 2, and a commit of epoch 1 says that it is settled
    partition 0: offset 1 was called in epoch 3, and a commit of epoch 1 says that it is settled
    """

    def __init__(self) -> None:
        self._positions: dict[int, list[tuple[int, int]]] = defaultdict(list)  # per partition, rising: position, epoch that committed it
        self._above: dict[int, dict[int, int]] = defaultdict(dict)  # per partition: offset, first epoch that called it settled
        self._stops: dict[int, dict[int, int]] = defaultdict(dict)  # per partition: start and stop of ranges that were taken in
        self._parked: set[Position] = set()
        self._unparked: dict[Position, int] = {}
        self._latest: Counter[int] = Counter()  # per partition, the highest epoch that has committed
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in commits, calls and what is parked."""
        match event:
            case Committed():
                self._commit(event)
            case Parked(partition, offset):
                self._parked.add((partition, offset))
            case Unparked(partition, offset):
                self._parked.discard((partition, offset))
                # From now on it is settled, by who has the partition now; others may have had it since it was parked.
                self._unparked[partition, offset] = self._latest[partition]
            case CallStarted(partition=partition, offset=offset, epoch=epoch) if (partition, offset) not in self._parked:
                settled = self._settled(partition, offset)
                if settled is not None and max(settled, self._unparked.get((partition, offset), settled)) < epoch:
                    which = f"offset {offset} was called in epoch {epoch}"
                    self._found.append(f"partition {partition}: {which}, and a commit of epoch {settled} says that it is settled")
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what was called although it was settled."""
        return list(self._found)

    def _commit(self, event: Committed) -> None:
        self._latest[event.partition] = max(event.epoch, self._latest[event.partition])
        positions = self._positions[event.partition]
        if not positions or positions[-1][0] < event.position:
            positions.append((event.position, event.epoch))
        above, stops = self._above[event.partition], self._stops[event.partition]
        for start, stop in event.settled:
            for offset in range(max(start, stops.get(start, 0)), stop):
                above.setdefault(offset, event.epoch)
            stops[start] = stop

    def _settled(self, partition: int, offset: int) -> int | None:
        """Which epoch said first that it is settled."""
        positions = self._positions[partition]
        above, at = self._above[partition].get(offset), bisect_right(positions, (offset, 1 << 62))
        below = positions[at][1] if at < len(positions) else None
        return min((epoch for epoch in (above, below) if epoch is not None), default=None)


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


def judges(
    publishing: str, handover_max_s: float = float("inf"), *, ordering: str = "partition", fairness: str = "fifo", is_tight: bool = False
) -> list[Judge]:
    """All guarantees, as `worker.publishing`, `worker.ordering` and `worker.fairness` promise them.

    `is_tight`: commits can carry so little that turns go by age instead of by agent, again and again.
    """
    by_key, is_weaker, is_fair = ordering == "key", publishing == "at_least_once", fairness == "agent"
    return [
        Order(by_key=by_key, by_agent=is_fair, resends_allowed=is_weaker),
        *([FairTurns(by_key=by_key)] if is_fair and not is_tight else []),
        OneAtATime(by_key=by_key),
        HeldStartsNothing(repeats_allowed=is_weaker),
        CancelCutsOff(),
        NothingLost(),
        OneOutcome(repeats_allowed=is_weaker),
        CommitAfterAcknowledgement(),
        NothingAgain(),
        NothingLate(),
        EnoughTime(),
        Duplicates(repeats_allowed=is_weaker, is_in_order=not is_fair),
        AtMostOnce(),
        *([] if is_weaker else [Budget()]),
        NothingLeft(repeats_allowed=is_weaker),
        OneProbe(),
        NothingStuck(handover_max_s=handover_max_s),
    ]


def findings(of: Iterable[Judge]) -> list[str]:
    """Everything that was broken, each with the guarantee's name before it."""
    return [f"{type(judge).__name__}: {finding}" for judge in of for finding in judge.findings()]


def judged(publishing: str, events: Sequence[Event], *, ordering: str = "partition", fairness: str = "fifo") -> list[str]:
    """What a finished history broke."""
    all_ = judges(publishing, ordering=ordering, fairness=fairness)
    for event in events:
        for judge in all_:
            judge.see(event)
    return findings(all_)
