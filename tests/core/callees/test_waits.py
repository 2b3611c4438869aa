"""How long a request is kept: whatever its callee does, each call waits as long as was asked for, and the deadline is the end of it all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.core.instant import rfc3339_s
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import Settle, Start, Wait
from dispatcher.core.messages.call import Ambiguous, Answered, CallResult, NotSent
from dispatcher.core.messages.status import Reason, Status
from tests.core.lanes.test_lane import value_of
from tests.specimens import MONO, OWNER, WALL, decoder, noted, now, record, settings, value

WAIT_MAX_S = 600.0
# Doubles of seconds since the machine began, and deadlines written with milliseconds.
ROUNDING_S = 0.002


@dataclass(frozen=True)
class End:
    """How a call ends after so long, and how long its callee asks us to wait then: known from how it was made, not read."""

    result: CallResult
    took_s: float
    asked_s: float = 0.0
    is_unspent: bool = False  # an answer that says when to come again, and costs no attempt


@dataclass
class Life:
    """One request, driven from its first call to its end."""

    ends: list[End]
    attempts_max: int
    backoff_base_s: float
    backoff_max_s: float
    deadline_s: float | None
    chances: list[float]
    later_s: float = 0.0
    calls: list[Start] = field(default_factory=list)
    began_s: list[float] = field(default_factory=list)
    met: list[End] = field(default_factory=list)  # the ends as they were, some of them by the call's own time
    ended_s: list[float] = field(default_factory=list)

    def run(self) -> Outcome:
        """Do as the lane says until it has an outcome."""
        upstream = {"attempts_max": self.attempts_max, "backoff_base_s": self.backoff_base_s, "backoff_max_s": self.backoff_max_s}
        lane = Lane(OWNER, decoder(settings(upstream, worker={"wait_max_s": WAIT_MAX_S})))
        deadline = {} if self.deadline_s is None else {"deadline": now().rfc3339(self.deadline_s)}
        lane.add(record(value(**deadline)), MONO)
        for _ in range(2 * len(self.ends) + 10):
            match noted(lane, now(self.later_s)):
                case Settle(outcome=outcome):
                    return outcome
                case Wait(until, _):
                    assert until > MONO + self.later_s, "a wait for what has passed"
                    self.later_s = until - MONO
                case Start() as start:
                    self.call(lane, start)
                case step:
                    raise AssertionError(step)
        raise AssertionError("it does not end")

    def call(self, lane: Lane, start: Start) -> None:
        """Make a call: as the list says, well when that is at its end, and cut off where it takes too long."""
        number = len(self.calls)
        end = self.ends[number] if number < len(self.ends) else End(Answered(200, (), b"{}"), 0.1)
        if end.took_s >= start.call.timeout_s:
            end = End(Ambiguous("timeout", "no whole answer in time"), start.call.timeout_s)
        self.calls.append(start)
        self.began_s.append(self.later_s)
        self.met.append(end)
        self.later_s += end.took_s
        self.ended_s.append(self.later_s)
        lane.answered(end.result, now(self.later_s), self.chances[number % len(self.chances)])


def answered(status: int, asked_s: float, spelling: str) -> End:
    """An answer that asks for a wait."""
    if spelling.endswith("-ms"):
        text, asked_s = f"{asked_s * 1000:.3f}", round(asked_s, 6)
    else:
        text, asked_s = f"{asked_s:.3f}", round(asked_s, 3)
    return End(Answered(status, ((spelling, text),), b"{}"), 0.0, asked_s, is_unspent=status in {429, 503})


def in_body(status: int, asked_s: float) -> End:
    """An answer of Google's shape."""
    asked_s = round(asked_s, 3)
    details = b'[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%.3fs"}]' % asked_s
    body = b'{"error":{"code":%d,"details":%s}}' % (status, details)
    return End(Answered(status, (), body), 0.0, asked_s, is_unspent=status in {429, 503})


ASKED = st.sampled_from([0.0, 0.4, 1.5, 20.0, 250.0, 600.0, 86_400.0]) | st.floats(0, 900)
SPELLINGS = st.sampled_from(["retry-after", "retry-after-ms", "x-ms-retry-after-ms"])
FAILING = st.sampled_from([408, 429, 429, 500, 503, 503, 529])
PLAIN: st.SearchStrategy[CallResult] = st.one_of(
    st.builds(lambda status: Answered(status, (), b"{}"), FAILING | st.sampled_from([200, 302, 404])),
    st.builds(NotSent, st.sampled_from(["connect", "connect_timeout", "dns", "tls"]), st.just("…")),
    st.builds(
        Ambiguous, st.sampled_from(["timeout", "first_byte_timeout", "idle_timeout", "reset", "truncated", "protocol"]), st.just("…")
    ),
)
ENDS = st.builds(
    lambda end, took_s: replace(end, took_s=took_s),
    st.one_of(
        st.builds(End, PLAIN, st.just(0.0)),
        st.builds(answered, FAILING, ASKED, SPELLINGS),
        st.builds(in_body, FAILING, ASKED),
    ),
    st.floats(0, 90),
)
LIVES = st.builds(
    Life,
    st.lists(ENDS, max_size=25),
    st.integers(1, 8),
    st.floats(0.01, 5),
    st.floats(0.01, 60),
    st.none() | st.floats(0.5, 3000),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5),
)


@given(LIVES)
@example(Life([answered(429, 600.0, "retry-after")], 3, 1, 30, 900.0, [0.5]))
@example(Life([answered(429, 600.0, "retry-after")], 3, 1, 30, 60.0, [0.5]))
@example(Life([answered(503, 0.0, "retry-after")] * 25, 3, 1, 30, None, [0.5]))
@example(Life([answered(429, 400.0, "retry-after")] * 3, 1, 1, 30, None, [0.5]))
@example(Life([End(Ambiguous("timeout", "…"), 90.0)] * 8, 8, 1, 30, 61.0, [0.999]))
def test_whatever_a_callee_does_a_request_waits_as_it_is_told_and_ends_in_time(life: Life) -> None:
    """No call comes before its time or after the deadline, and its end is known by then; without one, hints hold it only so long.

    Attempts are spent by what fails, not by being told to wait; who is given up although the callee said when learns that.
    """
    outcome = life.run()
    assert outcome.reply is not None
    spent = sum(not end.is_unspent for end in life.met)
    assert 0 < len(life.calls)
    assert spent <= life.attempts_max
    for end, ended_s, then_s in zip(life.met, life.ended_s, life.began_s[1:], strict=False):
        assert then_s >= ended_s + end.asked_s - ROUNDING_S
        assert then_s <= ended_s + max(end.asked_s, life.backoff_max_s, life.backoff_base_s, 0.1) + ROUNDING_S
    if life.deadline_s is not None:
        assert all(began_s < life.deadline_s for began_s in life.began_s)
        assert all(ended_s <= life.deadline_s + ROUNDING_S for ended_s in life.ended_s)
        assert life.later_s <= life.deadline_s + ROUNDING_S
    else:
        first = next((ended_s for end, ended_s in zip(life.met, life.ended_s, strict=True) if end.asked_s), life.later_s)
        assert life.began_s[-1] - first <= WAIT_MAX_S + ROUNDING_S + life.attempts_max * (60 + max(life.backoff_max_s, 0.1))
    judged(life, outcome)


def judged(life: Life, outcome: Outcome) -> None:
    """The end is the last call's: its answer, or a dead letter that says when it would be worth another try."""
    assert outcome.reply is not None
    last = life.met[-1]
    if outcome.reply.status in {Status.OK, Status.ERROR}:
        assert outcome.letter is None
        return
    assert Status.DEAD is outcome.reply.status
    assert outcome.reply.reason in {Reason.ATTEMPTS_EXHAUSTED, Reason.DEADLINE_EXCEEDED}
    retry_at = value_of(outcome)["error"].get("retry_at")
    if last.asked_s:
        assert retry_at is not None
        told = rfc3339_s(retry_at)
        assert told is not None
        assert abs(told - (WALL + life.later_s + last.asked_s)) <= ROUNDING_S
    if outcome.reply.reason is Reason.ATTEMPTS_EXHAUSTED:
        assert life.attempts_max == sum(not end.is_unspent for end in life.met)
