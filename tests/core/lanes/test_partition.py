"""A partition driven as the engine drives it, against a model: what it holds, when it pauses, what may be committed, when it is drained."""

from __future__ import annotations

from collections import deque

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.internal.control import HALTED
from dispatcher.core.lanes.buffer import Flow
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Idle, Settle, Start, Wait
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.status import Reason
from tests.specimens import MONO, OWNER, answer, decoder, noted, now, record, settled

DECODER = decoder()
ROOM = Room(records=4, size_bytes=1 << 20, unpublished_s=10)


def partition(room: Room = ROOM) -> Partition:
    """A fresh assignment from offset 5 on."""
    return Partition(OWNER, 5, DECODER, room)


def lane(held: Partition) -> Lane:
    """The one lane of a strict partition; an empty one where nothing came yet."""
    return held.lane_of(None) or Lane(OWNER, DECODER)


def accept(held: Partition, records: list[Record], at: float = MONO) -> Flow | None:
    """Records come; what the source is told then."""
    held.accept(records, at)
    return held.flow()


def acknowledge(held: Partition, outcome: Outcome) -> Flow | None:
    """An outcome is published; what the source is told then."""
    held.acknowledge(outcome)
    return held.flow()


def run(held: Partition) -> Start | None:
    """Let the lane go until it calls or waits; drops what settles on the way."""
    step = lane(held).next(now())
    return step if isinstance(step, Start) else None


def settle(held: Partition, status: int = 200) -> Outcome:
    """Execute the next record to its end; its outcome with a position."""
    assert run(held) is not None
    lane(held).answered(answer(status), now(), 0.5)
    step = lane(held).next(now())
    assert isinstance(step, Settle)
    return settled(held, step.outcome, MONO)


def test_a_full_partition_pauses_once_and_resumes_at_half() -> None:
    """Every pause throws away what the client fetched ahead: full at 4 records, free again at 2, and nothing said in between."""
    held = partition()
    assert accept(held, [record(offset=n) for n in (5, 6, 7)]) is None
    assert accept(held, [record(offset=8)]) is Flow.PAUSE
    assert accept(held, [record(offset=9)]) is None
    flows = [acknowledge(held, settle(held)) for _ in range(5)]
    assert flows == [None, None, Flow.RESUME, None, None]
    assert held.held_records == 0


def test_answers_that_wait_to_be_published_are_bounded_too() -> None:
    """Small requests with large answers, and a broker that takes none: full at 1,000 bytes of answers, free again once they are out.

    What is published may have been cut meanwhile; what counts is what was handed out.
    """
    held = partition(Room(records=100, size_bytes=1000, unpublished_s=10))
    held.accept([record(offset=n) for n in (5, 6)], MONO)
    assert run(held) is not None
    lane(held).answered(answer(200, b"y" * 2000), now(), 0.5)
    step = lane(held).next(now())
    assert isinstance(step, Settle)
    assert not held.is_held_back(MONO)
    large = settled(held, step.outcome, MONO)
    assert held.is_held_back(MONO)
    held.acknowledge(large.cut(large.reply.envelope.reply_topic if large.reply else ""))
    assert not held.is_held_back(MONO)


def test_who_cannot_publish_for_long_starts_no_further_call() -> None:
    """A worker that Kafka cannot reach may have lost its partition: what has ended waits 10 s, then the lane stands until it is out."""
    held = partition()
    held.accept([record(offset=n) for n in (5, 6)], MONO)
    first, second = settle(held), settle(held)
    assert not held.is_held_back(MONO + 9)
    assert held.is_held_back(MONO + 10)
    held.acknowledge(first)
    assert held.is_held_back(MONO + 10)
    held.acknowledge(second)
    assert not held.is_held_back(MONO + 10)


def test_bytes_count_as_records_do() -> None:
    """One large record fills the room; its acknowledgement empties it."""
    held = partition(Room(records=100, size_bytes=1000, unpublished_s=10))
    assert accept(held, [record(b"x" * 1000)]) is Flow.PAUSE
    step = lane(held).next(now())
    assert isinstance(step, Settle)
    assert acknowledge(held, settled(held, step.outcome, MONO)) is Flow.RESUME


def test_a_record_is_held_until_it_is_acknowledged() -> None:
    """Neither its call nor its outcome frees it: only the commit does."""
    held = partition()
    held.accept([record()], MONO)
    outcome = settle(held)
    assert held.held_records == 1
    held.acknowledge(outcome)
    assert held.held_records == 0


def test_a_second_delivery_is_dropped() -> None:
    """A record that came before runs once and is held once."""
    held = partition()
    held.accept([record(), record(), record(offset=4)], MONO)
    assert (held.held_records, len(lane(held))) == (1, 1)


def test_an_end_moves_the_position_without_a_message() -> None:
    """Behind trailing markers an outcome without a reply carries the position; nothing is published for it."""
    held = partition()
    held.accept([record()], MONO)
    assert held.reach_end(8, MONO) is None
    assert settle(held).position == 8
    end = held.reach_end(9, MONO)
    assert end is not None
    assert (end.position, end.messages(), end.owner) == (9, (), OWNER)
    assert held.reach_end(9, MONO) is None


def test_a_closed_partition_takes_nothing() -> None:
    """No record, no end."""
    held = partition()
    held.close()
    assert accept(held, [record()]) is None
    assert held.reach_end(9, MONO) is None
    assert held.held_records == 0
    assert held.is_drained


def test_it_is_drained_when_call_and_publication_have_ended() -> None:
    """A call in hand, an outcome that nobody fetched yet, and one that is not acknowledged all keep the partition."""
    held = partition()
    held.accept([record(), record(offset=6)], MONO)
    assert run(held) is not None
    held.close()
    assert not held.is_drained
    lane(held).answered(answer(), now(), 0.5)
    assert not held.is_drained
    step = lane(held).next(now())
    assert isinstance(step, Settle)
    outcome = settled(held, step.outcome, MONO)
    assert not held.is_drained
    held.acknowledge(outcome)
    assert held.is_drained
    assert not lane(held).is_calling


def test_a_closed_partition_gives_up_a_retry() -> None:
    """The call in hand failed: it is the next owner's, and the partition is drained at once."""
    held = partition()
    held.accept([record()], MONO)
    assert run(held) is not None
    held.close()
    lane(held).answered(answer(500), now(), 0.5)
    assert held.is_drained
    assert held.progress.planned == 5


def test_only_requests_of_a_halted_key_count_as_waiting_behind_it() -> None:
    """The one lane of a strict partition has others' requests too, which do not wait for that key: they are no reason to refuse it."""
    held = Partition(
        OWNER, 0, DECODER, Room(records=100, size_bytes=1 << 20, unpublished_s=10, halted=2), (), lambda key: HALTED * (key == b"a")
    )
    held.accept([record(offset=n, key=b"b") for n in range(4)], MONO)
    held.accept([record(offset=n, key=b"a") for n in range(4, 7)], MONO)
    step = lane(held).next(now())
    assert isinstance(step, Settle)
    assert step.outcome.record is not None
    assert (6, Reason.HALTED_KEY) == (step.outcome.record.offset, step.outcome.reply and step.outcome.reply.reason)
    assert isinstance(lane(held).next(now()), Start)


class PartitionMachine(RuleBasedStateMachine):
    """The engine's part played with drawn times and answers; the model counts records by what became of them."""

    @initialize(records=st.integers(1, 6))
    def begin(self, records: int) -> None:
        self.room = Room(records, 1 << 30, 10)
        self.held = Partition(OWNER, 0, DECODER, self.room)
        self.end = 0
        self.later_s = 0.0
        self.accepted: dict[int, Record] = {}
        self.settled: list[int] = []
        self.unacknowledged: deque[Outcome] = deque()
        self.acknowledged: set[int] = set()
        self.calling = self.paused = self.closed = False

    def _hear(self, flow: Flow | None) -> None:
        if flow is not None:
            assert self.paused == (flow is Flow.RESUME)
            self.paused = flow is Flow.PAUSE

    @rule(count=st.integers(1, 3), hole=st.integers(0, 2), again=st.booleans(), bad=st.booleans())
    def accept(self, count: int, hole: int, again: bool, bad: bool) -> None:  # noqa: FBT001 - drawn
        first = self.end + hole
        self.end = first + count
        fresh = [record(b"{" if bad else b'{"upstream":"openai"}', n, key=b"k%d" % (n % 3)) for n in range(first, self.end)]
        self._hear(accept(self.held, [*fresh, *(fresh if again else [])], MONO + self.later_s))
        if not self.closed:
            self.accepted |= {sent.offset: sent for sent in fresh}

    @rule(passed_s=st.sampled_from([0.0, 0.5, 40.0]))
    def step(self, passed_s: float) -> None:
        self.later_s += passed_s
        match noted(lane(self.held), now(self.later_s)):
            case Start(request=request):
                assert not self.calling
                assert not self.closed
                self.calling = True
                assert request.record.offset == min(set(self.accepted) - set(self.settled))
            case Settle(outcome):
                assert outcome.record is not None
                self.settled.append(outcome.record.offset)
                self.unacknowledged.append(settled(self.held, outcome, MONO))
            case Wait(until, why):
                assert until > MONO + self.later_s
                assert why in {"backoff", "retry_after"}
            case Idle():
                assert self.closed or set(self.accepted) == set(self.settled)
            case _:
                assert self.calling or self.closed

    @precondition(lambda self: self.calling)
    @rule(status=st.sampled_from([200, 404, 500]))
    def answer(self, status: int) -> None:
        lane(self.held).answered(answer(status), now(self.later_s), 0.9)
        self.calling = False

    @precondition(lambda self: self.unacknowledged)
    @rule()
    def acknowledge(self) -> None:
        outcome = self.unacknowledged.popleft()
        self._hear(acknowledge(self.held, outcome))
        if outcome.record is not None:
            self.acknowledged.add(outcome.record.offset)

    @rule(markers=st.integers(0, 2))
    def reach_end(self, markers: int) -> None:
        self.end += markers
        if (outcome := self.held.reach_end(self.end, MONO)) is not None:
            assert set(self.accepted) == set(self.settled)
            assert not self.closed
            self.unacknowledged.append(outcome)

    @precondition(lambda self: len(self.settled) > 4)
    @rule()
    def close(self) -> None:
        self.held.close()
        self.closed = True

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "held"):
            return
        held = self.held
        assert self.settled == sorted(set(self.settled))
        assert held.held_records == len(self.accepted) - len(self.acknowledged)
        assert held.held_records < self.room.records or self.paused or self.closed
        assert held.held_records * 2 > self.room.records or not self.paused or self.closed
        assert all(n >= held.progress.planned for n in set(self.accepted) - set(self.settled))
        assert lane(held).is_calling == self.calling
        if held.is_drained:
            assert self.closed
            assert not self.calling
            assert not self.unacknowledged

    def teardown(self) -> None:
        """Everything that may still happen happens: all is settled and acknowledged, and the position stands at the end."""
        if not hasattr(self, "held"):
            return
        for _ in range(len(self.accepted) * 4 + 8):
            if self.calling:
                self.answer(200)
            self.step(40.0)
        while self.unacknowledged:
            self.acknowledge()
        if self.closed:
            assert self.held.is_drained
            return
        assert set(self.accepted) == set(self.settled) == self.acknowledged
        self.reach_end(0)
        assert self.held.progress.planned == self.end
        assert not self.paused


TestPartition = PartitionMachine.TestCase
TestPartition.settings = hypothesis_settings(max_examples=25, stateful_step_count=40, deadline=None)
