"""A lane before a gate: it waits instead of failing, says why, and its failures in an outage cost it nothing."""

from __future__ import annotations

import pytest

from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.verdict import Dead, Retry
from dispatcher.core.internal.parked import read_parked
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.passage import GATED_PARKED_S
from dispatcher.core.lanes.steps import Gated, Start, Wait
from dispatcher.core.messages.call import Ambiguous
from dispatcher.core.messages.claim import Claim
from dispatcher.core.messages.status import Reason, Status
from tests.core.aside import Aside
from tests.core.keyed import KEY, Hold, fetch, finish, park, settle, start
from tests.specimens import MONO, OWNER, REQUESTS, TOPIC_ID, WALL, answer, decoder, noted, now, record, settings, value

CLAIM = Claim("openai", None)
GATED = Gated(CLAIM)


def lanes(count: int = 2, failures: int = 2, **upstream: object) -> tuple[Gate[Lane], list[Lane]]:
    """Lanes of as many keys with one request each, before one gate whose breaker opens after so many failures."""
    of = decoder(settings({"breaker_failures": failures, "attempts_max": 2, **upstream}, worker={"ordering": "key"}))
    gate: Gate[Lane] = Gate(of.settings.upstreams)
    made = [Lane(OWNER, of, b"k%d" % n, Hold().of, gate=gate) for n in range(count)]
    for n, lane in enumerate(made):
        lane.add(record(offset=n, key=lane.key), MONO)
    return gate, made


def fail(lane: Lane, later_s: float = 0) -> Retry:
    """Start the next call, which fails; the verdict."""
    start(lane, later_s)
    verdict = lane.answered(answer(500), now(later_s), 0.5)
    assert isinstance(verdict, Retry), verdict
    return verdict


def stand(gate: Gate[Lane], lane: Lane, later_s: float = 0) -> None:
    """It may not begin, and stands in line."""
    assert GATED == noted(lane, now(later_s))
    gate.stand(lane, CLAIM)


def test_a_lane_waits_while_the_breaker_is_open_and_says_so() -> None:
    """It holds its request, tells the time of the probe, and is called when it is its turn."""
    gate, (first, second) = lanes()
    fail(first)
    fail(first, 1)
    stand(gate, second, 2)
    assert ("breaker", MONO + 31) == second.why(now(2))
    assert second.is_waiting_long(now(2), 1.0)
    assert second is gate.next("openai", MONO + 31)
    assert 1 == start(second, 31)
    stand(gate, first, 32)
    assert ("breaker", None) == first.why(now(32))


def test_the_failure_that_opens_the_breaker_spends_no_attempt() -> None:
    """Two attempts: one failure before it opened, then that one, then probes: the request is never given up."""
    _, (lane, _) = lanes()
    verdict = fail(lane)
    assert ("backoff", 1, 1) == (verdict.why, verdict.tries.failures, verdict.tries.calls)
    verdict = fail(lane, 1)
    assert ("breaker", 1, 2) == (verdict.why, verdict.tries.failures, verdict.tries.calls)
    for n in range(1, 20):
        assert GATED == noted(lane, now(40 * n - 11))
        verdict = fail(lane, 40 * n)
        assert ("breaker", 1) == (verdict.why, verdict.tries.failures)


def test_after_the_outage_failures_are_its_own_again() -> None:
    """What was left of its attempts is spent, and then it is given up."""
    gate, (lane, other) = lanes()
    fail(lane)
    fail(lane, 1)
    stand(gate, other, 2)
    assert other is gate.next("openai", MONO + 31)
    finish(other, 31)
    start(lane, 50)
    verdict = lane.answered(answer(500), now(50), 0.5)
    assert isinstance(verdict, Dead)
    assert Reason.ATTEMPTS_EXHAUSTED is verdict.reason


def test_a_late_failure_is_not_its_own() -> None:
    """The call began before the breaker opened, and failed when it was closed again."""
    gate, (late, lane, probe) = lanes(3)
    start(late)
    fail(lane)
    fail(lane, 1)
    stand(gate, probe, 2)
    assert probe is gate.next("openai", MONO + 31)
    finish(probe, 31)
    verdict = late.answered(answer(500), now(32), 0.5)
    assert isinstance(verdict, Retry)
    assert ("breaker", 0) == (verdict.why, verdict.tries.failures)


def test_a_call_that_was_cut_off_gives_its_probe_back() -> None:
    """Its assignment is over: the next lane sends one."""
    gate, (first, second, third) = lanes(3)
    fail(first)
    fail(first, 1)
    for lane in (second, third):
        stand(gate, lane, 2)
    assert second is gate.next("openai", MONO + 31)
    start(second, 31)
    second.close()
    assert (None, "openai") == (gate.next("openai", MONO + 32), second.abandoned(MONO + 32))
    assert third is gate.next("openai", MONO + 32)


def test_a_call_that_its_own_deadline_cuts_off_says_nothing_of_the_callee() -> None:
    """Each had a tenth of a second: the breaker stays closed, and each ends as one whose deadline has passed."""
    of = decoder(settings({"breaker_failures": 2}, worker={"ordering": "key"}))
    gate: Gate[Lane] = Gate(of.settings.upstreams)
    lane = Lane(OWNER, of, KEY, Hold().of, gate=gate)
    for n in range(5):
        lane.add(record(value(deadline=now().rfc3339(n + 0.1)), offset=n), MONO)
    for n in range(5):
        start(lane, n)
        lane.answered(Ambiguous("timeout", "no whole answer in time"), now(n + 0.1), 0.5)
        reply = settle(lane, n + 0.1).reply
        assert reply is not None
        assert (Status.DEAD, Reason.DEADLINE_EXCEEDED) == (reply.status, reply.reason)
    assert [] == gate.turned()


@pytest.mark.parametrize(("later_s", "due_s"), [(2, 31), (32, 32 + GATED_PARKED_S)])
def test_what_waits_for_a_breaker_can_be_parked(later_s: int, due_s: float) -> None:
    """Until the probe may be sent; where that is out, for some seconds. Then it is read again, and stands in line anew."""
    gate, (first, second) = lanes()
    fail(first)
    fail(first, 1)
    if later_s > 31:
        start(first, 31)
    stand(gate, second, later_s)
    aside = Aside()
    assert ([1], []) == park(second, aside, later_s=later_s)
    written = read_parked(aside.log[0], TOPIC_ID, REQUESTS)
    assert written is not None
    assert ("breaker", WALL + due_s) == (written.why, written.due)
    gate.leave(second)
    assert Wait(MONO + due_s, "breaker") == noted(second, now(later_s))
    assert [1] == fetch(second, aside, due_s)
    if later_s > 31:
        assert GATED == noted(second, now(due_s))
    else:
        assert isinstance(noted(second, now(due_s)), Start)


def test_its_hold_comes_first() -> None:
    """A paused key says that it is paused, and does not stand in the way of others."""
    hold = Hold()
    of = decoder(settings({"breaker_failures": 1}, worker={"ordering": "key"}))
    gate: Gate[Lane] = Gate(of.settings.upstreams)
    lane = Lane(OWNER, of, KEY, hold.of, gate=gate)
    lane.add(record(), MONO)
    fail(lane)
    stand(gate, lane, 1)
    hold.why = "paused"
    assert ("paused", None) == lane.why(now(1))
