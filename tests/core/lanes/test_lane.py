"""Lanes: one call at a time, in order, retries in place; closing; what a call and an outcome carry; how waiting is counted."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.core.callees.verdict import Retry
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.lane_name import lane_name
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Busy, Closed, Idle, Settle, Start, Wait
from dispatcher.core.messages.call import Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.messages.envelope import Envelope, Refusal
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason, Status
from tests.specimens import MONO, OWNER, REQUESTS, answer, decoder, noted, now, record, settings, value

DECODER = decoder()
FENCES = ("Dispatcher-Topic", "Dispatcher-Partition", "Dispatcher-Offset", "Dispatcher-Epoch", "Dispatcher-Attempt")


def lane(*records: Record, **upstream: Any) -> Lane:
    """A lane with these records, all come at the test's time."""
    made = Lane(OWNER, decoder(settings(upstream)) if upstream else DECODER)
    for sent in records:
        made.add(sent, MONO)
    return made


def start(of: Lane, later_s: float = 0) -> Start:
    """The call that the lane starts now; fails where it starts none."""
    step = noted(of, now(later_s))
    assert isinstance(step, Start), step
    return step


def settle(of: Lane, later_s: float = 0) -> Outcome:
    """The outcome that the lane hands out now; fails where it has none."""
    step = noted(of, now(later_s))
    assert isinstance(step, Settle), step
    return step.outcome


def finish(of: Lane, later_s: float = 0, result: CallResult | None = None) -> Outcome:
    """Start the next call, answer it, and take the outcome."""
    start(of, later_s)
    of.answered(result or answer(), now(later_s), 0.5)
    return settle(of, later_s)


def value_of(outcome: Outcome) -> Any:
    """The published reply's value."""
    assert outcome.reply is not None
    return orjson.loads(outcome.reply.message().value or b"")


def test_one_record_from_queue_to_reply() -> None:
    """Idle, Start, Busy, Settle, Idle: the whole life of a request."""
    made = lane()
    assert isinstance(noted(made, now()), Idle)
    made.add(record(), MONO)
    assert start(made).first
    assert isinstance(noted(made, now()), Busy)
    made.answered(answer(body=b'{"a":1.10}'), now(2.5), 0.5)
    outcome = settle(made, 2.5)
    assert outcome.reply is not None
    assert outcome.letter is None
    assert (outcome.owner, outcome.record, outcome.reply.status) == (OWNER, record(), Status.OK)
    assert (outcome.reply.attempts, outcome.reply.duration_ms, outcome.reply.time) == (1, 2500, "2026-11-29T10:00:02.500Z")
    assert isinstance(noted(made, now()), Idle)


def test_a_lane_of_a_key_names_itself_to_the_callee() -> None:
    """So that a callee knows which calls come one after another; a strict lane is its partition, which is named anyway."""
    keyed = Lane(OWNER, DECODER, b"doc:1")
    keyed.add(record(key=b"doc:1"), MONO)
    assert lane_name(b"doc:1") == dict(start(keyed).call.headers)["Dispatcher-Lane"]
    assert "Dispatcher-Lane" not in dict(start(lane(record())).call.headers)


def test_an_answer_out_of_nowhere_is_an_error() -> None:
    """The driver answers calls that it was told to make, once each."""
    made = lane(record())
    with pytest.raises(AssertionError):
        made.answered(answer(), now(), 0.5)
    finish(made)
    with pytest.raises(AssertionError):
        made.answered(answer(), now(), 0.5)


def test_calls_carry_fences_and_the_same_key_on_every_attempt() -> None:
    """Topic, partition, offset, epoch and attempt, so that a callee can refuse the older; one Idempotency-Key."""
    made = lane(record(offset=9, partition=0))
    first = start(made)
    made.answered(answer(500), now(), 0.5)
    second = start(made, 10)
    assert (first.first, second.first) == (True, False)
    for attempt, step in enumerate((first, second), 1):
        headers = dict(step.call.headers)
        assert [headers[name] for name in FENCES] == [REQUESTS, "0", "9", "7", str(attempt)]
        assert headers["Idempotency-Key"] == "dispatcher.requests/0/9@pX3kQ9aZ"
        assert len(step.call.headers) == len(headers)


def test_a_retry_waits_in_place() -> None:
    """Nothing overtakes the head while it waits, and its wait says why."""
    made = lane(record(offset=5), record(offset=6, key=b"doc:7"))
    start(made)
    made.answered(answer(503, headers=(("retry-after", "20"),)), now(), 0.5)
    assert noted(made, now(1)) == Wait(MONO + 20, "retry_after")
    assert start(made, 20).request.record.offset == 5
    made.answered(answer(500), now(21), 0.5)
    assert noted(made, now(21)) == Wait(MONO + 21.5, "backoff")
    assert start(made, 21.5).request.record.offset == 5
    made.answered(answer(), now(22), 0.5)
    outcome = settle(made, 22)
    assert outcome.reply is not None
    assert (outcome.reply.attempts, outcome.reply.duration_ms) == (3, 22_000)
    assert start(made, 22).request.record.offset == 6


RESULTS: list[CallResult] = [answer(500), answer(429), Ambiguous("timeout", "60 s"), NotSent("connect", "refused")]


@pytest.mark.parametrize("result", RESULTS)
def test_what_fails_every_time_is_dead_after_the_last_attempt(result: CallResult) -> None:
    """Exactly `attempts_max` calls, then a dead reply and a letter that say the same, and the next request runs."""
    made = lane(record(value(attempts_max=2), offset=5), record(offset=6))
    for later_s in (0, 100):
        start(made, later_s)
        made.answered(result, now(later_s), 0.5)
    outcome = settle(made, 100)
    assert outcome.reply is not None
    assert outcome.letter is not None
    assert (outcome.reply.status, outcome.reply.reason, outcome.reply.attempts) == (Status.DEAD, Reason.ATTEMPTS_EXHAUSTED, 2)
    assert outcome.reply.fault is not None
    letter = outcome.letter
    assert (letter.reason, letter.attempts, letter.stage, letter.upstream) == (Reason.ATTEMPTS_EXHAUSTED, 2, "call", "openai")
    assert letter.message == outcome.reply.fault.message
    assert letter.http_status == (result.status if isinstance(result, Answered) else None)
    assert start(made, 100).request.record.offset == 6


def test_a_hint_over_the_bound_is_dead_at_once_and_says_when() -> None:
    """`retry_at` is the wall clock's time at which the callee would answer again."""
    outcome = finish(lane(record()), result=answer(429, headers=(("retry-after", "3600"),)))
    assert value_of(outcome)["error"]["retry_at"] == "2026-11-29T11:00:00.000Z"
    assert value_of(outcome)["reason"] == "deadline_exceeded"


def test_a_final_error_is_a_reply_alone() -> None:
    """404: the callee answered; no dead letter, its answer in the reply."""
    outcome = finish(lane(record()), result=answer(404, b'{"e":1}'))
    assert outcome.letter is None
    assert value_of(outcome) == {
        "status": "error",
        "attempts": 1,
        "error": {"kind": "http", "message": "the callee answered 404"},
        "http": {"status": 404, "headers": {"content-type": "application/json"}, "body": {"e": 1}},
    }


def test_a_refused_record_settles_without_a_call() -> None:
    """A malformed one between two good ones: dead reply, letter, no attempt, and the lane goes on."""
    made = lane(record(offset=5), record(b"{", offset=6), record(offset=7))
    finish(made)
    outcome = settle(made)
    assert outcome.reply is not None
    assert outcome.letter is not None
    assert (outcome.reply.status, outcome.reply.reason, outcome.reply.attempts) == (Status.DEAD, Reason.MALFORMED, 0)
    assert (outcome.letter.stage, outcome.letter.reason, outcome.letter.record) == ("decode", Reason.MALFORMED, record(b"{", offset=6))
    assert start(made).request.record.offset == 7


class Buggy(Decoder):
    """A decoder with a bug that one record meets."""

    __slots__ = ()

    def decode(self, record: Record) -> Request | tuple[Envelope, Refusal]:
        raise KeyError(record.offset)


def test_a_bug_met_on_one_record_ends_as_its_dead_letter() -> None:
    """Not as the lane's or the worker's end: the next owner would meet it too. The letter names the error's class."""
    made = decoder()
    of = Lane(OWNER, Buggy(made.settings, made.topic_id, made.partitions, made.reply_topics))
    of.add(record(), MONO)
    outcome = settle(of)
    assert outcome.letter is not None
    assert outcome.reply is not None
    assert (outcome.letter.reason, outcome.letter.kind) == (Reason.MALFORMED, "KeyError")
    assert outcome.reply.envelope.request_id.startswith(f"{REQUESTS}/0/5@")


def test_an_answer_longer_than_is_kept_is_not_repeated() -> None:
    """The call succeeded: `reply_too_large` with the beginning of the answer, the metadata, and no second call."""
    made = lane(record(value(metadata={"m": 1})))
    outcome = finish(made, result=Answered(200, (("content-type", "application/json"),), b"x" * 100, truncated=True))
    assert outcome.letter is None
    shown = value_of(outcome)
    assert (shown["status"], shown["reason"], shown["http"]["status"]) == ("error", "reply_too_large", 200)
    assert shown["metadata"] == {"m": 1}
    assert "body" not in shown["http"]
    assert shown["http"]["body_base64"]
    assert isinstance(noted(made, now()), Idle)


# --- closing --------------------------------------------------------------------------------------------------------------------------


def test_a_closed_lane_starts_nothing() -> None:
    """What is queued is the next owner's."""
    made = lane(record(), record(b"{", offset=6))
    made.close()
    assert isinstance(noted(made, now()), Closed)
    assert len(made) == 0
    assert made.oldest_arrival is None


def test_the_call_in_hand_is_finished_after_closing() -> None:
    """Its answer settles it; the one behind it never starts."""
    made = lane(record(), record(offset=6))
    start(made)
    made.close()
    assert isinstance(noted(made, now()), Busy)
    made.answered(answer(), now(), 0.5)
    assert settle(made).record == record()
    assert isinstance(noted(made, now()), Closed)


def test_an_outcome_not_fetched_yet_survives_closing() -> None:
    """The answer came before the close: it settles after it."""
    made = lane(record())
    start(made)
    made.answered(answer(), now(), 0.5)
    made.close()
    assert settle(made).record == record()
    assert isinstance(noted(made, now()), Closed)


def test_a_closed_lane_starts_no_retry() -> None:
    """Neither for the call in hand, nor for one that waits already: unsettled, it runs again at the next owner."""
    failed, waiting = lane(record()), lane(record())
    start(failed)
    failed.close()
    failed.answered(answer(500), now(), 0.5)
    start(waiting)
    waiting.answered(answer(500), now(), 0.5)
    waiting.close()
    for made in (failed, waiting):
        assert isinstance(noted(made, now(100)), Closed)
        assert len(made) == 0


def test_a_last_attempt_that_fails_after_closing_is_dead() -> None:
    """The budget was spent by this owner: the verdict stands."""
    made = lane(record(value(attempts_max=1)))
    start(made)
    made.close()
    made.answered(answer(500), now(), 0.5)
    assert settle(made).letter is not None


# --- how waiting is counted -----------------------------------------------------------------------------------------------------------


def test_waiting_behind_another_key_is_what_key_order_would_save() -> None:
    """B came with A and waited for A's 4 s: 4 s in all, 4 s behind others."""
    made = lane(record(offset=5, key=b"a"), record(offset=6, key=b"b"))
    finish(made, later_s=4)
    step = start(made, 4)
    assert (step.waited_s, step.behind_others_s) == (4, 4)


def test_waiting_behind_the_own_key_saves_nothing() -> None:
    """Two of A: the second waits, but for its own key."""
    made = lane(record(offset=5, key=b"a"), record(offset=6, key=b"a"))
    finish(made, later_s=4)
    step = start(made, 4)
    assert (step.waited_s, step.behind_others_s) == (4, 0)


def test_waiting_is_split_between_own_key_and_others() -> None:
    """A, B, A: the last A waits 4 s behind A and 3 s behind B."""
    made = lane(record(offset=5, key=b"a"), record(offset=6, key=b"b"), record(offset=7, key=b"a"))
    finish(made, later_s=4)
    finish(made, later_s=7)
    step = start(made, 7)
    assert (step.waited_s, step.behind_others_s) == (7, 3)


def test_waiting_counts_from_arrival() -> None:
    """One that came late waited from then on; a retry's own waiting is not counted again."""
    made = lane(record(offset=5, key=b"a"))
    start(made)
    made.add(record(offset=6, key=b"b"), MONO + 3)
    made.answered(answer(), now(5), 0.5)
    settle(made, 5)
    step = start(made, 5)
    assert (step.waited_s, step.behind_others_s) == (2, 2)
    made.answered(answer(500), now(6), 0.5)
    assert start(made, 20).behind_others_s == 0


def test_nothing_is_remembered_of_keys_that_are_gone() -> None:
    """Refused records too: a sender of ever new keys must not fill the memory."""
    made = lane()
    for number in range(200):
        for content in (b'{"upstream":"openai"}', b"{", b'{"upstream":"openai"}', b"{"):
            made.add(record(content, number, key=b"k%d" % number), MONO)
        finish(made)
        settle(made)
        finish(made)
        settle(made)
    behind = made._behind_others
    assert behind is not None
    assert (0, 0) == (len(behind._queued), len(behind._free_since))


def test_the_oldest_arrival_is_the_heads() -> None:
    """Queued, called or waiting: it is the oldest until it has ended."""
    assert lane().oldest_arrival is None
    made = lane(record())
    made.add(record(offset=6), MONO + 3)
    assert (made.oldest_arrival, len(made)) == (MONO, 2)
    start(made)
    made.answered(answer(500), now(), 0.5)
    assert (made.oldest_arrival, len(made)) == (MONO, 2)
    finish(made, 10)
    assert (made.oldest_arrival, len(made)) == (MONO + 3, 1)


# --- any driving ----------------------------------------------------------------------------------------------------------------------


class LaneMachine(RuleBasedStateMachine):
    """Any order of adds, questions, answers and a close; the model is the list of what was added, started and settled."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane(OWNER, DECODER)
        self.later_s = 0.0
        self.added: list[int] = []
        self.bad: set[int] = set()
        self.started: list[int] = []
        self.settled: list[int] = []
        self.calls: dict[int, int] = {}
        self.arrived: dict[int, float] = {}
        self.calling = self.closed = False
        self.not_before = 0.0

    @precondition(lambda self: not self.closed)
    @rule(good=st.sampled_from([True, True, False]), key=st.sampled_from([b"a", b"b", b"c"]))
    def add(self, good: bool, key: bytes) -> None:  # noqa: FBT001 - drawn
        offset = len(self.added)
        self.added.append(offset)
        if not good:
            self.bad.add(offset)
        self.arrived[offset] = MONO + self.later_s
        self.lane.add(record(b'{"upstream":"openai"}' if good else b"{", offset, key=key), MONO + self.later_s)

    @rule(passed_s=st.sampled_from([0.0, 0.3, 30.0]))
    def ask(self, passed_s: float) -> None:
        self.later_s += passed_s
        step = noted(self.lane, now(self.later_s))
        left = [offset for offset in self.added if offset not in self.settled]
        match step:
            case Start():
                self._judge_start(step, left[0])
            case Settle(outcome):
                assert outcome.record is not None
                assert outcome.reply is not None
                assert left[0] == outcome.record.offset
                assert outcome.reply.attempts == self.calls.get(left[0], 0)
                assert (outcome.record.offset in self.bad) == (outcome.reply.attempts == 0)
                assert (outcome.letter is None) == (outcome.reply.status is not Status.DEAD)
                self.settled.append(left[0])
            case Wait(until, _):
                assert until == self.not_before > MONO + self.later_s
            case Busy():
                assert self.calling
            case Idle():
                assert not left
            case Closed():
                assert self.closed

    def _judge_start(self, step: Start, oldest: int) -> None:
        assert not self.calling
        assert not self.closed
        assert oldest == step.request.record.offset
        assert MONO + self.later_s >= self.not_before
        self.calls[oldest] = self.calls.get(oldest, 0) + 1
        assert step.first == (self.calls[oldest] == 1)
        assert dict(step.call.headers)["Dispatcher-Attempt"] == str(self.calls[oldest])
        assert 0 <= step.behind_others_s <= step.waited_s == MONO + self.later_s - self.arrived[oldest]
        if step.first:
            self.started.append(oldest)
        self.calling = True

    @precondition(lambda self: self.calling)
    @rule(result=st.sampled_from([answer(), answer(404), answer(429, headers=(("retry-after", "2"),)), *RESULTS]), chance=st.floats(0, 0.9))
    def answer(self, result: CallResult, chance: float) -> None:
        verdict = self.lane.answered(result, now(self.later_s), chance)
        self.calling = False
        self.not_before = verdict.at if isinstance(verdict, Retry) else 0.0

    @precondition(lambda self: len(self.started) > 3)
    @rule()
    def close(self) -> None:
        self.lane.close()
        self.closed = True

    @invariant()
    def in_order_and_once(self) -> None:
        assert self.started == sorted(set(self.started))
        assert self.settled == self.added[: len(self.settled)]
        assert self.lane.is_calling == self.calling
        if not self.closed:
            assert len(self.lane) == len(self.added) - len(self.settled)

    def teardown(self) -> None:
        """Driven on with good answers: all that was added settles once; a closed lane ends with the call in hand."""
        for _ in range(len(self.added) * 3 + 3):
            if self.calling:
                self.answer(answer(), 0.5)
            self.ask(31.0)
        assert self.closed or self.settled == self.added
        assert len(self.lane) == 0


TestLane = LaneMachine.TestCase
TestLane.settings = hypothesis_settings(max_examples=30, stateful_step_count=40, deadline=None)
