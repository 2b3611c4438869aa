"""A lane of one key, driven in any order, against a list: what has not ended, in the order of the log."""

from __future__ import annotations

from collections import deque

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.callees.verdict import Retry
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.ending import CUT_OFF, Cancelled, Early, Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.steps import Busy, Closed, CutOff, Fetch, Held, Idle, Ready, Settle, Start, Wait
from dispatcher.core.messages.status import Reason, Status
from tests.core.aside import Aside
from tests.core.keyed import DECODER, KEY, Hold, offsets
from tests.specimens import MONO, OWNER, answer, noted, now, record

LARGE = b'{"upstream":"openai","metadata":"%s"}' % (b"x" * 3000)
CONTENTS = [b'{"upstream":"openai"}', b'{"upstream":"openai"}', b'{"upstream":"openai"}', LARGE, b"{"]


class LaneMachine(RuleBasedStateMachine):
    """The model: `here` is in memory, `away` parked or on its way back, `leaving` on its way back only to be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = Hold()
        self.lane = Lane(OWNER, DECODER, KEY, self.hold.of)
        self.aside = Aside()
        self.later_s = 0.0
        self.end = 0
        self.here: set[int] = set()
        self.away: set[int] = set()
        self.leaving: set[int] = set()
        self.bad: set[int] = set()
        self.refused: set[int] = set()
        self.skipped: set[int] = set()
        self.cutting: set[int] = set()  # in a call that is to be cut off, or that has been
        self.calls: dict[int, int] = {}
        self.due: dict[int, float] = {}
        self.ended: list[int] = []
        self.unacknowledged: deque[Outcome] = deque()
        self.asked: list[tuple[Entry, ...]] = []
        self.calling: int | None = None
        self.closed = self.began = False

    @initialize(earlier=st.lists(st.sampled_from("plmx"), max_size=12), read=st.integers(0, 12), asks=st.booleans())
    def restore(self, earlier: list[str], read: int, asks: bool) -> None:  # noqa: FBT001 - drawn
        """Offsets of an earlier owner: (p)arked, still in the (l)og, (m)alformed there, ended(x). The log was `read` up to there before."""
        before = Lane(OWNER, DECODER, KEY)
        for offset, what in enumerate(earlier):
            if what == "p":
                before.add(record(offset=offset, key=KEY), MONO)
        for outcome in before.park(0, Bounds(1 << 20), now())[0]:
            self.aside.publish(outcome)
        entries = self.aside.entries()
        self._read(earlier[:read], 0)
        if asks and self.order and self.order[0] not in self.bad:
            assert isinstance(noted(self.lane, now(), may_call=False), Ready)
        known = [entry for entry in entries if entry.offset < read]
        self.lane.restore(known, now())
        self.away |= {entry.offset for entry in known}
        self._read(earlier[read:], read)

    def _read(self, earlier: list[str], first: int) -> None:
        """Read on in the log: what is in it is added, what is parked from there is admitted once the lane is restored."""
        parked = {entry.offset: entry for entry in self.aside.entries()}
        for self.end, what in enumerate(earlier, first):
            if what in "lm":
                self.lane.add(record(b"{" if what == "m" else CONTENTS[0], self.end, key=KEY), MONO)
                self.here.add(self.end)
                if what == "m":
                    self.bad.add(self.end)
            elif what == "p" and first:
                self.lane.admit(parked[self.end], 0)
                self.away.add(self.end)
        self.end = first + len(earlier)

    @property
    def order(self) -> list[int]:
        """What has not ended and is to be called, in the order in which that has to happen."""
        return sorted((self.here | self.away) - self.refused - (self.skipped - {self.calling}))

    # --- records come -----------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.closed)
    @rule(contents=st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=14))
    def add(self, contents: list[bytes]) -> None:
        for value in contents:
            if value == b"{":
                self.bad.add(self.end)
            self.lane.add(record(value, self.end, key=KEY), MONO + self.later_s)
            self.here.add(self.end)
            self.end += 1

    @precondition(lambda self: not self.closed)
    @rule()
    def refuse(self) -> None:
        self.lane.refuse(record(offset=self.end, key=KEY))
        self.here.add(self.end)
        self.refused.add(self.end)
        self.end += 1

    # --- it moves ---------------------------------------------------------------------------------------------------------------------

    @rule(passed_s=st.sampled_from([0.0, 0.4, 30.0]), may_call=st.sampled_from([True, True, False]))
    def ask(self, passed_s: float, may_call: bool) -> None:  # noqa: FBT001 - drawn
        self.later_s += passed_s
        step = noted(self.lane, now(self.later_s), may_call=may_call)
        match step:
            case Start():
                assert may_call
                self._started(step)
            case Settle(outcome):
                self._ended(outcome)
            case Fetch(entries):
                assert may_call
                assert not self.closed
                self._asked(entries)
            case Ready():
                assert not may_call
                assert self.order
            case Wait(until, _):
                assert until > MONO + self.later_s
                assert self.calling is None
                # One that is to end and is on its way to be parked is waited for like one that is to be called, until it stands there.
                first = min(self._called_or_skipped())
                assert until == self.due[first]
                assert first in {*self.order[:1], *offsets(self.unacknowledged)}
            case Held(why):
                assert why == self.hold.why != ""
                assert self.here | self.away
            case Busy():
                assert self.calling is not None or self.asked or self.unacknowledged
            case Idle():
                assert not self.order
            case Closed():
                assert self.closed

    def _started(self, step: Start) -> None:
        offset = step.request.record.offset
        assert self.calling is None
        assert not self.closed
        assert not self.hold.why
        assert offset == self.order[0]
        assert offset in self.here
        assert MONO + self.later_s >= self.due.get(offset, 0.0)
        self.calls[offset] = self.calls.get(offset, 0) + 1
        assert step.attempt == self.calls[offset]
        self.calling = offset

    def _ended(self, outcome: Outcome) -> None:
        assert outcome.record is not None
        assert outcome.reply is not None
        offset = outcome.record.offset
        assert offset not in self.ended
        assert (outcome.reply.status is Status.CANCELLED) <= (offset in self.skipped)
        assert (outcome.reply.reason is Reason.MALFORMED) == (offset in self.bad)
        assert (outcome.reply.reason is Reason.HALTED_KEY) == (offset in self.refused)
        assert outcome.reply.attempts == self.calls.get(offset, 0)
        assert (outcome.reply.fault is not None and outcome.reply.fault.kind == CUT_OFF) <= (offset in self.cutting)
        self.ended.append(offset)
        for kept in (self.here, self.away, self.leaving):
            kept.discard(offset)

    @precondition(lambda self: self.calling is not None)
    @rule(status=st.sampled_from([200, 404, 429, 500, 500]), chance=st.floats(0, 0.9))
    def answer(self, status: int, chance: float) -> None:
        headers = (("retry-after", "2"),) if status == 429 else ()
        verdict = self.lane.answered(answer(status, headers=headers), now(self.later_s), chance)
        assert self.calling is not None
        if isinstance(verdict, Retry):
            self.due[self.calling] = verdict.at
            if self.closed and self.calling not in self.skipped:
                self.here.clear()
        self.calling = None

    @precondition(lambda self: self.calling in self.cutting)
    @rule()
    def cut_off(self) -> None:
        self.lane.cut_off(now(self.later_s))
        self.calling = None

    # --- it makes room, and takes back ------------------------------------------------------------------------------------------------

    @rule(keep=st.sampled_from([0, 0, 1, 8]), size_max=st.sampled_from([1 << 20, 1 << 20, 1000]))
    def park(self, keep: int, size_max: int) -> None:
        before = set(self.here)
        outcomes, released = self.lane.park(keep, Bounds(size_max), now(self.later_s))
        left = {*offsets(outcomes), *(one.offset for one in released)}
        assert len(left) == len(outcomes) + len(released)
        assert left <= before - self.refused - {self.calling}
        assert all(record.size_bytes <= size_max for outcome in outcomes if (record := outcome.record) is not None)
        self.here -= left
        self.away |= left
        self.unacknowledged.extend(outcomes)
        if size_max > 1000 and left:
            assert len(self.here - self.refused) <= keep + 1

    @precondition(lambda self: self.unacknowledged)
    @rule(place_known=st.booleans())
    def acknowledge(self, place_known: bool) -> None:  # noqa: FBT001 - drawn
        outcome = self.aside.publish(self.unacknowledged.popleft())
        assert outcome.record is not None
        fetch = self.lane.placed(outcome.record.offset, outcome.place if place_known else -1)
        if fetch is not None:
            self._asked(fetch.entries)

    def _asked(self, entries: tuple[Entry, ...]) -> None:
        wanted = [entry.offset for entry in entries]
        assert set(wanted) <= self.away
        assert wanted == sorted(wanted)
        assert not {outcome.record.offset for outcome in self.unacknowledged if outcome.record is not None} & set(wanted)
        if wanted[0] in self.skipped:
            assert len(wanted) == 1
            self.away -= {*wanted}
            self.leaving |= {*wanted}
        else:
            assert wanted == self.order[: len(wanted)]
        self.asked.append(entries)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def fetched(self, data: st.DataObject) -> None:
        entries = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        lost = data.draw(st.sets(st.sampled_from([entry.offset for entry in entries]), max_size=1))
        found, missing = self.aside.read(entries, lost)
        for entry in missing:
            self.away.discard(entry.offset)
            self.leaving.discard(entry.offset)
        if not self.closed:
            came = {one.record.offset for one in found}
            self.here |= came
            self.away -= came
        for outcome in self.lane.fetched(found, missing, now(self.later_s)):
            self._ended(outcome)

    # --- people want something --------------------------------------------------------------------------------------------------------

    @rule(why=st.sampled_from(["", "", "paused", "halted"]))
    def want(self, why: str) -> None:
        self.hold.why = why

    @precondition(lambda self: self.end)
    @rule(data=st.data(), early=st.sampled_from([Skipped("not wanted"), Cancelled("not wanted")]))
    def end_early(self, data: st.DataObject, early: Early) -> None:
        offset = data.draw(st.integers(0, self.end - 1))
        there = offset in (self.here | self.away | self.leaving) - self.refused
        if self.lane.holds(offset):
            assert there
            self.skipped.add(offset)
        else:
            assert not there or (self.lane.request is not None and self.lane.request.record.offset == offset)
        match self.lane.end(offset, early, now(self.later_s)):
            case Outcome() as outcome:
                assert there
                self._ended(outcome)
            case Fetch(entries):
                assert [entry.offset for entry in entries] == [offset]
                self._asked(entries)
            case CutOff():
                assert isinstance(early, Cancelled)
                assert offset == self.calling
                assert offset not in self.cutting
                self.cutting.add(offset)
            case None:
                assert not isinstance(early, Cancelled) or offset not in {self.calling} - self.cutting

    @precondition(lambda self: len(self.ended) > 3)
    @rule()
    def close(self) -> None:
        self.lane.close()
        self.closed = True
        settled = self.lane.request is not None
        self.here &= {self.lane.request.record.offset} if settled and self.lane.request is not None else set()
        self.away.clear()
        self.leaving.clear()

    # --- what is always so ------------------------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        lane = self.lane
        assert (len(self.here), len(self.away)) == (len(lane), lane.parked)
        assert (self.calling is not None) == lane.is_calling
        if not self.closed:
            assert lane.is_empty == (not self.here and not self.away and not self.leaving)
            assert lane.first_offset == (self.calling if self.calling is not None else min(self._called_or_skipped(), default=None))

    def _called_or_skipped(self) -> set[int]:
        """What is in line, also if it is on its way back and will only be answered."""
        return (self.here | self.away) - self.refused

    def teardown(self) -> None:
        """Let everything that is under way happen: all that came ends once; a closed lane keeps nothing."""
        self.hold.why = ""
        for _ in range(self.end * 8 + 8):
            while self.unacknowledged:
                self.acknowledge(place_known=True)
            while self.asked:
                entries = self.asked.pop()
                self.lane_gets(entries)
            if self.calling is not None:
                self.answer(200, 0.5)
            self.ask(31.0, may_call=True)
        assert (set(), set(), set()) == (self.here, self.away, self.leaving)
        assert len(self.lane) == self.lane.parked == 0
        assert self.closed or self.lane.is_empty

    def lane_gets(self, entries: tuple[Entry, ...]) -> None:
        """All of these are read again."""
        found, missing = self.aside.read(entries)
        assert not missing
        if not self.closed:
            came = {one.record.offset for one in found}
            self.here |= came
            self.away -= came
        for outcome in self.lane.fetched(found, missing, now(self.later_s)):
            self._ended(outcome)


TestLane = LaneMachine.TestCase
TestLane.settings = hypothesis_settings(max_examples=60, stateful_step_count=50, deadline=None)
