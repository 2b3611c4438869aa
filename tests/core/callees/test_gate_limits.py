"""The gate where limits keep calls: who is next, that nobody is left behind, and that no more begin than may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.core.callees.allowance import Allowance
from dispatcher.core.callees.finding import Finding, Known, Party
from dispatcher.core.callees.gate import Gate, Pass
from dispatcher.core.callees.line import BREAKER, LIMIT, RETRY_AFTER, Stop
from dispatcher.core.callees.meter import REQUESTS
from dispatcher.core.callees.reservation import SILENT, Statement
from dispatcher.core.messages.claim import Claim
from dispatcher.settings import LimitSettings, UpstreamSettings

OK = Finding(Known.ANSWERED, Party.NOBODY)
TOO_MANY = Finding(Known.ANSWERED, Party.CALLER, again=True, status=429)
FAILED = Finding(Known.ANSWERED, Party.CALLEE, again=True, status=503)
NOT_SENT = Finding(Known.NOT_SENT, Party.CALLEE, again=True)
NOW = 1000.0


def gate(limits: dict[str, dict[str, Any]], upstreams: str = "u", credentials: str = "ab", **upstream: Any) -> Gate[str]:
    """A gate before upstreams of one letter each; margins are none."""
    of = UpstreamSettings(base_url="http://127.0.0.1:1", credentials=tuple(credentials), **upstream)
    made = {name: LimitSettings.model_validate({"margin_s": 0, **limit}) for name, limit in limits.items()}
    return Gate(dict.fromkeys(upstreams, of), limits=made)


def enter(of: Gate[str], claim: Claim, at: float, waiter: str = "w") -> Pass:
    """A call that may begin, and does."""
    assert of.ask(waiter, claim, at) is None
    taken = of.enter(waiter, claim, at)
    assert taken is not None
    of.begin(taken, at)
    return taken


def entered(of: Gate[str], claim: Claim) -> int:
    """How many such calls may begin now, one beside the other."""
    count = 0
    while of.ask("w", claim, NOW) is None:
        enter(of, claim, NOW)
        count += 1
    return count


def run(of: Gate[str], claims: dict[str, Claim], until: float, takes_s: float = 0.0, now: float = NOW) -> list[tuple[str, float]]:
    """Drive the gate as a worker does, with those who stand in its lines: who begins when. Each call goes well, and takes so long."""
    upstream = next(iter(claims.values())).upstream
    begun, flying = list[tuple[str, float]](), list[tuple[float, Pass]]()
    while True:
        due = of.due_at(upstream, now)
        ends = min((end for end, _ in flying), default=None)
        times = [at for at in (due, ends) if at is not None]
        if not times or min(times) > until:
            return begun
        assert due is None or due >= now
        now = min(times)
        for one in [one for one in flying if one[0] <= now]:
            flying.remove(one)
            of.end(one[1], OK, now)
        while (waiter := of.next(upstream, now)) is not None:
            flying.append((now + takes_s, enter(of, claims[waiter], now, waiter)))
            begun.append((waiter, now))


def stand(of: Gate[str], claims: dict[str, Claim]) -> None:
    """They stand in line, in this order."""
    for waiter, claim in claims.items():
        of.stand(waiter, claim)


def test_nothing_is_limited_that_is_not_configured() -> None:
    """And a call under no limit reserves nothing."""
    of = gate({"l": {"credential": "a", "concurrency": 1}})
    assert all(enter(of, Claim("u", "b"), NOW).reservation is None for _ in range(100))


def test_who_waits_for_a_limit_says_so() -> None:
    """Until when, where that is known: until its window has room, and its turn comes."""
    of = gate({"l": {"credential": "a", "requests": 2, "window_s": 10}})
    for n in range(2):
        of.end(enter(of, Claim("u", "a"), NOW + n), OK, NOW + n)
    assert Stop(LIMIT, NOW + 10) == of.ask("x", Claim("u", "a"), NOW + 3)
    stand(of, {f"{n}": Claim("u", "a") for n in range(5)})
    assert Stop(LIMIT, NOW + 10) == of.why("0", NOW + 3)
    assert ("0", NOW + 10) == run(of, {f"{n}": Claim("u", "a") for n in range(5)}, NOW + 10)[0]
    told = [(stop.why, stop.until - NOW) for n in (1, 2, 3) if (stop := of.why(f"{n}", NOW + 10)) is not None and stop.until is not None]
    assert [LIMIT] * 3 == [why for why, _ in told]
    assert sorted(until for _, until in told) == [until for _, until in told]
    assert 11 == told[0][1]


def test_the_most_urgent_has_the_next_turn() -> None:
    """Of those who wait for a limit, whoever came before it; and it is told of its turn, not of the end of the line."""
    of, claim = gate({"l": {"credential": "a", "requests": 1, "window_s": 10}}), Claim("u", "a")
    of.end(enter(of, claim, NOW), OK, NOW)
    for waiter, priority in (("low", 0), ("usual", 4), ("urgent", 9), ("too", 9), ("late", 4)):
        of.stand(waiter, claim, priority)
    assert Stop(LIMIT, NOW + 10) == of.why("urgent", NOW)
    of.stand("late", claim, 9)
    begun = run(of, dict.fromkeys(("low", "usual", "urgent", "too", "late"), claim), NOW + 60)
    assert ["urgent", "too", "late", "usual", "low"] == [waiter for waiter, _ in begun]


def test_nobody_waits_for_a_limit_for_ever() -> None:
    """However many come that are more urgent: each tenth turn is that of the first that came."""
    of, claim = gate({"l": {"credential": "a", "requests": 1, "window_s": 1}}), Claim("u", "a")
    for n in range(3):
        of.stand(f"low{n}", claim, 0)
    begun = []
    for n in range(40):
        of.stand(f"urgent{n}", claim, 9)
        of.stand(f"more{n}", claim, 9)
        waiter = of.next("u", NOW + 2 * n)
        assert waiter is not None
        of.end(enter(of, claim, NOW + 2 * n, waiter), OK, NOW + 2 * n)
        begun.append(waiter)
    assert {"low0": 9, "low1": 19, "low2": 29} == {waiter: place for place, waiter in enumerate(begun) if waiter.startswith("low")}


def test_where_nothing_is_ours_nobody_knows_until_when() -> None:
    """A share of nothing; then there is one, and they are called."""
    of = gate({"l": {"credential": "a", "requests": 10, "window_s": 10}})
    of.limits["l"].grant(REQUESTS, 0, NOW)
    claims = {f"{n}": Claim("u", "a") for n in range(3)}
    stand(of, claims)
    assert (None, None) == (of.due_at("u", NOW), of.next("u", NOW))
    assert Stop(LIMIT, None) == of.why("0", NOW)
    of.limits["l"].grant(REQUESTS, 2, NOW + 5, 2)
    assert [("0", NOW + 15), ("1", NOW + 15)] == run(of, claims, NOW + 16, now=NOW + 5)


def test_the_other_reasons_come_first() -> None:
    """A hint, and a callee that is down, are told before the limit that keeps as well."""
    of = gate({"l": {"credential": "a", "requests": 5, "window_s": 1000}}, breaker_failures=5)
    claim = Claim("u", "a")
    for _ in range(5):
        of.end(enter(of, claim, NOW), FAILED, NOW)
    assert Stop(BREAKER, NOW + 30) == of.ask("x", claim, NOW)
    hinted = gate({"l": {"credential": "a", "requests": 1, "window_s": 1000}})
    hinted.end(enter(hinted, claim, NOW), Finding(Known.ANSWERED, Party.CALLER, again=True, status=429, told_s=50), NOW)
    assert Stop(RETRY_AFTER, NOW + 50) == hinted.ask("x", claim, NOW)


def test_forty_lanes_use_what_there_is_and_no_more() -> None:
    """50 a second and ten at once, calls of 0.1 s, for a minute: 50 in each second, all lanes alike."""
    of = gate({"l": {"credential": "a", "requests": 50, "window_s": 1, "concurrency": 10}})
    claims = {f"{n}": Claim("u", "a") for n in range(40)}
    begun, flying, now = list[tuple[str, float]](), list[tuple[float, str, Pass]](), NOW
    stand(of, claims)
    while now < NOW + 60:
        for one in [one for one in flying if one[0] <= now]:
            flying.remove(one)
            of.end(one[2], OK, now)
            of.stand(one[1], claims[one[1]])
        while (waiter := of.next("u", now)) is not None:
            flying.append((now + 0.1, waiter, enter(of, claims[waiter], now, waiter)))
            begun.append((waiter, now))
            assert len(flying) <= 10
        ends = [end for end, *_ in flying]
        now = min([*ends, *([] if (due := of.due_at("u", now)) is None else [max(due, now)])])
    assert 3000 == len(begun)
    assert all(later - first >= 1 - 1e-9 for (_, first), (_, later) in zip(begun, begun[50:], strict=False))
    counts = [sum(waiter == name for waiter, _ in begun) for name in claims]
    assert max(counts) - min(counts) <= 1


def test_the_end_of_a_call_lets_the_next_one_begin() -> None:
    """One at once, over two upstreams that share a credential: both are of one family, and take turns."""
    of = gate({"l": {"credential": "a", "concurrency": 1}}, upstreams="uv")
    assert of.family_of("u") == of.family_of("v")
    claims = {f"{upstream}{n}": Claim(upstream, "a") for n in range(3) for upstream in "uv"}
    taken = enter(of, Claim("u", "a"), NOW)
    stand(of, claims)
    assert (None, None) == (of.due_at("u", NOW), of.next("v", NOW))
    of.end(taken, OK, NOW + 1)
    assert ["u0", "v0", "u1", "v1", "u2", "v2"] == [waiter for waiter, _ in run(of, claims, NOW + 99, takes_s=1.0, now=NOW + 1)]


def test_upstreams_that_share_no_limit_know_nothing_of_each_other() -> None:
    """Two that take the same credential, and a limit of one of them; and three that share two."""
    of = gate({"l": {"credential": "a", "upstream": "u", "concurrency": 1}}, upstreams="uvw")
    assert {"u", "v", "w"} == of.families()
    limits = {name: UpstreamSettings(base_url="http://127.0.0.1:1", credentials=(*name,)) for name in ("ab", "bc", "cd", "e")}
    shared = {c: LimitSettings.model_validate({"credential": c, "concurrency": 1}) for c in "bc"}
    chained: Gate[str] = Gate(limits, limits=shared)
    assert 2 == len({chained.family_of(name) for name in limits})
    assert chained.family_of("ab") == chained.family_of("cd") != chained.family_of("e")


def test_the_lines_under_one_limit_take_turns() -> None:
    """Ten with one credential, one with another, one call at a time: the lone one is second."""
    of = gate({"l": {"upstream": "u", "concurrency": 1}})
    claims = {f"a{n}": Claim("u", "a") for n in range(10)} | {"b0": Claim("u", "b")}
    stand(of, claims)
    assert ["a0", "b0", "a1"] == [waiter for waiter, _ in run(of, claims, NOW + 99, takes_s=1.0)][:3]


def test_a_limit_of_one_model_keeps_no_other() -> None:
    """Nor does whoever waits for it stand in their way, though both are under the credential's."""
    limits = {
        "key": {"credential": "a", "requests": 100, "window_s": 1},
        "large": {"model": "large", "requests": 1, "window_s": 1000},
    }
    of = gate(limits)
    of.end(enter(of, Claim("u", "a", "large"), NOW), OK, NOW)
    stand(of, {"slow": Claim("u", "a", "large")})
    for n in range(50):
        of.end(enter(of, Claim("u", "a", f"small-{n}"), NOW + n / 100, f"{n}"), OK, NOW + n / 100)
    assert NOW + 1000 == of.due_at("u", NOW + 1)


@pytest.mark.parametrize(("of_credential", "room"), [(True, (0, 0)), (False, (0, 99))])
def test_what_a_callee_says_of_one_model_keeps_no_other_where_its_limits_are_of_models(
    room: tuple[int, int], *, of_credential: bool
) -> None:
    """Nothing is left, it says to a call of one model: as `hint_holds_credential` says, of its credential or of that model alone."""
    limits = {"key": {"credential": "a", "requests": 100, "window_s": 60}, "m": {"model": "m", "requests": 50, "window_s": 60}}
    of = gate(limits, hint_holds_credential=of_credential)
    of.end(enter(of, Claim("u", "a", "m"), NOW), OK, NOW, Statement(left={"requests": Allowance(0, 60.0)}))
    assert room == (entered(of, Claim("u", "a", "m")), entered(of, Claim("u", "a")))


@pytest.mark.parametrize(("of_credential", "room"), [(True, 69), (False, 99)])
def test_a_429_of_one_model_lowers_its_limit_alone_where_limits_are_of_models(room: int, *, of_credential: bool) -> None:
    """Where none names the model of the call all are lowered: whatever was too much, there is nothing else to lower."""
    limits = {"key": {"credential": "a", "requests": 100, "window_s": 60}, "m": {"model": "m", "requests": 50, "window_s": 60}}
    of = gate(limits, hint_holds_credential=of_credential)
    of.end(enter(of, Claim("u", "a", "m"), NOW), TOO_MANY, NOW)
    assert room == entered(of, Claim("u", "a"))
    other = gate({"key": limits["key"]}, hint_holds_credential=of_credential)
    other.end(enter(other, Claim("u", "a", "m"), NOW), TOO_MANY, NOW)
    assert 69 == entered(other, Claim("u", "a"))


def test_a_call_of_many_tokens_is_not_starved_by_those_of_few() -> None:
    """900 of 1,000 in a window, beside lines that use what is free at once: it is let through within two windows."""
    of = gate({"l": {"upstream": "u", "tokens": 1000, "window_s": 10}})
    claims = {f"b{n}": Claim("u", "b", "", 100) for n in range(200)}
    stand(of, claims)
    assert 10 == len(run(of, claims, NOW))
    claims["big"] = Claim("u", "a", "", 900)
    of.stand("big", claims["big"])
    begun = dict(run(of, claims, NOW + 40))
    assert begun["big"] <= NOW + 20
    assert 32 == len(begun), "nothing else of it is left unused"


def test_newcomers_do_not_take_what_somebody_waits_for() -> None:
    """A call of few tokens would fit, and does not overtake one of many with another credential."""
    of = gate({"l": {"upstream": "u", "tokens": 1000, "window_s": 10}})
    of.end(enter(of, Claim("u", "b", "", 500), NOW), OK, NOW, Statement(500))
    of.stand("big", Claim("u", "a", "", 900))
    assert Stop(LIMIT, None) == of.ask("small", Claim("u", "b", "", 100), NOW + 1)
    assert "big" == of.next("u", NOW + 10)


def test_one_under_two_limits_that_are_never_free_at_once_has_its_turn() -> None:
    """Each of them is wanted by others at any time: the one that waits lays hands on one, and then on the other."""
    limits = {"x": {"credential": "a", "requests": 1, "window_s": 3}, "y": {"model": "m", "requests": 1, "window_s": 5}}
    of = gate(limits, upstreams="u", credentials="abc")
    claims = {f"x{n}": Claim("u", "a") for n in range(40)} | {f"y{n}": Claim("u", "b", "m") for n in range(40)}
    claims["both"] = Claim("u", "a", "m")
    stand(of, claims)
    begun = dict(run(of, claims, NOW + 60))
    assert begun["both"] <= NOW + 10
    assert 10 <= len([waiter for waiter in begun if waiter.startswith("y")])


def test_whose_limit_of_the_day_is_used_up_lets_go_of_all_else() -> None:
    """It had waited for the credential's, and now its model's is told to be used up for an hour: others with the credential go on."""
    limits = {"key": {"credential": "a", "requests": 1, "window_s": 3}, "m": {"model": "m", "requests": 5, "window_s": 60}}
    of = gate(limits, credentials="ab")
    asking = enter(of, Claim("u", "b", "m"), NOW)
    of.end(enter(of, Claim("u", "a"), NOW), OK, NOW)
    claims = {"m0": Claim("u", "a", "m"), "a0": Claim("u", "a")}
    stand(of, claims)
    assert NOW + 3 == of.due_at("u", NOW)
    of.end(asking, OK, NOW + 1, Statement(left={"requests": Allowance(0, 500.0)}))
    assert [("a0", NOW + 3)] == run(of, claims, NOW + 4, now=NOW + 1)


def test_two_who_have_no_slot_do_not_take_each_others_turn() -> None:
    """Of two families each has a turn of its own."""
    of = gate({"l": {"credential": "a", "concurrency": 1}, "k": {"credential": "b", "concurrency": 1}}, upstreams="u")
    other = gate({}, upstreams="uv")
    for upstream in "uv":
        for n in range(2):
            other.stand(f"{upstream}{n}", Claim(upstream, None))
    assert ("u0", "v0") == (other.next("u", NOW), other.next("v", NOW))
    for waiter in ("u0", "v0"):
        other.leave(waiter, keeps_turn=True)
        assert other.ask(waiter, Claim(waiter[0], None), NOW) is None
        assert other.ask(f"{waiter}x", Claim(waiter[0], None), NOW) is not None
    assert of.families() == {"u"}


@pytest.mark.parametrize("finding", [NOT_SENT, None])
def test_what_was_let_through_and_not_made_is_free_for_the_next(finding: Finding | None) -> None:
    """It had a pass, and its lane was closed, or its request ended; or there was no connection."""
    of = gate({"l": {"credential": "a", "requests": 1, "window_s": 1000, "concurrency": 1}})
    claim = Claim("u", "a")
    for n in range(3):
        taken = of.enter("w", claim, NOW + n)
        assert taken is not None
        if finding is NOT_SENT:
            of.begin(taken, NOW + n)
        of.end(taken, finding, NOW + n)
    enter(of, claim, NOW + 3)


def test_no_timer_is_set_for_who_waits_for_another_one() -> None:
    """A line that leaves a limit to the one before it is not due, however free it looks: else its timer would go off without an end."""
    of = gate({"l": {"upstream": "u", "tokens": 1000, "window_s": 10}})
    of.end(enter(of, Claim("u", "a", "", 500), NOW), OK, NOW, Statement(500))
    of.stand("big", Claim("u", "a", "", 900))
    of.stand("small", Claim("u", "b", "", 100))
    assert (NOW + 10, None) == (of.due_at("u", NOW + 1), of.next("u", NOW + 1))


@dataclass
class Caller:
    """Who wants to call; and what has become of that."""

    name: str
    claim: Claim
    taken: Pass | None = None
    began: float = 0.0


LIMITS: dict[str, dict[str, Any]] = {
    "a": {"credential": "a", "requests": 3, "window_s": 2, "concurrency": 2},
    "u": {"upstream": "u", "tokens": 100, "window_s": 5},
    "m": {"model": "m", "requests": 2, "window_s": 4, "counting": "bucket"},
    "v": {"upstream": "v", "concurrency": 3},
}
CLAIMS = st.builds(Claim, st.sampled_from("uv"), st.sampled_from(["a", "b"]), st.sampled_from(["", "m"]), st.sampled_from([1, 10, 90, 300]))


class Crowd(RuleBasedStateMachine):
    """Callers under four limits of two upstreams come, are woken as a driver wakes them, and end in any order and way."""

    @initialize()
    def new(self) -> None:
        """Nobody has called."""
        self.gate = gate(LIMITS, upstreams="uv", breaker_failures=0)
        self.now = NOW
        self.numbers = 0
        self.standing: dict[str, Caller] = {}
        self.flying: list[Caller] = []
        self.begun: list[Caller] = []

    @rule(claim=CLAIMS, count=st.integers(1, 4))
    def come(self, claim: Claim, count: int) -> None:
        """So many more want to call."""
        for _ in range(count):
            self.numbers += 1
            self._try(Caller(f"{self.numbers}", claim))
        self._wake()

    def _try(self, who: Caller) -> None:
        if self.gate.ask(who.name, who.claim, self.now) is not None:
            self.gate.stand(who.name, who.claim)
            self.standing[who.name] = who
            return
        who.taken, who.began = self.gate.enter(who.name, who.claim, self.now), self.now
        assert who.taken is not None
        self.gate.begin(who.taken, self.now)
        self.flying.append(who)
        self.begun.append(who)

    @rule(later_s=st.floats(0, 3))
    def wait(self, later_s: float) -> None:
        """Time passes, and whoever is due is woken."""
        until, woken = self.now + later_s, 0
        while (due := self.gate.due_at("u", self.now)) is not None and due <= until:
            self.now = max(self.now, due)
            woken = 0 if self._wake() else woken + 1
            assert woken < 50, "woken again and again for nothing"
        self.now = until

    def _wake(self) -> bool:
        before = len(self.begun)
        while (name := self.gate.next("v", self.now)) is not None:
            who = self.standing.pop(name)
            self._try(who)
            assert name not in self.standing, "who is next may begin"
        return len(self.begun) > before

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), finding=st.sampled_from([OK, OK, OK, FAILED, NOT_SENT, None]), used=st.sampled_from([None, 1, 50, 200]))
    def end(self, data: st.DataObject, finding: Finding | None, used: int | None) -> None:
        """One of those in flight ends."""
        who = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        assert who.taken is not None
        self.gate.end(who.taken, finding, self.now, SILENT if finding is not OK else Statement(used))
        if finding is NOT_SENT:
            self.begun.remove(who)
        self._wake()

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """One that waits does so no more: its deadline has passed."""
        who = self.standing.pop(data.draw(st.sampled_from(sorted(self.standing))))
        self.gate.leave(who.name)
        self._wake()

    @invariant()
    def no_more_begin_than_may(self) -> None:
        """In no window, and not at once."""
        of_a = [who.began for who in self.begun if who.claim.credential == "a"]
        assert all(later - first >= 2 - 1e-9 for first, later in zip(of_a, of_a[3:], strict=False))
        assert len([who for who in self.flying if who.claim.credential == "a"]) <= 2
        assert len([who for who in self.flying if who.claim.upstream == "v"]) <= 3
        of_m = [who.began for who in self.begun if who.claim.model == "m"]
        assert all(later - first >= 2 - 1e-6 for first, later in zip(of_m, of_m[2:], strict=False))

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Who stands in line is woken at a known time, or by the end of a call."""
        if self.standing:
            assert self.gate.due_at("u", self.now) is not None or self.flying

    def teardown(self) -> None:
        """All that is in flight goes well, and then everybody is called, one each."""
        for _ in range(1000):
            while self.flying:
                who = self.flying.pop()
                assert who.taken is not None
                self.gate.end(who.taken, OK, self.now)
            due = self.gate.due_at("u", self.now)
            if due is None:
                break
            self.now = max(self.now, due)
            self._wake()
        assert {} == self.standing


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
