"""The gate where who stood in line was moved aside: who is called back, when, and no more than may begin."""

from __future__ import annotations

from dispatcher.core.callees.gate import Crowd, Gate
from dispatcher.core.messages.claim import Claim
from tests.core.callees.test_gate_limits import NOW, OK, enter, gate

CLAIM = Claim("u", None)


def aside(of: Gate[str], waiters: str, claim: Claim = CLAIM, priority: int = 4) -> None:
    """They come to stand in line, and are moved aside."""
    for waiter in waiters:
        of.stand(waiter, claim, priority)
        of.put_aside(waiter)


def test_as_many_are_called_back_as_may_begin() -> None:
    """In the order in which they went; who is on his way has his place, and the next one comes when a call has ended."""
    of = gate({"l": {"upstream": "u", "concurrency": 2}})
    taken = [enter(of, CLAIM, NOW, waiter) for waiter in "xy"]
    aside(of, "abcd")
    assert of.next("u", NOW) is None
    assert [] == of.call_back("u", 9, NOW)
    of.end(taken[0], OK, NOW)
    assert ["a"] == of.call_back("u", 9, NOW)
    assert [] == of.call_back("u", 9, NOW)
    of.end(taken[1], OK, NOW)
    assert ["b"] == of.call_back("u", 9, NOW)
    enter(of, CLAIM, NOW, "a")
    assert [] == of.call_back("u", 9, NOW), "one is open, and one on its way"
    assert "u" == of.forget("b")
    assert ["c"] == of.call_back("u", 9, NOW)


def test_no_more_are_called_back_than_there_are_slots() -> None:
    """Those on their way count."""
    of = gate({"l": {"upstream": "u", "concurrency": 9}})
    aside(of, "abcd")
    assert [] == of.call_back("u", 0, NOW)
    assert ["a", "b"] == of.call_back("u", 2, NOW)
    assert ["c"] == of.call_back("u", 3, NOW)


def test_who_stands_in_line_comes_first() -> None:
    """He is next; nobody is called back before he has begun."""
    of = gate({"l": {"upstream": "u", "concurrency": 1}})
    aside(of, "ab")
    of.stand("s", CLAIM)
    assert [] == of.call_back("u", 9, NOW)
    assert "s" == of.next("u", NOW)
    enter(of, CLAIM, NOW, "s")
    assert [] == of.call_back("u", 9, NOW)


def test_lines_that_share_a_limit_share_who_comes_back_and_take_turns() -> None:
    """Of one place there is one, whatever the credential."""
    of = gate({"l": {"upstream": "u", "concurrency": 1}, "a": {"credential": "a", "concurrency": 5}})
    first, second = Claim("u", "a"), Claim("u", "b")
    aside(of, "pq", first)
    aside(of, "rs", second)
    called = []
    for claims in ({"p": first, "r": second}, {"p": first, "r": second}, {"q": first, "s": second}, {"q": first, "s": second}):
        (one,) = of.call_back("u", 9, NOW)
        assert [] == of.call_back("u", 9, NOW)
        called.append(one)
        of.end(enter(of, claims[one], NOW, one), OK, NOW)
    assert ["p", "r", "q", "s"] == called


def test_a_window_has_room_for_so_many_and_says_when_again() -> None:
    """Of four in ten seconds three are used: one, and the others when the window has passed."""
    for counting, again_s, count in (("window", 10.0, 3), ("bucket", 2.5, 1)):
        of = gate({"l": {"upstream": "u", "requests": 4, "window_s": 10, "counting": counting}})
        for waiter in "xyz":
            enter(of, CLAIM, NOW, waiter)
        aside(of, "abcd")
        assert ["a"] == of.call_back("u", 9, NOW)
        enter(of, CLAIM, NOW, "a")
        assert [] == of.call_back("u", 9, NOW)
        at = of.free_again_at("u", NOW)
        assert NOW + again_s == at
        assert list("bcd")[:count] == of.call_back("u", 9, at)


def test_tokens_are_counted_for_each() -> None:
    """Of a hundred, thirty each: three."""
    claim = Claim("u", None, "", 30)
    of = gate({"l": {"upstream": "u", "tokens": 100, "window_s": 10}})
    aside(of, "abcde", claim)
    assert list("abc") == of.call_back("u", 9, NOW)


def test_who_is_away_is_among_those_who_wait() -> None:
    """Until he stands in line again, or is to do something else; each once."""
    of = gate({"l": {"upstream": "u", "concurrency": 1}})
    claim = Claim("u", None, "", 7)
    aside(of, "abc", claim)
    of.stand("s", claim)
    assert [Crowd(4, 28, 7)] == list(of.waiting().values())
    of.come("b")
    of.stand("b", claim)
    assert of.forget("c") is None
    assert [Crowd(3, 21, 7)] == list(of.waiting().values())
    assert of.forget("a") is None
    for waiter in "sb":
        of.leave(waiter)
    assert {} == of.waiting()
    assert not of.has_aside("u")


def test_the_most_urgent_are_called_back_first() -> None:
    """Of equals those who went first."""
    of = gate({"l": {"upstream": "u", "concurrency": 4}})
    aside(of, "ab", priority=0)
    aside(of, "cd", priority=9)
    aside(of, "e", priority=4)
    assert list("cdea") == of.call_back("u", 9, NOW)
