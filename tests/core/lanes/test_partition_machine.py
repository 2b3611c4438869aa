"""A partition with a lane per key, through crashes, against a log: what is committed has ended, what has ended is never called again.

And what must not be called twice is not, and nothing is tried more often than it may be, but for one more try in each crash.
"""

from __future__ import annotations

import base64
from collections import Counter, deque

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Fetch, Intend, Settle, Start, Tell
from dispatcher.core.progress.commit_note import Range, decode
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.ready import Ready
from tests.core.aside import Aside
from tests.core.keyed import DECODER
from tests.core.notes import Notes
from tests.specimens import MONO, TOPIC_ID, alone, answer, now, record, value

KEYS = [b"a", b"b", b"c", b"d", b"e"]
ID = base64.urlsafe_b64decode(TOPIC_ID + "==")


class PartitionMachine(RuleBasedStateMachine):
    """The engine's part is played with drawn keys, times and answers; publishing and committing are one, as in a transaction."""

    @initialize(
        ranges=st.integers(2, 5),
        records=st.integers(4, 20),
        parked=st.sampled_from([3, 100]),
        map_bytes=st.sampled_from([30, 40, 60, 2957]),
    )
    def begin(self, ranges: int, records: int, parked: int, map_bytes: int) -> None:
        self.room = Room(records, 1 << 30, 1e9, ranges=ranges, distance=30, parked=parked, queue_s=3.0, map_bytes=map_bytes)
        self.log: list[tuple[int, bytes]] = []
        self.end = 0
        self.aside = Aside()
        self.notes = Notes()
        self.failed = Counter[int]()  # attempts that were spent, by offset
        self.may_be_done: set[int] = set()  # of what must not be called twice: called, and not known to be undone
        self.crashes = 0
        self.called: set[int] = set()
        self.replied: dict[int, int] = {}  # offsets with a reply that is committed, and how many
        self.position, self.settled = 0, tuple[Range, ...]()
        self.later_s = 0.0
        self.epoch = 0
        self.holds: dict[bytes | None, str] = {}
        self.assign()

    def assign(self) -> None:
        """A new owner: it knows what is committed, and what is parked."""
        self.epoch += 1
        self.frontier = Frontier(alone(ID, 8))
        self.owner = Owner(0, self.epoch)
        self.frontier.begin(self.owner, self.settled)
        self.held = Partition(self.owner, self.position, DECODER, self.room, self.settled, lambda key: self.holds.get(key, ""))
        self.unread = deque(sent for sent in self.log if sent[0] >= self.position)
        self.unacknowledged: deque[Outcome] = deque()
        self.asked: list[tuple[Entry, ...]] = []
        self.calling: dict[bytes | None, int] = {}
        self.ended: set[int] = set()  # by this owner
        self.open = {offset for offset in self.aside.offsets if self._is_committed(offset)}  # read or parked, and not ended
        self.coming = {offset for offset in self.open if offset >= self.position}

    def _content(self, offset: int) -> bytes:
        """Every third request must not be called twice."""
        return value() if offset % 3 else value(repeat="never")

    def _is_committed(self, offset: int) -> bool:
        return offset < self.position or any(start <= offset < stop for start, stop in self.settled)

    # --- the log ------------------------------------------------------------------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), hole=st.integers(0, 2))
    def write(self, keys: list[bytes], hole: int) -> None:
        self.end += hole
        for key in keys:
            self.log.append((self.end, key))
            self.unread.append((self.end, key))
            self.end += 1

    @precondition(lambda self: self.unread)
    @rule(count=st.integers(1, 12))
    def read(self, count: int) -> None:
        batch = [self.unread.popleft() for _ in range(min(count, len(self.unread)))]
        self.held.accept([record(self._content(offset), offset, key=key) for offset, key in batch], MONO + self.later_s)
        self.open |= {offset for offset, _ in batch if not self._is_committed(offset) and offset not in self.ended}

    @precondition(lambda self: not self.unread)
    @rule(markers=st.integers(0, 2))
    def reach_end(self, markers: int) -> None:
        self.end += markers
        if (outcome := self.held.reach_end(self.end, MONO + self.later_s)) is not None:
            self.unacknowledged.append(outcome)
        self.unacknowledged.extend(self.held.released(MONO + self.later_s))
        self.held.admit(self.end)

    @precondition(lambda self: not self.held.is_restored)
    @rule()
    def restore(self) -> None:
        void = self.held.restore(self.aside.entries(), now(self.later_s), noted=self.notes.noted())
        self.unacknowledged.extend(void)

    # --- lanes --------------------------------------------------------------------------------------------------------------------------

    @rule(n=st.integers(0, 20), passed_s=st.sampled_from([0.0, 0.0, 0.5, 5.0]))
    def ask(self, n: int, passed_s: float) -> None:
        self.later_s += passed_s
        if self.held.lanes:
            self.step(list(self.held.lanes.values())[n % len(self.held.lanes)])

    def step(self, lane: Lane) -> None:
        """One step of a lane, as the engine does it."""
        step = lane.next(now(self.later_s), may_call=self.held.is_restored and self.held.may_start(lane))
        match step:
            case Start():
                offset = step.request.record.offset
                assert lane.key not in self.calling
                assert offset == min(one for one in self.open if self._key_of(one) == lane.key)
                assert offset not in self.replied
                assert offset not in self.may_be_done
                assert step.attempt == 1 or offset in self.called
                assert self.failed[offset] <= step.request.attempts_max - 1 + self.crashes
                self.called.add(offset)
                if not step.request.repeats:
                    assert self.notes.known[offset].begun
                    self.may_be_done.add(offset)
                self.calling[lane.key] = offset
            case Settle(outcome):
                self._settled(outcome)
            case Tell(note) | Intend(note):
                self.unacknowledged.append(self.held.note(note, MONO + self.later_s))
            case Fetch(entries):
                self.asked.append(entries)
            case _:
                self.held.retire(lane)

    def _key_of(self, offset: int) -> bytes:
        return next(key for at, key in self.log if at == offset)

    def _settled(self, outcome: Outcome) -> None:
        assert outcome.record is not None
        self.open.discard(outcome.record.offset)
        self.ended.add(outcome.record.offset)
        self.unacknowledged.extend(self.held.settle(outcome, MONO + self.later_s))

    @precondition(lambda self: self.calling)
    @rule(n=st.integers(0, 4), status=st.sampled_from([200, 200, 404, 500, 503]))
    def answer(self, n: int, status: int) -> None:
        key = list(self.calling)[n % len(self.calling)]
        lane = self.held.lanes[key]
        headers = (("retry-after", "7"),) if status == 503 else ()
        if status == 503:
            self.may_be_done.discard(self.calling[key])
        self.failed[self.calling[key]] += status == 500
        lane.answered(answer(status, headers=headers), now(self.later_s), 0.5)
        del self.calling[key]
        self.step(lane)

    @rule(key=st.sampled_from(KEYS), why=st.sampled_from(["", "", "paused"]))
    def want(self, key: bytes, why: str) -> None:
        self.holds[key] = why

    @precondition(lambda self: self.held.is_restored and self.held.is_pressed)
    @rule()
    def make_room(self) -> None:
        self.unacknowledged.extend(self.held.park(now(self.later_s)))

    @precondition(lambda self: self.asked)
    @rule(n=st.integers(0, 4))
    def fetched(self, n: int) -> None:
        entries = self.asked.pop(n % len(self.asked))
        found, missing = self.aside.read(entries)
        assert not missing
        lanes, outcomes = self.held.fetched(found, missing, now(self.later_s))
        assert not outcomes
        assert 1 == len(lanes)

    # --- publishing ---------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.unacknowledged)
    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        batch = [self.unacknowledged.popleft() for _ in range(min(count, len(self.unacknowledged)))]
        ready = [Ready(outcome, outcome.messages()) for outcome in batch]
        (self.position, text) = self.frontier.positions(ready, 1)[self.owner]
        self.frontier.acknowledge(ready)
        note = decode(text, ID)
        assert note is not None
        self.settled = note.settled_at(self.position)
        for outcome in batch:
            published = self.aside.publish(outcome)
            self.notes.publish(outcome)
            if outcome.reply is not None and outcome.record is not None:
                self.replied[outcome.record.offset] = self.replied.get(outcome.record.offset, 0) + 1
            assert self.held.acknowledge(published) is None
            if (told := outcome.note) is not None and (lane := self.held.lane_of(told.key)) is not None:
                lane.noted(told)

    @rule()
    def crash(self) -> None:
        self.crashes += 1
        self.assign()

    @precondition(lambda self: self.held.is_restored)
    @rule()
    def hand_over(self) -> None:
        """The partition is given up in order: its calls end, everything is published, and nothing is left open that was not called."""
        lanes = list(self.held.lanes.values())
        self.held.close()
        while self.calling:
            self.answer(0, 200)
        for lane in lanes:
            for _ in range(2):
                self.step(lane)
        while self.unacknowledged:
            self.publish(5)
        assert self.held.is_drained
        assert {n for n, tried in self.notes.known.items() if tried.begun} <= self.may_be_done
        self.assign()

    # --- what is always so ----------------------------------------------------------------------------------------------------------------

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "held"):
            return
        held, lanes = self.held, list(self.held.lanes.values())
        publishing = [outcome for outcome in self.unacknowledged if outcome.record is not None]
        assert held.held_records == sum(len(lane) for lane in lanes) + len(publishing) + held.withheld
        assert held.progress.map_bytes <= self.room.map_bytes
        assert held.parked >= sum(lane.parked for lane in lanes)
        assert held.progress.acknowledged <= held.progress.planned
        assert all(lane.first_offset is not None for lane in lanes if len(lane) or lane.parked)

    @invariant()
    def what_is_committed_has_ended(self) -> None:
        if not hasattr(self, "held"):
            return
        assert set() == {n for n, count in self.replied.items() if count > 1}
        parked = set(self.aside.offsets)
        for offset, _ in self.log:
            if self._is_committed(offset):
                assert (offset in self.replied) != (offset in parked), offset
            else:
                assert offset not in self.replied

    def teardown(self) -> None:
        """Whatever has happened, it gets out again: all is called, answered and committed, nothing is parked, held or kept as a range."""
        if not hasattr(self, "held"):
            return
        self.holds.clear()
        if not self.held.is_restored:
            self.restore()
        for _ in range(len(self.log) * 20 + 50):
            self.later_s += 10.0
            self.go_on()
            if len(self.replied) == len(self.log) and not self.unacknowledged:
                break
        assert {offset for offset, _ in self.log} == set(self.replied)
        held = self.held
        for lane in list(held.lanes.values()):
            held.retire(lane)
        assert (0, 0, 0, {}) == (held.held_records, held.parked, held.progress.ranges, held.lanes)
        assert [] == self.aside.offsets
        assert {} == self.notes.known
        assert self.position == self.end

    def go_on(self) -> None:
        """Everything that may happen now happens."""
        if self.unread:
            self.read(3)
        for lane in list(self.held.lanes.values()):
            self.step(lane)
        while self.calling:
            self.answer(0, 200)
        while self.asked:
            self.fetched(0)
        if self.held.is_pressed:
            self.make_room()
        while self.unacknowledged:
            self.publish(3)
        if not self.unread:
            self.reach_end(0)


TestPartition = PartitionMachine.TestCase
TestPartition.settings = hypothesis_settings(max_examples=60, stateful_step_count=60, deadline=None)
