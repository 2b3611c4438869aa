"""The judge of chaos runs, on runs that are written down by hand: one is clean, and whatever is planted into it is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.paper import Paper
from tests.chaos.scene import Trouble

A, B, CUT, FIRST, REFUSED, DEAD, HINTED = (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)


def _run(ordering: str = "partition") -> Paper:
    """Write down a run of two workers, of which one is killed at 30 s in a call, and the other one takes its partition over.

    Partition 0 has three requests of key a, and the last one is called twice, for the kill; partition 1 has four of key b: one is
    answered, one refused for good, one dead after four failures, and one is called again as the callee wanted.
    """
    paper = Paper(ordering)
    paper.live("one", 1, 0, 11)
    paper.live("two", 1, 1, 21)
    for _ in range(3):
        paper.ask(2, 0, "a")
    for _ in range(4):
        paper.ask(2, 1, "b")
    for place, at in ((A, 10), (B, 12)):
        paper.call(at, place, 11)
        paper.reply(at + 1.1, place)
        paper.commit(at + 1.1, 0, place[1] + 1, 11)
    paper.call(29.9, CUT, 11, took=0.2, outcome="client_closed", status=None)
    paper.kill("one", 30)
    paper.live("two", 37, 0, 12)
    paper.call(37.5, CUT, 12)
    paper.reply(38.6, CUT)
    paper.commit(38.6, 0, 3, 12)
    paper.call(10, FIRST, 21)
    paper.reply(11.1, FIRST)
    paper.call(12, REFUSED, 21, status=404)
    paper.reply(13.1, REFUSED, "error", 404)
    paper.fail("two", 14, DEAD, 21, 500, 500, 500, 500)
    paper.reply(18, DEAD, "dead", 500)
    paper.letter(18, DEAD)
    paper.fail("two", 20, HINTED, 21, 503)
    paper.call(22, HINTED, 21, attempt=2)
    paper.reply(23.1, HINTED)
    for position, done in enumerate((11.1, 13.1, 18, 23.1)):
        paper.commit(done, 1, position + 1, 21)
    return paper


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_clean_run_has_no_findings(monkeypatch: pytest.MonkeyPatch, ordering: str) -> None:
    """Its figures are what is written down, and what was called again has its reason."""
    made = _run(ordering).judged(monkeypatch)
    assert [] == made.findings
    assert (7, 7, 1, 12, []) == (made.requests, made.replies, made.letters, len(made.calls), made.stuck_keys)
    assert {"worker killed": 1, "upstream retry": 4} == made.repeats
    (takeover,) = made.takeovers
    assert ("one", 0, 8.5) == (takeover.worker, takeover.partition, round(takeover.completed_s or 0, 3))


Plant = Callable[[Paper], None]


def _doubled_letter(paper: Paper) -> None:
    paper.letter(18.5, DEAD)


def _swapped_replies(paper: Paper) -> None:
    first, second = (reply for reply in paper.replies if reply.partition == 0 and reply.offset < 2)
    paper.replies[paper.replies.index(first)] = replace(second, offset=0)
    paper.replies[paper.replies.index(second)] = replace(first, offset=1)


def _in_another_order(paper: Paper) -> None:
    first, second = (next(call for call in paper.calls if (call["partition"], call["offset"]) == of) for of in (A, B))
    first["t_s"], second["t_s"] = second["t_s"], first["t_s"]
    first["end_s"], second["end_s"] = second["end_s"], first["end_s"]
    paper.replies[0], paper.replies[1] = replace(paper.replies[1], offset=0), replace(paper.replies[0], offset=1)
    paper.commits = [commit for commit in paper.commits if (commit.partition, commit.position) != (0, 1)]


def _side_by_side(paper: Paper) -> None:
    paper.change(A, end_s=paper.calls[1]["t_s"] + 0.3)


def _again_by_the_same_owner(paper: Paper) -> None:
    paper.call(11.05, A, 11, took=0.01, attempt=2)


def _again_after_a_handover(paper: Paper) -> None:
    paper.fates["one"].killed_at = None
    paper.say("one", 36, "handed_over", partitions=[0])


def _let_go_in_trouble(paper: Paper) -> None:
    """The first owner lives on, and its log says nothing of a loss: the group cannot have taken anything from it."""
    paper.fates["one"].killed_at = None
    paper.troubles.append(Trouble("kill broker", paper.began + 20, paper.began + 40))


def _past_its_grace(paper: Paper, drain_s: float = 10.0) -> None:
    """The first owner lives on, hands over, and leaves what it had called to the next one."""
    paper.fates["one"].killed_at = None
    paper.fates["one"].overstayed.append(paper.began + 36)
    paper.say("one", 36, "drain_expired", partitions=[0], drain_s=drain_s)
    paper.say("one", 36.1, "handed_over", partitions=[0])


def _past_its_grace_in_trouble(paper: Paper) -> None:
    _past_its_grace(paper)
    paper.troubles.append(Trouble("kill broker", paper.began + 20, paper.began + 30))


def _lost_in_trouble(paper: Paper) -> None:
    _let_go_in_trouble(paper)
    paper.say("one", 38, "lost", partitions=[0])


def _cut_off(paper: Paper, duration_ms: int) -> None:
    """What was answered with 503 and called again was cut off by its worker instead."""
    call = next(call for call in paper.calls if (call["partition"], call["offset"]) == HINTED)
    call |= {"outcome": "client_closed", "status": None}
    told = next(line for line in paper.workers["two"].told if line["event"] == "call_ended" and line["offset"] == HINTED[1])
    told |= {"error_type": "timeout", "duration_ms": duration_ms}


def _still_for_a_minute(paper: Paper) -> None:
    """The second owner goes on a minute later than it did."""
    for call in paper.calls:
        if (call["partition"], call["offset"]) == CUT and call["epoch"] == 12:
            call["t_s"] += 60
            call["end_s"] += 60
    paper.replies = [
        replace(reply, timestamp_ms=(reply.timestamp_ms or 0) + 60_000) if _is_of(reply.headers or (), CUT) else reply
        for reply in paper.replies
    ]
    paper.commits = [replace(one, at=one.at + 60) if (one.partition, one.position) == (0, 3) else one for one in paper.commits]


def _stuck(paper: Paper) -> None:
    paper.ask(50, 1, "late")


def _letter_of_another(paper: Paper) -> None:
    paper.letters[0] = replace(paper.letters[0], value=paper.requests[FIRST].value)


def _letter_without_reply(paper: Paper) -> None:
    paper.letter(13.1, REFUSED)


def _dead_after_one(paper: Paper) -> None:
    paper.calls = [call for call in paper.calls if call["offset"] != DEAD[1] or call["partition"] != 1 or call["attempt"] == 4]
    paper.workers["two"].told = [line for line in paper.workers["two"].told if line["event"] != "call_ended"]


def _dead_though_one_was_spared(paper: Paper) -> None:
    _spared(paper)
    paper.say("two", 14.5, "breaker_open")


def _spared(paper: Paper) -> None:
    next(line for line in paper.workers["two"].told if line["event"] == "call_ended")["why"] = "breaker"


def _a_fifth_call(paper: Paper) -> None:
    """What was dead after four failures is called a fifth time, since its first failure cost no attempt."""
    _spared(paper)
    fourth = [line for line in paper.workers["two"].told if line["event"] == "call_ended"][3]
    fourth["outcome"] = "retry"
    paper.call(17.6, DEAD, 21, took=0.3, status=500, attempt=5)
    fields = {"partition": DEAD[0], "offset": DEAD[1], "attempt": 5, "outcome": "dead", "duration_ms": 300}
    paper.say("two", 17.9, "call_ended", **fields)


def _answered(of: tuple[int, int], status: str, http: int, **changed: Any) -> Plant:
    def plant(paper: Paper) -> None:
        at = next(n for n, reply in enumerate(paper.replies) if reply.headers and _is_of(reply.headers, of))
        before = paper.replies[at]
        paper.reply(0, of, status, http, **changed)
        paper.replies[at] = replace(paper.replies.pop(), offset=before.offset, timestamp_ms=before.timestamp_ms)

    return plant


def _is_of(headers: tuple[tuple[str, bytes | None], ...], of: tuple[int, int]) -> bool:
    held = dict(headers)
    return (held["dispatcher-request-partition"], held["dispatcher-request-offset"]) == (str(of[0]).encode(), str(of[1]).encode())


def _with_body_of_another(paper: Paper) -> None:
    at = paper.replies[0]
    paper.replies[0] = replace(at, value=paper.replies[1].value)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        pytest.param(lambda paper: paper.strike(B, "replies"), {"lost", "other"}, id="no_reply"),
        pytest.param(lambda paper: paper.acknowledged.add("r-99"), {"lost"}, id="acknowledged_and_gone"),
        pytest.param(lambda paper: paper.letters.clear(), {"lost", "other"}, id="dead_without_letter"),
        pytest.param(lambda paper: paper.reply(14, B), {"duplicated", "out of order"}, id="two_replies"),
        pytest.param(_doubled_letter, {"duplicated"}, id="two_letters"),
        pytest.param(_swapped_replies, {"out of order", "other"}, id="replies_out_of_order"),
        pytest.param(_in_another_order, {"out of order"}, id="calls_out_of_order"),
        pytest.param(lambda paper: paper.commit(10.5, 0, 1, 11), {"other"}, id="committed_before_its_reply"),
        pytest.param(lambda paper: paper.call(37.1, B, 12, took=0.1), {"other"}, id="again_though_committed"),
        pytest.param(_side_by_side, {"overlaps"}, id="side_by_side"),
        pytest.param(_again_by_the_same_owner, {"repeats"}, id="again_by_the_same_owner"),
        pytest.param(_again_after_a_handover, {"repeats"}, id="again_after_a_handover"),
        pytest.param(_let_go_in_trouble, {"repeats"}, id="let_go_in_trouble"),
        pytest.param(lambda paper: _cut_off(paper, 500), {"repeats"}, id="cut_off_too_soon"),
        pytest.param(_past_its_grace, {"other"}, id="past_its_grace"),
        pytest.param(lambda paper: paper.live("two", 39, 0, 12), {"other"}, id="one_epoch_twice"),
        pytest.param(_stuck, {"lost", "stuck"}, id="stuck"),
        pytest.param(_still_for_a_minute, {"stuck"}, id="still_for_a_minute"),
        pytest.param(lambda paper: paper.strike(A, "calls"), {"replies"}, id="reply_without_call"),
        pytest.param(lambda paper: paper.change(A, status=404), {"replies"}, id="ok_and_refused"),
        pytest.param(lambda paper: paper.change(REFUSED, status=200), {"replies"}, id="refused_and_ok"),
        pytest.param(lambda paper: paper.change(A, outcome="client_closed", status=None), {"replies"}, id="never_answered"),
        pytest.param(lambda paper: paper.change(A, id="r-5"), {"replies"}, id="called_as_another"),
        pytest.param(_answered(A, "error", 200), {"replies"}, id="error_with_200"),
        pytest.param(_answered(A, "expired", 200), {"replies"}, id="expired"),
        pytest.param(_answered(A, "ok", 200, ce_causationid="r-1"), {"replies"}, id="reply_of_another_id"),
        pytest.param(_with_body_of_another, {"replies"}, id="answer_of_another"),
        pytest.param(_answered(A, "ok", 200, value={"duplicate": True}), {"other", "replies"}, id="answered_as_a_duplicate"),
        pytest.param(_answered(A, "ok", 200, value={"attempts": 0}), {"replies"}, id="answered_without_a_call"),
        pytest.param(_dead_after_one, {"replies"}, id="dead_after_one"),
        pytest.param(_dead_though_one_was_spared, {"replies"}, id="dead_though_one_was_spared"),
        pytest.param(_a_fifth_call, {"repeats"}, id="spared_by_no_breaker"),
        pytest.param(_letter_of_another, {"replies"}, id="letter_of_another"),
        pytest.param(_letter_without_reply, {"replies"}, id="letter_without_reply"),
    ],
)
def test_what_is_planted_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, expected: set[str]) -> None:
    """Lost, doubled, disordered, side by side, called again for no reason, stuck, or not what its calls came to."""
    paper = _run()
    plant(paper)
    made = paper.judged(monkeypatch)
    assert expected == {finding.what for finding in made.findings}, made.findings


def _a_fifth_call_in_an_outage(paper: Paper) -> None:
    _a_fifth_call(paper)
    paper.say("two", 14.5, "breaker_open")


def _gave_up_at_once(paper: Paper) -> None:
    _past_its_grace(paper, drain_s=0.0)


REASONS = [_lost_in_trouble, _past_its_grace_in_trouble, _gave_up_at_once, lambda paper: _cut_off(paper, 4001), _a_fifth_call_in_an_outage]


@pytest.mark.parametrize("happened", REASONS)
def test_what_has_its_reason_is_no_finding(monkeypatch: pytest.MonkeyPatch, happened: Plant) -> None:
    """A loss that the log tells of while brokers were away, what a broker held up beyond a grace, a call whose time was over."""
    paper = _run()
    happened(paper)
    assert [] == paper.judged(monkeypatch).findings


def test_a_key_that_gets_no_reply_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that nobody called, and whose partition is not committed to its end."""
    paper = _run("key")
    _stuck(paper)
    made = paper.judged(monkeypatch)
    assert ["late"] == made.stuck_keys
    assert {"lost", "stuck"} == {finding.what for finding in made.findings}
