"""A lane before a limit: it waits and says so, has a place when its turn comes, and hands it back however its call ends."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.gate import Gate
from dispatcher.core.internal.parked import read_parked
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.passage import GUESSED_PARKED_S
from dispatcher.core.lanes.steps import Gated, Ready, Start, Tell, Wait
from dispatcher.core.messages.call import Ambiguous, CallResult, NotSent
from dispatcher.core.messages.claim import Claim
from dispatcher.core.messages.usage import Tokens, Usage
from tests.core.aside import Aside
from tests.core.keyed import Hold, fetch, park, settle, start
from tests.specimens import MONO, OWNER, REQUESTS, TOPIC_ID, WALL, answer, decoder, noted, now, record, settings, value

CLAIM = Claim("openai", None)
USED = Usage(Tokens(5, 15))


def lanes(count: int, content: bytes = b'{"upstream":"openai"}', **limit: Any) -> tuple[Gate[Lane], list[Lane]]:
    """Lanes of as many keys with two requests each, before one gate with this limit of their upstream."""
    limits = {"l": {"upstream": "openai", "margin_s": 0, **limit}}
    of = decoder(settings(worker={"ordering": "key"}, limits=limits))
    gate: Gate[Lane] = Gate(of.settings.upstreams, limits=of.settings.limits)
    made = [Lane(OWNER, of, b"k%d" % n, Hold().of, gate=gate) for n in range(count)]
    for n, lane in enumerate(made):
        for offset in (n, n + 100):
            lane.add(record(content, offset, key=lane.key), MONO)
    return gate, made


def gated(lane: Lane, later_s: float = 0) -> Gated:
    """It may not begin."""
    step = noted(lane, now(later_s))
    assert isinstance(step, Gated), step
    return step


def test_a_lane_waits_for_its_turn_and_how_long_is_told() -> None:
    """One at once: the second begins when the first has ended, and says that it waited for three seconds."""
    gate, (first, second) = lanes(2, concurrency=1)
    step = noted(first, now())
    assert isinstance(step, Start)
    assert 0 == step.limited_s
    assert CLAIM == gated(second, 1).claim
    gate.stand(second, CLAIM)
    assert ("limit", MONO + 2) == second.why(now(2))
    assert not second.is_waiting_long(now(2), 1.0)
    first.answered(answer(), now(4), 0.5)
    assert second is gate.next("openai", MONO + 4)
    step = noted(second, now(4))
    assert isinstance(step, Start)
    assert 3 == step.limited_s


def a_minute_each(gate: Gate[Lane], made: list[Lane], turns: int) -> float:
    """All stand in line behind the first, and that many calls of a minute end; when the last of them did."""
    assert isinstance(noted(made[0], now()), Start)
    for lane in made[1:]:
        gated(lane)
        gate.stand(lane, CLAIM)
    for n in range(turns):
        made[n].answered(answer(), now(60 * (n + 1)), 60)
        assert made[n + 1] is gate.next("openai", MONO + 60 * (n + 1))
        assert isinstance(noted(made[n + 1], now(60 * (n + 1))), Start)
    return 60 * turns


def test_those_who_left_the_line_are_not_waited_for() -> None:
    """Nine stood before the last: once eight of them are parked, its turn comes after one more."""
    gate, made = lanes(12, concurrency=1)
    at = a_minute_each(gate, made, 1)
    early, late = made[2].why(now(at))[1], made[-1].why(now(at))[1]
    assert early is not None
    assert late is not None
    for lane in made[3:-1]:
        gate.leave(lane)
    assert pytest.approx(early + (late - early) / 9) == made[-1].why(now(at))[1]


def test_who_is_parked_comes_back_before_a_guess_is_over() -> None:
    """Turns came a minute apart of late; they may come faster, and somebody must be there to take them."""
    gate, made = lanes(20, concurrency=1)
    at = a_minute_each(gate, made, 6)
    until = made[-1].why(now(at))[1]
    assert until is not None
    assert until > MONO + at + 60
    aside = Aside()
    assert [19, 119] == park(made[-1], aside, later_s=at)[0]
    written = read_parked(aside.log[0], TOPIC_ID, REQUESTS)
    assert written is not None
    assert ("limit", WALL + at + GUESSED_PARKED_S) == (written.why, written.due)


def test_who_is_called_back_comes_at_once_and_asks_anew() -> None:
    """It was to come back in half a minute; when it is read, its call begins."""
    gate, made = lanes(20, concurrency=1)
    at = a_minute_each(gate, made, 6)
    aside = Aside()
    park(made[-1], aside, later_s=at)
    assert isinstance(noted(made[-1], now(at + 1)), Wait)
    made[6].answered(answer(), now(at + 1), 0.5)
    for lane in made[7:-1]:
        gate.leave(lane)
    assert [made[-1]] == gate.call_back("openai", 1, MONO + at + 1)
    made[-1].parking.hasten(now(at + 1))
    assert [19, 119] == fetch(made[-1], aside, at + 1)
    assert isinstance(noted(made[-1], now(at + 1)), Start)


def test_what_waits_for_something_else_is_not_hastened() -> None:
    """Who was told to wait waits, whoever calls."""
    _, (lane,) = lanes(1, concurrency=1)
    start(lane)
    lane.answered(answer(429, headers=(("retry-after", "60"),)), now(), 0.5)
    noted(lane, now())
    park(lane, Aside())
    lane.parking.hasten(now())
    assert Wait(MONO + 60, "retry_after") == noted(lane, now())


def test_who_cannot_be_moved_aside_keeps_its_turn() -> None:
    """It is larger than the parked topic takes, and stands in line on, though nobody knows until when."""
    gate, (first, second) = lanes(2, concurrency=1)
    start(first)
    gated(second)
    gate.stand(second, CLAIM)
    gate.limits["l"].grant("concurrency", 0, MONO)
    assert ([], []) == second.park(0, Bounds(1), now())
    gate.limits["l"].grant("concurrency", 1, MONO)
    first.answered(answer(), now(1), 0.5)
    assert second is gate.next("openai", MONO + 1)
    assert isinstance(noted(second, now(1)), Start)


def test_a_call_under_no_limit_waited_for_none() -> None:
    """It is not counted at all."""
    _, (lane,) = lanes(1, content=b'{"upstream":"bare"}', concurrency=1)
    step = noted(lane, now())
    assert isinstance(step, Start)
    assert step.limited_s is None


def test_a_retry_waits_for_the_limit_as_well() -> None:
    """Each call counts."""
    _, (lane,) = lanes(1, requests=1, window_s=10)
    start(lane)
    lane.passage.begin(MONO)
    lane.answered(answer(500), now(), 0.5)
    assert CLAIM == gated(lane, 5).claim
    assert 0 == start(lane, 10)


@pytest.mark.parametrize(
    ("result", "used", "left"),
    [
        (answer(), USED, 80),
        (answer(), None, 40),
        (answer(429), None, 100),
        (NotSent("connect", "refused"), None, 100),
        (Ambiguous("reset", "broke"), None, 40),
    ],
)
def test_tokens_are_put_right_by_how_it_ends(result: CallResult, used: Usage | None, left: int) -> None:
    """60 are expected; what is left of 100 then."""
    body = {"model": "m", "max_tokens": 50, "text": "x"}
    gate, (lane,) = lanes(1, value(body=body), tokens=100, window_s=60)
    start(lane)
    lane.passage.begin(MONO)
    lane.answered(result, now(1), 0.5, used)
    assert gate.ask(lane, Claim("openai", None, "", left), MONO + 2) is None
    assert left == 100 or gate.ask(lane, Claim("openai", None, "", left + 1), MONO + 2) is not None


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_handed_back_by_a_lane_that_ends(is_closed: bool) -> None:  # noqa: FBT001 - both ways
    """Closed with its call in flight, or cut off with its assignment: the next one begins when that has ended."""
    gate, (first, second) = lanes(2, concurrency=1)
    start(first)
    gated(second)
    gate.stand(second, CLAIM)
    if is_closed:
        first.close()
        first.answered(answer(), now(1), 0.5)
        settle(first, 1)
    else:
        assert "openai" == first.abandoned(MONO + 1)
    assert second is gate.next("openai", MONO + 1)


def test_an_intent_has_its_place_until_nothing_comes_of_it() -> None:
    """Its lane is closed before the intent stands: place and request are given back, since nothing was sent."""
    gate, (first, second) = lanes(2, value(repeat="never"), requests=1, window_s=1000)
    first.next(now())
    assert first.is_intending
    gated(second)
    gate.stand(second, CLAIM)
    assert gate.next("openai", MONO + 1) is None
    first.close()
    assert isinstance(first.next(now(1)), Tell)
    assert second is gate.next("openai", MONO + 1)


def test_who_has_no_slot_has_no_place() -> None:
    """It may begin, and is told to wait for a slot: another one takes the place meanwhile, and then it waits for that."""
    _, (first, second) = lanes(2, concurrency=1)
    assert isinstance(noted(first, now(), may_call=False), Ready)
    assert 1 == start(second)
    assert CLAIM == gated(first).claim
