"""The oracle of a chaos run: what has a reason passes under its name, what has none is found."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from tests.chaos import judgement, load, ownership, plan, scene, standstill, takeover
from tests.chaos.scene import Call, Cause, Fate, Scene, Trouble, overlaps, repeats

ATTEMPTS = 3
FIRST = Call("r-1", 0, 5, 1, 1, "0", "a", 100.0, 101.0, "answered", 200)
AGAIN = Call("r-1", 0, 5, 2, 1, "0", "b", 110.0, 111.0, "answered", 200)
FAILED = replace(FIRST, status=500)
NONE: frozenset[tuple[int, int]] = frozenset()


def test_the_examples_are_true() -> None:
    """Every docstring example of the run's pure parts."""
    results = [doctest.testmod(module) for module in (judgement, load, ownership, plan, scene, standstill, takeover)]
    assert [0] * len(results) == [result.failed for result in results]
    assert all(result.attempted for result in results)


def _scene(first: Fate | None = None, *troubles: Trouble) -> Scene:
    return Scene([first or Fate("a"), Fate("b")], troubles)


def _cause(*calls: Call, by: Scene | None = None, handed: frozenset[tuple[int, int]] = NONE) -> list[Cause]:
    return [cause for _, cause in repeats(calls, by or _scene(), handed, ATTEMPTS)]


@pytest.mark.parametrize(
    ("befell", "expected"),
    [
        (_scene(Fate("a", killed_at=102.0)), "worker killed"),
        (_scene(Fate("a", killed_at=99.9)), "worker killed"),
        (_scene(Fate("a", frozen=[(100.5, 109.0)])), "worker frozen"),
        (_scene(Fate("a", overstayed=[105.0])), "worker past its grace"),
        (_scene(Fate("a", ended_at=105.0)), "worker ended by itself"),
        (_scene(None, Trouble("kill broker", 80.0, 90.0)), "broker trouble"),
        (_scene(Fate("a", is_proxied=True), Trouble("cut way", 80.0, 90.0, is_of_ways=True)), "broker trouble"),
        (_scene(None, Trouble("cut way", 80.0, 90.0, is_of_ways=True)), "unexplained"),
        (_scene(Fate("a", killed_at=111.0)), "unexplained"),
        (_scene(Fate("a", frozen=[(80.0, 99.0)])), "unexplained"),
        (_scene(None, Trouble("kill broker", 20.0, 30.0)), "unexplained"),
    ],
)
def test_a_finished_call_is_repeated_only_for_what_befell_its_worker(befell: Scene, expected: Cause) -> None:
    """By the next owner, after the first one was killed, frozen, cut off … between the two calls; else there is no reason."""
    assert [expected] == _cause(FIRST, AGAIN, by=befell)


def test_what_was_handed_over_is_not_called_again() -> None:
    """Whatever befell its worker: it had published all, or given the call up since its grace was over."""
    handed = frozenset({(0, 1)})
    trouble = Trouble("kill broker", 99.0, 105.0)
    assert ["unexplained"] == _cause(FIRST, AGAIN, by=_scene(None, trouble), handed=handed)
    assert ["worker past its grace"] == _cause(FIRST, AGAIN, by=_scene(Fate("a", overstayed=[105.0]), trouble), handed=handed)
    frozen = _scene(Fate("a", frozen=[(100.5, 109.0)]))
    assert ["unexplained"] == _cause(FIRST, AGAIN, by=frozen, handed=handed)
    assert ["worker frozen"] == _cause(replace(FIRST, is_given_up=True), AGAIN, by=frozen, handed=handed)
    assert ["upstream retry"] == _cause(FAILED, AGAIN, handed=handed)


def test_the_same_owner_repeats_only_what_failed() -> None:
    """In one epoch a call follows one that was not answered, or refused; not one that was answered, even while brokers go away."""
    again = replace(AGAIN, epoch=1, worker="a", attempt=2)
    trouble = _scene(None, Trouble("kill broker", 99.0, 105.0))
    assert ["unexplained"] == _cause(FIRST, again, by=trouble)
    assert ["worker frozen"] == _cause(FIRST, again, by=_scene(Fate("a", frozen=[(100.9, 109.0)])))
    for failed in (FAILED, replace(FIRST, outcome="reset"), replace(FIRST, outcome="truncated"), replace(FIRST, status=429)):
        assert ["upstream retry"] == _cause(failed, again)
    given_up = replace(FIRST, outcome="client_closed", status=None, is_given_up=True)
    assert ["upstream retry"] == _cause(given_up, again)
    assert ["unexplained"] == _cause(replace(given_up, is_given_up=False), again)
    assert ["unexplained"] == _cause(replace(given_up, is_given_up=False), again, by=trouble), "cut off, since something else failed"
    assert ["unexplained"] == _cause(replace(FIRST, is_given_up=True), again), "it was answered"


def test_attempts_beyond_the_policy_have_no_reason() -> None:
    """`attempts_max` of them, whoever makes them; refusals with a hint cost none, and an owner that is lost takes one with it."""
    tries = [replace(FAILED, start=100.0 + n, end=100.5 + n, attempt=n + 1) for n in range(4)]
    assert ["upstream retry", "upstream retry", "unexplained"] == _cause(*tries)
    spared = replace(tries[1], is_spared=True)
    assert ["upstream retry"] * 3 == _cause(tries[0], spared, *tries[2:])
    hinted = [replace(one, status=503) for one in tries]
    assert ["upstream retry"] * 3 == _cause(*hinted)
    by_next = [*tries[:2], *(replace(one, epoch=2, worker="b") for one in tries[2:])]
    assert ["upstream retry"] * 3 == _cause(*by_next)
    one_more = replace(by_next[-1], start=104.0, end=104.5, attempt=4)
    assert [*["upstream retry"] * 3, "unexplained"] == _cause(*by_next, one_more), "it began anew"
    assert "unexplained" == _cause(*by_next, one_more, by=_scene(Fate("a", killed_at=102.0)))[-1]


def test_what_an_older_owner_still_tries_is_noted_by_nobody() -> None:
    """It stood still, and the next owner has called since: its late call costs that one nothing."""
    first = replace(FAILED, start=100.0, end=100.5)
    theirs = [replace(FAILED, epoch=2, worker="b", start=110.0 + n, end=110.5 + n, attempt=2 + n) for n in range(3)]
    late = replace(FAILED, start=111.6, end=111.7, attempt=2)
    frozen = _scene(Fate("a", frozen=[(100.1, 111.5)]))
    assert ["upstream retry", "upstream retry", "worker frozen", "upstream retry"] == _cause(first, *theirs[:2], late, theirs[2], by=frozen)
    once_more = replace(theirs[2], start=113.0, end=113.5, attempt=5)
    assert "unexplained" == _cause(first, *theirs[:2], late, theirs[2], once_more, by=frozen)[-1]


def test_broker_trouble_takes_no_partition_by_itself() -> None:
    """It explains what the next owner repeats, or runs beside, only where a log tells of the loss, or its worker was gone by then."""
    trouble, fates = [Trouble("kill broker", 80.0, 105.0)], [Fate("a"), Fate("b")]
    beside = replace(AGAIN, start=100.5, offset=6)
    for lost, expected in ((frozenset({(0, 1)}), "broker trouble"), (NONE, "unexplained"), (frozenset({(0, 2), (1, 1)}), "unexplained")):
        by = Scene(fates, trouble, lost=lost)
        assert [expected] == _cause(FIRST, AGAIN, by=by)
        assert [expected] == _overlap(FIRST, beside, by)
    for gone in (Fate("a", killed_at=120.0), Fate("a", ended_at=139.9), Fate("a", terminated_at=120.0)):
        assert ["broker trouble"] == _cause(FIRST, AGAIN, by=Scene([gone, Fate("b")], trouble, lost=NONE))
    later = Fate("a", killed_at=141.0)
    assert ["unexplained"] == _cause(FIRST, AGAIN, by=Scene([later, Fate("b")], trouble, lost=NONE)), "it would have heard by then"


def _overlap(older: Call, newer: Call, by: Scene, handed: frozenset[tuple[int, int]] = NONE) -> list[Cause]:
    return [cause for _, _, cause in overlaps([older, newer], by, handed)]


def test_calls_side_by_side_need_an_owner_that_was_lost() -> None:
    """Two calls of a lane overlap only if the older owner was frozen, cut off or killed, and had not handed over."""
    newer = replace(AGAIN, start=100.5, offset=6)
    frozen = _scene(Fate("a", frozen=[(90.0, 99.0)]))
    assert [] == _overlap(FIRST, replace(newer, start=101.0), _scene())
    assert [] == _overlap(FIRST, replace(newer, lane="1"), _scene())
    assert ["worker frozen"] == _overlap(FIRST, newer, frozen)
    assert ["worker frozen"] == _overlap(newer, replace(FIRST, start=100.7), frozen), "also where the thawed one starts last"
    assert ["unexplained"] == _overlap(FIRST, newer, _scene())
    assert ["unexplained"] == _overlap(FIRST, newer, frozen, frozenset({(0, 1)}))
    assert ["unexplained"] == _overlap(FIRST, replace(newer, epoch=1), frozen), "one owner"
    assert ["unexplained"] == _overlap(FIRST, replace(newer, worker="a"), frozen), "one process"


def test_trouble_explains_calls_side_by_side_for_its_aftermath_and_no_longer() -> None:
    """30 s after it was over; a freeze until whoever stood still must have heard, and never an assignment that was given since."""
    late = replace(FIRST, start=101.0, end=102.0)
    newer = replace(AGAIN, start=101.5, offset=6)
    for ended, expected in ((101.5, "broker trouble"), (71.5, "broker trouble"), (70.5, "unexplained"), (42.5, "unexplained")):
        trouble = _scene(None, Trouble("stop broker", 10.0, ended))
        assert [expected] == _overlap(late, newer, trouble), ended
    for thawed, expected in ((100.7, "worker frozen"), (91.5, "worker frozen"), (90.5, "unexplained"), (72.0, "unexplained")):
        assert [expected] == _overlap(late, newer, _scene(Fate("a", frozen=[(60.0, thawed)]))), thawed
    fates = [Fate("a", frozen=[(90.0, 99.0)]), Fate("b")]
    assert ["worker frozen"] == _overlap(late, newer, Scene(fates, [], {(0, 1): 98.0, (0, 2): 101.2}))
    assert ["unexplained"] == _overlap(late, newer, Scene(fates, [], {(0, 1): 99.5}))


def test_a_late_call_of_an_older_owner_needs_a_reason_just_before() -> None:
    """A worker that was cut off, or stood still, and does not know it; nothing that was over long ago."""
    after = replace(FIRST, start=120.0, end=121.0)
    assert ["worker frozen"] == _cause(replace(AGAIN, start=110.0), after, by=_scene(Fate("a", frozen=[(105.0, 119.5)])))
    assert ["unexplained"] == _cause(replace(AGAIN, start=110.0), after, by=_scene(Fate("a", frozen=[(85.0, 99.0)])))
    assert ["broker trouble"] == _cause(replace(AGAIN, start=110.0), after, by=_scene(None, Trouble("stop broker", 80.0, 91.0)))
    assert ["unexplained"] == _cause(replace(AGAIN, start=110.0), after, by=_scene(None, Trouble("stop broker", 50.0, 65.0)))
