"""Requests that must not be called twice, before a gate: an intent is as good as a call there, until nothing comes of it."""

from __future__ import annotations

from dispatcher.core.callees.breaker import State
from dispatcher.core.callees.gate import Gate
from dispatcher.core.internal.tried import Note
from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.steps import Gated, Intend, Settle, Start, Tell
from dispatcher.core.messages.claim import Claim
from tests.core.keyed import Hold, start
from tests.specimens import MONO, OWNER, answer, decoder, noted, now, record, settings, value

CLAIM = Claim("openai", None)
GATED = Gated(CLAIM)
OPEN_S = 30


def lanes(count: int) -> tuple[Gate[Lane], list[Lane], list[Hold]]:
    """Lanes before a gate that a failure closes: the first one's request may be repeated, those of the others must not be."""
    of = decoder(settings({"breaker_failures": 1, "breaker_open_s": OPEN_S}, worker={"ordering": "key", "transaction_timeout_s": 60}))
    gate: Gate[Lane] = Gate(of.settings.upstreams)
    holds = [Hold() for _ in range(count)]
    made = [Lane(OWNER, of, b"k%d" % n, holds[n].of, gate=gate) for n in range(count)]
    for n, lane in enumerate(made):
        lane.add(record(value(repeat="never" if n else "allowed"), n, key=lane.key), MONO)
    return gate, made, holds


def intend(lane: Lane, later_s: float) -> Note:
    """The intent that the lane has written now."""
    step = lane.next(now(later_s))
    assert isinstance(step, Intend), step
    assert "openai" == step.upstream
    return step.note


def stand(gate: Gate[Lane], lane: Lane, later_s: float) -> None:
    """It may not begin, and stands in line."""
    assert GATED == noted(lane, now(later_s))
    gate.stand(lane, CLAIM)


def fail(lane: Lane, later_s: float) -> None:
    """Its call fails."""
    start(lane, later_s)
    lane.answered(answer(500), now(later_s), 0.5)


def test_no_intent_is_written_while_the_callee_takes_no_call() -> None:
    """The gate is asked first: nothing goes out, and nothing has to be withdrawn."""
    gate, (other, once), _ = lanes(2)
    fail(other, 0)
    stand(gate, once, 1)
    assert not once.is_intending


def test_the_intent_of_a_probe_is_the_probe() -> None:
    """It has its turn: its intent goes out, nobody else is let through meanwhile, and then it is called."""
    gate, (other, once, third), _ = lanes(3)
    fail(other, 0)
    for lane in (once, third):
        stand(gate, lane, 1)
    assert once is gate.next("openai", MONO + OPEN_S)
    note = intend(once, OPEN_S)
    assert gate.next("openai", MONO + OPEN_S + 1) is None
    assert once.noted(note)
    assert isinstance(once.next(now(OPEN_S + 1)), Start)
    once.answered(answer(), now(OPEN_S + 2), 0.5)
    assert [State.OPEN, State.HALF_OPEN, State.CLOSED] == [turned.state for turned in gate.turned()]


def test_a_breaker_that_opens_meanwhile_withdraws_it() -> None:
    """What was let through and is not called yet waits as all others do."""
    gate, (other, once), _ = lanes(2)
    start(other)
    note = intend(once, 0)
    other.answered(answer(500), now(), 0.5)
    assert once.noted(note)
    step = once.next(now(1))
    assert isinstance(step, Tell)
    assert step.note.message.value is None, "there was no call"
    assert not once.is_intending
    assert once.noted(step.note)
    stand(gate, once, 1)


def test_a_breaker_that_is_well_again_meanwhile_takes_it() -> None:
    """It has opened, and closed again, while the intent was on its way: nothing is withdrawn for what is over."""
    gate, (other, once, probe), _ = lanes(3)
    start(other)
    note = intend(once, 0)
    other.answered(answer(500), now(), 0.5)
    assert probe is not gate.next("openai", MONO)
    assert probe.noted(intend(probe, OPEN_S))
    assert isinstance(probe.next(now(OPEN_S)), Start)
    probe.answered(answer(), now(OPEN_S), 0.5)
    assert once.noted(note)
    assert isinstance(once.next(now(OPEN_S + 20)), Start)


def test_a_probe_that_is_not_made_is_given_back() -> None:
    """Paused, skipped, closed, or lost, while its intent is on its way: the next one is the probe."""
    gate, made, holds = lanes(6)
    fail(made[0], 0)
    for lane in made[1:]:
        stand(gate, lane, 1)
    paused, skipped, closed, lost, last = made[1:]
    at = OPEN_S
    for lane in (paused, skipped, closed, lost):
        assert lane is gate.next("openai", MONO + at)
        intend(lane, at)
        assert gate.next("openai", MONO + at) is None
        if lane is paused:
            holds[1].why = "paused"
            assert isinstance(lane.next(now(at)), Tell)
        elif lane is skipped:
            assert lane.end(2, Skipped("nobody wants it"), now(at)) is not None
        elif lane is closed:
            lane.close()
            assert isinstance(lane.next(now(at)), Tell)
        else:
            assert "openai" == lane.abandoned(MONO + at)
        at += 2  # at its pace
    assert last is gate.next("openai", MONO + at)


def test_a_deadline_gives_it_back() -> None:
    """It passes while the intent is on its way."""
    gate, (other, once), _ = lanes(2)
    late = Lane(OWNER, decoder(settings({"breaker_failures": 1}, worker={"ordering": "key"})), b"late", Hold().of, gate=gate)
    late.add(record(value(repeat="never", deadline=now().rfc3339(OPEN_S + 1)), 9, key=b"late"), MONO)
    fail(other, 0)
    for lane in (late, once):
        stand(gate, lane, 1)
    assert late is gate.next("openai", MONO + OPEN_S)
    intend(late, OPEN_S)
    assert isinstance(late.next(now(OPEN_S + 2)), Settle)
    assert once is gate.next("openai", MONO + OPEN_S + 2)


def test_what_was_not_sent_in_an_outage_is_tried_again() -> None:
    """A 503 says that nothing was done: the failure is the outage's, and its note says that it has cost nothing."""
    _, (_, once), _ = lanes(2)
    start(once)
    once.answered(answer(503), now(), 0.5)
    step = once.next(now())
    assert isinstance(step, Tell)
    assert step.note.message.value is not None
    assert b'"failures":0' in step.note.message.value
    assert b'"why":"breaker"' in step.note.message.value
    assert once.noted(step.note)
    assert GATED == noted(once, now(5))
    assert 1 == start(once, OPEN_S + 5)
