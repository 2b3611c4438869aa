"""Guarantees of one lane: its calls are in order, one at a time, none starts while somebody holds it, and what is cancelled is cut off.

A lane is a partition; with `by_key` it is a key of a partition.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator

from dispatcher.core.progress.strand import number_of
from dispatcher.sample_upstream.history import LaneHistory
from tests.guarantees.copies import LateCopies
from tests.guarantees.events import (
    CallEnded,
    CallStarted,
    Cancelled,
    Committed,
    Crashed,
    Event,
    Halted,
    Held,
    Lost,
    Released,
    Removed,
    ReplyVisible,
    Submitted,
)

Lane = tuple[int, str]
# In which calls are in order: a lane, and where its agents share it an agent in it.
Line = tuple[int, str, str]
# A call that is decided begins with the next turn of its event loop.
TURN_S = 0.05


def _named(lane: Lane, *, by_key: bool) -> str:
    return f"partition {lane[0]}, key {lane[1]}" if by_key else f"partition {lane[0]}"


class Order:
    """Calls of a lane start in log order, retries included; replies of calls stand in their topic in that order.

    A new epoch may begin again at a committed position; what the lost worker of an older epoch still starts has to be in order among
    itself. What somebody has skipped, or what was answered without a call, needs no further start; nor does what retention has removed.

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
    >>> skipped = Order()
    >>> for call, (offset, epoch) in enumerate(((2, 1), (3, 1), (2, 2), (4, 2))):
    ...     skipped.see(CallStarted(call, 0, offset, epoch))
    >>> skipped.see(ReplyVisible(0, 3, skipped=True))
    >>> skipped.findings()
    []

    Whoever may overtake whom is a matter of the lane.

    >>> def one_epoch(*keys, **how):
    ...     order = Order(**how)
    ...     for call, (offset, key) in enumerate(zip((1, 3, 2), keys)):
    ...         order.see(CallStarted(call, 0, offset, 1, key=key))
    ...     return order.findings()
    >>> one_epoch("a", "b", "a")
    ['partition 0: offset 2 started after offset 3 in epoch 1']
    >>> one_epoch("a", "b", "a", by_key=True)
    []
    >>> one_epoch("a", "b", "b", by_key=True)
    ['partition 0, key b: offset 2 started after offset 3 in epoch 1']

    `by_agent`: where agents share a lane, order is that of each of them.

    >>> def of_agents(*agents):
    ...     order = Order(by_agent=True)
    ...     for call, (offset, agent) in enumerate(zip((1, 3, 2), agents)):
    ...         order.see(Submitted(0, offset, agent=agent))
    ...         order.see(CallStarted(call, 0, offset, 1))
    ...         order.see(ReplyVisible(0, offset, (0, call)))
    ...     return order.findings()
    >>> of_agents("a", "a", "b")
    []
    >>> of_agents("a", "b", "b")[0]
    'partition 0, agent b: offset 2 started after offset 3 in epoch 1'
    >>> of_agents("a", "b", "b")[1]
    'partition 0, agent b: the reply to 3 stands before the one to 2'

    `resends_allowed`: at least once, a reply that had to be sent again may stand later; elsewhere places are judged, whenever told. And
    what a lost worker had parked may come to stand there when its successor has answered it already: it is called once more. Where such a
    call is owed it counts, since the successor itself may have parked what was answered before.

    >>> from tests.guarantees.events import Parked
    >>> again = Order(resends_allowed=True)
    >>> for event in (CallStarted(0, 0, 1, 1), CallStarted(1, 0, 2, 1), CallStarted(2, 0, 3, 1), ReplyVisible(0, 2)):
    ...     again.see(event)
    >>> for event in (CallStarted(3, 0, 1, 2), Parked(0, 2), CallStarted(4, 0, 2, 2), CallStarted(5, 0, 3, 2)):
    ...     again.see(event)
    >>> again.findings()
    []

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

    def __init__(self, *, by_key: bool = False, by_agent: bool = False, resends_allowed: bool = False) -> None:
        self._by_key = by_key
        self._by_agent = by_agent
        self._resends_allowed = resends_allowed
        self._starts: dict[Line, list[CallStarted]] = defaultdict(list)
        self._late: set[int] = set()  # numbers of calls of late copies
        self._skipped: set[tuple[int, int]] = set()
        self._copies = LateCopies()
        self._removed: dict[int, int] = {}
        self._submitted: dict[tuple[int, int], Submitted] = {}
        self._replied: dict[tuple[Line, int], list[tuple[int, int]]] = defaultdict(list)  # (lane, reply partition) -> (place, offset)

    def see(self, event: Event) -> None:
        """Take in requests, starts and replies."""
        if self._resends_allowed:
            self._copies.see(event)
        match event:
            case ReplyVisible():
                self._reply(event)
            case Submitted(partition, offset):
                self._submitted[partition, offset] = event
            case CallStarted(partition=partition, offset=offset):
                self._starts[self._line(partition, offset, event.key)].append(event)
                if (partition, offset) in self._copies.stale:
                    self._late.add(event.call)
            case Removed(partition, before):
                self._removed[partition] = before
            case _:
                pass

    def _reply(self, event: ReplyVisible) -> None:
        position = event.partition, event.offset
        if event.skipped or not event.called:
            # It may overtake those of calls.
            self._skipped.add(position)
        else:
            reply_partition, place = event.place
            self._replied[self._line(*position), reply_partition].append((place, event.offset))

    def _line(self, partition: int, offset: int, key: str = "") -> Line:
        of = self._submitted.get((partition, offset), Submitted(partition, offset, key))
        return partition, (key or of.key) if self._by_key else "", of.agent if self._by_agent else ""

    def findings(self) -> list[str]:
        """Say what overtook what, and what a new owner went back over and never did."""
        found = [
            f"{self._name(line)}: {finding}"
            for line, starts in sorted(self._starts.items(), key=lambda entry: entry[0])
            for finding in self._disorder(starts)
        ]
        return found + list(self._misplaced())

    def _name(self, line: Line) -> str:
        partition, key, agent = line
        return _named((partition, key), by_key=self._by_key) + (f", agent {agent}" if self._by_agent else "")

    def _disorder(self, starts: list[CallStarted]) -> Iterator[str]:
        """Say what is wrong with the starts of one lane."""
        history, last_of = LaneHistory(), dict[int, int]()
        for event in starts:
            offset, epoch = event.offset, event.epoch
            self._forgive(history, event.partition)
            if event.call in self._late and not (epoch >= history.epoch and history.owed and history.owed[0] == offset):
                continue
            last, last_of[epoch] = last_of.get(epoch, -1), offset
            finding: str | None = None
            if epoch >= history.epoch:
                finding = history.start(epoch=epoch, offset=offset)
            elif offset < last:
                # A lost worker that does not know it yet. Whether it may still live is for `OneAtATime` to say.
                finding = f"offset {offset} started after offset {last} in epoch {epoch}"
            if finding is not None:
                yield finding
        self._forgive(history, starts[0].partition)
        yield from (f"offset {offset} of an earlier epoch was never started again" for offset in history.owed)

    def _forgive(self, history: LaneHistory, partition: int) -> None:
        """What has been skipped, or removed, is not owed."""
        start = self._removed.get(partition, 0)
        history.owed = deque(offset for offset in history.owed if offset >= start and (partition, offset) not in self._skipped)

    def _misplaced(self) -> Iterator[str]:
        for (line, _), replied in sorted(self._replied.items()):
            last = -1
            for _, offset in () if self._resends_allowed else sorted(replied):
                if offset < last:
                    yield f"{self._name(line)}: the reply to {last} stands before the one to {offset}"
                last = max(last, offset)


class OneAtATime:
    """At most one call of a lane is in flight, as the workers see it. The call in hand of a *lost* owner may overlap its successor's.

    A loss excuses the epochs of that partition that it was about, and nothing that the same worker is given later, nor has elsewhere.

    >>> judge = OneAtATime()
    >>> lost = Lost("a", 0, 1)
    >>> for event in (CallStarted(1, 0, 5, 1, "a"), CallEnded(1), CallStarted(2, 0, 6, 1, "a"), lost, CallStarted(3, 0, 6, 2, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(4, 0, 7, 2, "b"))
    >>> judge.findings()
    ['partition 0: offset 7 (b, epoch 2) started while offset 6 (b, epoch 2) was in flight']
    >>> judge = OneAtATime()
    >>> for event in (CallStarted(1, 0, 5, 1, "a"), lost, CallEnded(1), CallStarted(2, 0, 5, 3, "a"), CallStarted(3, 0, 5, 4, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    ['partition 0: offset 5 (b, epoch 4) started while offset 5 (a, epoch 3) was in flight']
    >>> judge = OneAtATime()
    >>> for event in (Lost("a", 0, 9), CallStarted(2, 1, 7, 3, "a"), CallStarted(3, 1, 7, 4, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    ['partition 1: offset 7 (b, epoch 4) started while offset 7 (a, epoch 3) was in flight']
    >>> judge = OneAtATime(by_key=True)
    >>> for call, key in enumerate("aba"):
    ...     judge.see(CallStarted(call, 0, call, 1, "w", key=key))
    >>> judge.findings()
    ['partition 0, key a: offset 2 (w, epoch 1) started while offset 0 (w, epoch 1) was in flight']
    """

    def __init__(self, *, by_key: bool = False) -> None:
        self._by_key = by_key
        self._open: dict[int, CallStarted] = {}
        self._lost: dict[tuple[str, int], int] = {}  # (worker, partition) -> the highest epoch that its losses excuse
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
            case Lost(worker, partition, epoch):
                self._lost[worker, partition] = max(self._lost.get((worker, partition), 0), epoch)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which call began while which other one ran."""
        return list(self._found)

    def _start(self, event: CallStarted) -> None:
        lane = self._lane(event)
        for other in self._open.values():
            if self._lane(other) == lane and not self._excused(other, event):
                mine, theirs = (f"offset {e.offset} ({e.worker}, epoch {e.epoch})" for e in (event, other))
                self._found.append(f"{_named(lane, by_key=self._by_key)}: {mine} started while {theirs} was in flight")
        self._open[event.call] = event

    def _lane(self, event: CallStarted) -> Lane:
        # Partitions of one number, of whatever request topic, are one lane, or hold the same keys.
        return number_of(event.partition), event.key if self._by_key else ""

    def _excused(self, one: CallStarted, two: CallStarted) -> bool:
        older = one if one.epoch < two.epoch else two
        return one.epoch != two.epoch and one.worker != two.worker and older.epoch <= self._lost.get((older.worker, older.partition), 0)


class HeldStartsNothing:
    """Whoever has read that a key or a partition is held starts no call of it, retries included, until it has read that it may.

    Nor of a request that is to end, skipped or cancelled.

    A call that was decided before it read that may begin with the same turn of its event loop.

    And behind a request whose failure halts its key nothing of that key starts, in that epoch and all later ones, until somebody has
    resumed it since. `repeats_allowed`: at least once, where several epochs have called it, it is not known which of them it halted; nor
    where one has called it and another, which did not know of that, has let it expire.

    >>> judge = HeldStartsNothing()
    >>> calls = [CallStarted(call, 0, 5, 1, worker, key="a") for call, worker in enumerate("vw")]
    >>> for event in (Held("key:a", "w"), calls[0], Released("key:a", "w"), calls[1]):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> for event in (Held("partition:0", "w"), CallStarted(3, 0, 5, 1, "w", 2, "a")):
    ...     judge.see(event)
    >>> judge.findings()
    ['offset 5 of partition 0 was called by w, which had read that partition:0 is held']
    >>> judge.see(Held("request:requests/1/7@AbCdEfGh", "w"))
    >>> judge.see(CallStarted(4, 1, 7, 1, "w"))
    >>> judge.findings()[1:]
    ['offset 7 of partition 1 was called by w, which had read that request:1/7 is held']
    >>> timed = HeldStartsNothing()
    >>> soon, late = (CallStarted(n, 0, n, 1, "w", key="a", at=at) for n, at in ((5, 7.001), (6, 7.2)))
    >>> for event in (Held("key:a", "w", 7.0), soon, late):
    ...     timed.see(event)
    >>> timed.findings()
    ['offset 6 of partition 0 was called by w, which had read that key:a is held']
    >>> def halted(*between):
    ...     judge = HeldStartsNothing()
    ...     last = CallStarted(2, 0, 7, 2, "v", key="a")
    ...     for event in (CallStarted(1, 0, 5, 1, "w", key="a"), *between, last, Halted(0, 5, "a")):
    ...         judge.see(event)
    ...     return judge.findings()
    >>> halted(), halted(Released("key:a"))
    (['offset 7 of partition 0 was called although offset 5 had halted key a'], [])

    What an owner that was lost had called behind it began before its successor ended it without a call.

    >>> halted(Committed(0, 5, epoch=2)), halted(Committed(0, 5, epoch=3))
    (['offset 7 of partition 0 was called although offset 5 had halted key a'], [])
    """

    def __init__(self, *, repeats_allowed: bool = False) -> None:
        self._repeats_allowed = repeats_allowed
        self._held: dict[tuple[str, str], float] = {}  # (worker, target), and when it read that
        self._keys: dict[str, list[CallStarted | Released | Halted]] = defaultdict(list)  # what happened to a key, in order
        self._early: set[tuple[int, int]] = set()  # what was ended before its turn
        self._epochs: dict[int, int] = {}  # of each partition, the last that is known
        self._ended_in: dict[tuple[int, int], int] = {}  # under which what halts its key was ended, at the latest
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in what is held and let go, starts and halts."""
        match event:
            case Held(target, worker, at) if worker:
                self._held.setdefault((worker, _short(target)), at)
            case Released(target, worker):
                self._held.pop((worker, _short(target)), None)
                self._keys[target.removeprefix("key:")].append(event)
            case CallStarted():
                self._start(event)
            case Committed(partition, epoch=epoch):
                self._epochs[partition] = max(epoch, self._epochs.get(partition, -1))
            case Halted(partition, offset, key):
                self._keys[key].append(event)
                self._ended_in.setdefault((partition, offset), self._epochs.get(partition, -1))
            case ReplyVisible(partition, offset, skipped=True):
                self._early.add((partition, offset))
            case Crashed(worker):
                self._held = {held: at for held, at in self._held.items() if held[0] != worker}
            case _:
                pass

    def findings(self) -> list[str]:
        """Say what started although it was held."""
        return self._found + [
            f"offset {offset} of partition {halt.partition} was called although offset {halt.offset} had halted key {key}"
            for key, all_of_it in sorted(self._keys.items())
            for happened in _by_partition(all_of_it)
            for at, halt in enumerate(happened)
            if isinstance(halt, Halted) and not (self._repeats_allowed and self._is_doubtful(happened, halt))
            for offset in _behind(happened, at, halt.offset, self._ended_in[halt.partition, halt.offset])
        ]

    def _is_doubtful(self, happened: list[CallStarted | Released | Halted], halt: Halted) -> bool:
        return _is_repeated(happened, halt.offset) or (halt.partition, halt.offset) in self._early

    def _start(self, event: CallStarted) -> None:
        self._keys[event.key].append(event)
        for target in (f"key:{event.key}", f"partition:{event.partition}", f"request:{event.partition}/{event.offset}"):
            if event.at - self._held.get((event.worker, target), math.inf) > TURN_S:
                where = f"offset {event.offset} of partition {event.partition}"
                self._found.append(f"{where} was called by {event.worker}, which had read that {target} is held")


class CancelCutsOff:
    """A call whose request is cancelled ends soon after its worker has read that, however long its callee would take.

    `within_s`: what a process that stands still in between, and an adapter that closes its connection, may take.

    >>> judge = CancelCutsOff(within_s=2)
    >>> calls = [CallStarted(call, 0, offset, 1, "w") for call, offset in enumerate((5, 6, 7))]
    >>> for event in (*calls, Cancelled(0, 5, "w", 10), CallEnded(0, 11), Cancelled(0, 6, "w", 12), Cancelled(0, 7, "v", 12)):
    ...     judge.see(event)
    >>> for event in (CallEnded(1, 20), CallEnded(2, 60)):
    ...     judge.see(event)
    >>> judge.findings()
    ['the call of offset 6 of partition 0 ended 8.0 s after w had read that it is cancelled']
    """

    def __init__(self, *, within_s: float = 45.0) -> None:
        self._within_s = within_s
        self._open: dict[int, CallStarted] = {}
        self._due: dict[int, float] = {}
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in calls, and what of them is cancelled."""
        match event:
            case CallStarted(call=call):
                self._open[call] = event
            case Cancelled(partition, offset, worker, at):
                for number, one in self._open.items():
                    if (one.partition, one.offset, one.worker) == (partition, offset, worker):
                        self._due.setdefault(number, at)
            case CallEnded(call, at):
                self._end(call, at)
            case Crashed(worker):
                self._open = {number: one for number, one in self._open.items() if one.worker != worker}
            case _:
                pass

    def findings(self) -> list[str]:
        """Say which calls went on."""
        return list(self._found)

    def _end(self, number: int, at: float) -> None:
        call, since = self._open.pop(number, None), self._due.pop(number, at)
        if call is not None and at - since > self._within_s:
            where = f"offset {call.offset} of partition {call.partition}"
            self._found.append(f"the call of {where} ended {at - since:.1f} s after {call.worker} had read that it is cancelled")


def _short(target: str) -> str:
    """A target as calls tell it: a request's without its topic."""
    if not target.startswith("request:"):
        return target
    return "request:" + "/".join(target.partition("@")[0].rsplit("/", 2)[1:])


def _by_partition(happened: list[CallStarted | Released | Halted]) -> Iterator[list[CallStarted | Released | Halted]]:
    """What happened to a key in each partition that holds it: of several topics of requests each has one, with offsets of its own."""
    for partition in sorted({one.partition for one in happened if isinstance(one, Halted)}):
        yield [one for one in happened if isinstance(one, Released) or one.partition == partition]


def _behind(happened: list[CallStarted | Released | Halted], at: int, halting: int, ended_in: int) -> Iterator[int]:
    """What started behind the last call of offset `halting` before it was seen, at index `at`, that it halts: up to the next release.

    `ended_in`: the epoch under which it was ended.
    """
    calls = [(one.epoch, i) for i, one in enumerate(happened[:at]) if isinstance(one, CallStarted) and one.offset == halting]
    epoch, last = max(calls, default=(0, at))
    for one in happened[last + 1 :]:
        if isinstance(one, Released):
            return
        if isinstance(one, CallStarted) and one.offset > halting and one.epoch >= max(epoch, ended_in):
            yield one.offset


def _is_repeated(happened: list[CallStarted | Released | Halted], offset: int) -> bool:
    return len({one.epoch for one in happened if isinstance(one, CallStarted) and one.offset == offset}) > 1
