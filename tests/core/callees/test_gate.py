"""The gate before every call: what keeps one, who is next, and that there is no stampede."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.callees.breaker import State
from dispatcher.core.callees.finding import Finding, Known, Party, find
from dispatcher.core.callees.gate import Gate, Pass
from dispatcher.core.callees.line import BREAKER, RETRY_AFTER, Stop
from dispatcher.core.messages.claim import Claim
from dispatcher.settings import UpstreamSettings
from tests.specimens import WALL, answer

OK = Finding(Known.ANSWERED, Party.NOBODY)
FAILED = Finding(Known.ANSWERED, Party.CALLEE, again=True, status=503)
REFUSED = Finding(Known.ANSWERED, Party.CALLER, status=404)
NOW = 1000.0


def gate(**upstream: Any) -> Gate[str]:
    """A gate before one upstream `u`."""
    return Gate({"u": UpstreamSettings(base_url="http://127.0.0.1:1", **upstream)})


def limited(told_s: float | None = 60.0, **fields: Any) -> Finding:
    """A 429."""
    return Finding(Known.ANSWERED, Party.CALLER, **{"again": True, "status": 429, "told_s": told_s, **fields})


def call(of: Gate[str], finding: Finding | None, at: float = NOW, credential: str | None = None, waiter: str = "w") -> bool:
    """A call that may begin, and ends so; whether it was spared."""
    assert of.ask(waiter, Claim("u", credential), at) is None
    taken = of.enter(waiter, Claim("u", credential), at)
    assert taken is not None
    return of.end(taken, finding, at)


def opened(**upstream: Any) -> Gate[str]:
    """A gate whose breaker has opened."""
    of = gate(**upstream)
    assert [False] * 4 + [True] == [call(of, FAILED) for _ in range(5)]
    return of


def drained(of: Gate[str], at: float) -> list[str]:
    """Those who may begin now, one after another: each does, and goes well."""
    called = []
    while (waiter := of.next("u", at)) is not None:
        call(of, OK, at, waiter=waiter)
        called.append(waiter)
    return called


def test_who_has_no_slot_keeps_its_turn() -> None:
    """It may begin as soon as it has one, though others stand in line; who leaves for another reason has lost it."""
    of = opened()
    for waiter in ("a", "b", "c"):
        of.stand(waiter, Claim("u", None))
    assert "a" == of.next("u", NOW + 30)
    of.leave("a", keeps_turn=True)
    assert None is of.ask("a", Claim("u", None), NOW + 30)
    assert isinstance(of.ask("b", Claim("u", None), NOW + 30), Stop)
    of.leave("a")
    assert isinstance(of.ask("a", Claim("u", None), NOW + 30), Stop)


def test_nobody_waits_for_a_callee_that_is_well() -> None:
    """Successes and what is the caller's own doing."""
    of = gate()
    for n in range(1000):
        call(of, OK if n % 2 else REFUSED, NOW + n / 1000)
    assert of.due_at("u", NOW) is None
    assert [] == of.turned()


def test_an_upstream_that_it_does_not_know_is_not_kept() -> None:
    """Nothing is kept of it."""
    of: Gate[str] = Gate({})
    assert of.ask("w", Claim("v", None), NOW) is None
    assert of.enter("w", Claim("v", None), NOW) is None


def test_who_comes_while_it_is_open_waits_until_it_may_be_asked() -> None:
    """The breaker, and when it opens again; one probe then, and nobody knows for how long."""
    of = opened()
    assert Stop(BREAKER, NOW + 30) == of.ask("a", Claim("u", None), NOW)
    for waiter in "abc":
        of.stand(waiter, Claim("u", None))
    assert (NOW + 30, None) == (of.due_at("u", NOW), of.next("u", NOW + 29))
    assert "a" == of.next("u", NOW + 30)
    probe = of.enter("a", Claim("u", None), NOW + 30)
    assert probe is not None
    assert Stop(BREAKER, None) == of.ask("b", Claim("u", None), NOW + 31) == of.why("b", NOW + 31)
    assert (None, None) == (of.due_at("u", NOW + 31), of.next("u", NOW + 31))
    assert of.end(probe, FAILED, NOW + 40)
    assert (NOW + 70, None) == (of.due_at("u", NOW + 40), of.next("u", NOW + 40))


def test_each_turn_of_a_breaker_is_told_once() -> None:
    """Open, half-open, closed; with those who wait."""
    of = opened()
    of.stand("a", Claim("u", None))
    assert [(State.OPEN, 0)] == [(one.state, one.waiting) for one in of.turned()]
    call(of, OK, NOW + 30, waiter=of.next("u", NOW + 30) or "")
    assert [(State.HALF_OPEN, 0), (State.CLOSED, 0)] == [(one.state, one.waiting) for one in of.turned()]
    assert [] == of.turned()


def test_a_failed_probe_stands_at_the_end() -> None:
    """A request that brings the callee down is not the probe each time."""
    of = opened()
    for waiter in "abc":
        of.stand(waiter, Claim("u", None))
    probes = []
    for n in range(1, 5):
        probe = of.next("u", NOW + 30 * n)
        assert probe is not None
        probes.append(probe)
        call(of, FAILED, NOW + 30 * n, waiter=probe)
        of.stand(probe, Claim("u", None))
    assert ["a", "b", "c", "a"] == probes


@pytest.mark.parametrize("finding", [None, REFUSED, limited()])
def test_a_probe_that_says_nothing_is_followed_by_the_next_in_line(finding: Finding | None) -> None:
    """It was cut off, or its answer was the caller's own doing: at once."""
    of = opened()
    for waiter in "ab":
        of.stand(waiter, Claim("u", None))
    assert not call(of, finding, NOW + 30, waiter=of.next("u", NOW + 30) or "")
    assert (NOW + 30, "b") == (of.due_at("u", NOW + 30), of.next("u", NOW + 30))


def test_calls_begin_again_at_the_pace_that_was_known() -> None:
    """100 a second before; 1,000 wait. 100 to 200 in the first second after the probe, all within three."""
    of = gate()
    for n in range(2000):
        call(of, OK, NOW + n / 100)
    for _ in range(5):
        call(of, FAILED, NOW + 20)
    for n in range(1000):
        of.stand(f"{n}", Claim("u", None))
    now = NOW + 60
    call(of, OK, now, waiter=of.next("u", now) or "")
    times = [now]
    while (due := of.due_at("u", now)) is not None:
        now = max(now, due)
        times += [now] * len(drained(of, now))
    assert 100 <= len([at for at in times if at < NOW + 61]) <= 200
    assert (1000, True) == (len(times), times[-1] < NOW + 64)


def test_who_comes_later_does_not_overtake() -> None:
    """The next one may begin; somebody who asks at that moment is not it."""
    of = opened()
    of.stand("first", Claim("u", None))
    assert Stop(BREAKER, None) == of.ask("other", Claim("u", None), NOW + 30)
    assert "first" == of.next("u", NOW + 30)
    assert of.ask("other", Claim("u", None), NOW + 30) is None  # first may do without
    assert of.ask("first", Claim("u", None), NOW + 30) is None


def test_a_hint_of_a_credential_holds_all_calls_with_it() -> None:
    """And no others: another credential, none, another upstream."""
    of = gate(credentials=("a", "b"))
    assert not call(of, limited(60), credential="a")
    assert Stop(RETRY_AFTER, NOW + 60) == of.ask("x", Claim("u", "a"), NOW)
    assert of.ask("x", Claim("u", "b"), NOW) is None
    assert of.ask("x", Claim("u", None), NOW) is None
    assert of.ask("x", Claim("u", "a"), NOW + 60) is None


@pytest.mark.parametrize(
    ("finding", "credential", "upstream"),
    [
        (limited(60), None, {}),
        (limited(None), "a", {}),
        (limited(60, is_quota=True), "a", {}),
        (limited(60, again=False), "a", {}),
        (limited(60), "a", {"hint_holds_credential": False}),
        (Finding(Known.ANSWERED, Party.CALLEE, again=True, status=503, told_s=60), "a", {}),
    ],
)
def test_what_is_not_of_a_credential_holds_nobody(finding: Finding, credential: str | None, upstream: dict[str, Any]) -> None:
    """No credential, no hint, a quota that no waiting brings back, one that says not to come again, the switch, a 503."""
    of = gate(**upstream)
    call(of, finding, credential=credential)
    assert of.ask("x", Claim("u", credential), NOW) is None


def test_the_answer_of_a_429_as_it_is_read_holds_its_credential() -> None:
    """From bytes to the hold; an error inside a 200 that counts as a 429, too."""
    for result in (
        answer(429, headers=(("retry-after", "7"),)),
        answer(200, b'{"error":{"code":429,"message":"try again in 7 seconds"}}'),
    ):
        of = gate()
        call(of, find(result, WALL), credential="a")
        assert Stop(RETRY_AFTER, NOW + 7) == of.ask("x", Claim("u", "a"), NOW)


def test_the_latest_answer_counts() -> None:
    """A longer time, then a shorter one; and none of them beyond what a request may wait."""
    of = gate()
    passes: list[Pass] = [one for n in range(3) if (one := of.enter(f"{n}", Claim("u", "a"), NOW)) is not None]
    for n, (told_s, until) in enumerate(((60, 60), (10, 11), (10_000, 602))):
        of.end(passes[n], limited(told_s), NOW + n)
        assert Stop(RETRY_AFTER, NOW + until) == of.ask("x", Claim("u", "a"), NOW + n)


def test_after_a_hint_there_is_no_stampede() -> None:
    """40 lanes on one credential, ten calls a second before: they begin at that pace."""
    of = gate()
    for n in range(200):
        call(of, OK, NOW + n / 10, credential="a")
    call(of, limited(30), NOW + 20, credential="a")
    for n in range(40):
        of.stand(f"{n}", Claim("u", "a"))
    now, times = NOW + 20, list[float]()
    while (due := of.due_at("u", now)) is not None:
        now = max(now, due)
        while (waiter := of.next("u", now)) is not None:
            call(of, OK, now, "a", waiter)
            times.append(now)
    assert (40, NOW + 50) == (len(times), times[0])
    assert 10 <= len([at for at in times if at < NOW + 51]) <= 20


def test_the_credentials_of_an_upstream_take_turns() -> None:
    """When its breaker closes: the longer line is not served first."""
    of = opened()
    for n in range(3):
        of.stand(f"a{n}", Claim("u", "a"))
    of.stand("b0", Claim("u", "b"))
    now, order = NOW + 30, list[str]()
    while (due := of.due_at("u", now)) is not None:
        now = max(now, due)
        while (waiter := of.next("u", now)) is not None:
            call(of, OK, now, waiter[0], waiter)
            order.append(waiter)
    assert ["a0", "b0", "a1", "a2"] == order


def test_who_leaves_is_not_called() -> None:
    """A lane that ended, was held or went away."""
    of = opened()
    for waiter in "abc":
        of.stand(waiter, Claim("u", None))
    of.leave("a")
    of.leave("nobody")
    assert "b" == of.next("u", NOW + 30)
    assert of.why("a", NOW) is None


def test_it_can_be_off() -> None:
    """No number and no share: a hundred failures keep nobody, and none of them is the outage's."""
    of = gate(breaker_failures=0)
    assert not any(call(of, FAILED) for _ in range(100))
    assert [] == of.turned()


class Crowd(RuleBasedStateMachine):
    """Waiters with two credentials come, are woken as a driver wakes them, and end in any order and way."""

    @initialize()
    def new(self) -> None:
        """A gate that opens after two failures, for ten seconds."""
        self.gate = gate(breaker_failures=2, breaker_open_s=10)
        self.now = NOW
        self.numbers = 0
        self.standing: list[tuple[int, str]] = []
        self.flying: list[tuple[int, str, Pass]] = []
        self.opened_at: float | None = None
        self.begun_while_open = 0
        self.ended_for_nothing = 0

    @rule(credential=st.sampled_from("ab"), count=st.integers(1, 4))
    def come(self, credential: str, count: int) -> None:
        """So many more want to call."""
        for _ in range(count):
            self.numbers += 1
            self._try((self.numbers, credential))

    def _try(self, who: tuple[int, str]) -> None:
        name, credential = str(who[0]), who[1]
        if self.gate.ask(name, Claim("u", credential), self.now) is not None:
            self.gate.stand(name, Claim("u", credential))
            self.standing.append(who)
            return
        taken = self.gate.enter(name, Claim("u", credential), self.now)
        assert taken is not None
        self.flying.append((*who, taken))
        self.begun_while_open += self.opened_at is not None

    @rule(later_s=st.floats(0, 12))
    def wait(self, later_s: float) -> None:
        """Time passes, and whoever is due is woken."""
        until = self.now + later_s
        while (due := self.gate.due_at("u", self.now)) is not None and due <= until:
            self.now = max(self.now, due)
            self._wake()
        self.now = until

    def _wake(self) -> None:
        while (name := self.gate.next("u", self.now)) is not None:
            who = next(one for one in self.standing if str(one[0]) == name)
            # First come, first served, among those with the same credential.
            assert who == next(one for one in self.standing if one[1] == who[1])
            self.standing.remove(who)
            self._try(who)
            assert who not in self.standing

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), finding=st.sampled_from([OK, OK, FAILED, FAILED, REFUSED, limited(5.0), None]))
    def end(self, data: st.DataObject, finding: Finding | None) -> None:
        """One of those in flight ends, and whoever is due is woken."""
        *_, taken = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.gate.end(taken, finding, self.now)
        self._hear()
        if self.opened_at is not None and self.begun_while_open and (finding is None or finding.fault is Party.CALLER):
            self.ended_for_nothing += 1
        self._wake()

    def _hear(self) -> None:
        for turned in self.gate.turned():
            if turned.state is State.OPEN:
                self.opened_at, self.begun_while_open, self.ended_for_nothing = self.now, 0, 0
            elif turned.state is State.CLOSED:
                self.opened_at = None

    @invariant()
    def one_call_goes_through_while_it_is_open(self) -> None:
        """In each open period, beside those that said nothing."""
        self._hear()
        if self.opened_at is not None:
            assert self.begun_while_open <= 1 + self.ended_for_nothing

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Who stands in line is woken at a known time, or by the end of a call."""
        if self.standing:
            assert self.gate.due_at("u", self.now) is not None or self.flying

    def teardown(self) -> None:
        """All that is in flight goes well, and then everybody is called, one each."""
        for _ in range(1000):
            while self.flying:
                self.gate.end(self.flying.pop()[-1], OK, self.now)
                self._hear()
            due = self.gate.due_at("u", self.now)
            if due is None:
                break
            self.now = max(self.now, due)
            self._wake()
        assert [] == self.standing


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def test_no_step_is_dearer_where_many_wait() -> None:
    """What is looked at does not grow with the line: 10,000 stand, and the gate counts what it touches."""
    of = opened()
    touched = Counter[str]()

    class Lane(str):
        """A waiter that counts how often it is looked up."""

        __slots__ = ()

        def __hash__(self) -> int:
            touched["hash"] += 1
            return super().__hash__()

    for n in range(10_000):
        of.stand(Lane(n), Claim("u", None))
    touched.clear()
    now = NOW + 30
    waiter = of.next("u", now)
    assert waiter is not None
    call(of, OK, now, waiter=waiter)
    of.due_at("u", now)
    assert touched["hash"] < 20
