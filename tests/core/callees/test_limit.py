"""One limit: what holds it back, what is given back to it, and which part of it is ours."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.callees.allowance import Allowance
from dispatcher.core.callees.finding import Finding, Known, Party
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.meter import CONCURRENCY, REQUESTS, TOKENS
from dispatcher.core.callees.reservation import SILENT, Reservation, Statement, statement_of
from dispatcher.core.messages.call import Ambiguous, NotSent
from dispatcher.core.messages.usage import Tokens, Usage
from dispatcher.settings import LimitSettings
from tests.specimens import WALL, answer

OK = Finding(Known.ANSWERED, Party.NOBODY)
TOO_MANY = Finding(Known.ANSWERED, Party.CALLER, again=True, status=429)
FAILED = Finding(Known.ANSWERED, Party.CALLEE, again=True, status=500)
NOT_SENT = Finding(Known.NOT_SENT, Party.CALLEE, again=True)
AMBIGUOUS = Finding(Known.AMBIGUOUS, Party.CALLEE, again=True)
NOW = 5000.0


def limit(**fields: Any) -> Limit:
    """One of an upstream; windows as long as they are called."""
    return Limit(LimitSettings.model_validate({"upstream": "u", "margin_s": 0, **fields}))


def made(of: Limit, at: float = NOW, tokens: int = 0) -> Reservation:
    """A call that may be made, and is."""
    assert at == of.free_at(tokens, at)
    reservation = Reservation([of], tokens)
    reservation.begin(at)
    return reservation


def ended(of: Limit, finding: Finding | None, at: float = NOW, tokens: int = 0, left: dict[str, Allowance] | None = None) -> None:
    """A call that is made, and ends so at once."""
    made(of, at, tokens).end(finding, Statement(left=left or {}), at, 600.0)


def free(of: Limit, at: float = NOW) -> int:
    """How many calls may begin now, one beside the other."""
    count = 0
    while of.free_at(0, at) == at:
        made(of, at)
        count += 1
    return count


def test_so_many_at_once_and_so_many_in_a_window() -> None:
    """Each keeps for itself: the end of a call frees its place, and not its share of the window."""
    of = limit(concurrency=2, requests=3, window_s=10)
    first, second = made(of), made(of, NOW + 1)
    assert of.free_at(0, NOW + 2) is None, "only the end of one can tell"
    first.end(OK, SILENT, NOW + 2, 600.0)
    third = made(of, NOW + 2)
    for one in (second, third):
        one.end(OK, SILENT, NOW + 3, 600.0)
    assert NOW + 10 == of.free_at(0, NOW + 3)


def test_what_is_let_through_and_not_made_yet_leaves_no_window() -> None:
    """Its intent takes longer than the window: it counts from when it is made."""
    of = limit(requests=1, window_s=10)
    reservation = Reservation([of], 0)
    assert of.free_at(0, NOW + 100) is None
    reservation.begin(NOW + 100)
    reservation.begin(NOW + 105)
    assert NOW + 110 == of.free_at(0, NOW + 101)


@pytest.mark.parametrize("counting", ["window", "bucket"])
def test_what_was_not_sent_is_given_back(counting: str) -> None:
    """No connection; or let through, and not made after all. What may have arrived counts, and what was refused, too."""
    of = limit(counting=counting, requests=2, tokens=1000, window_s=10)
    for _ in range(5):
        ended(of, NOT_SENT, tokens=900)
        Reservation([of], 900).end(None, SILENT, NOW, 600.0)
    ended(of, None, tokens=400)
    ended(of, TOO_MANY, tokens=400)
    assert of.free_at(0, NOW) is not None
    assert NOW < (of.free_at(0, NOW) or 0.0)


def test_tokens_are_settled_by_what_the_answer_says() -> None:
    """Less than was expected is free at once, more is owed; what says nothing took what was expected, and what was refused took none."""
    of = limit(tokens=1000, window_s=10)
    made(of, tokens=900).end(OK, Statement(tokens=100), NOW, 600.0)
    assert NOW == of.free_at(900, NOW)
    made(of, NOW + 1, 500).end(FAILED, SILENT, NOW + 1, 600.0)
    made(of, NOW + 2, 300).end(TOO_MANY, SILENT, NOW + 2, 600.0)
    assert NOW + 60 == of.free_at(1000, NOW + 60)
    made(of, NOW + 60, 100).end(OK, Statement(tokens=5000), NOW + 61, 600.0)
    assert (NOW + 70, NOW + 70) == (of.free_at(1, NOW + 62), of.free_at(0, NOW + 62))


def test_one_that_is_larger_than_the_limit_waits_for_all_of_it() -> None:
    """It is not refused, and does not wait for ever."""
    of = limit(tokens=1000, window_s=10)
    made(of, tokens=1)
    assert NOW + 10 == of.free_at(5000, NOW + 1)
    made(of, NOW + 10, 5000)
    assert NOW + 20 == of.free_at(1, NOW + 11)


def test_the_time_of_a_token_is_the_windows_not_the_calls() -> None:
    """An answer that comes when its call has left the window gives nothing back to it; what is more counts from then."""
    of = limit(tokens=1000, window_s=10)
    slow = made(of, tokens=800)
    made(of, NOW + 10, 1000)
    slow.end(OK, Statement(tokens=900), NOW + 15, 600.0)
    assert NOW + 25 == of.free_at(1000, NOW + 20)
    assert NOW + 20 == of.free_at(900, NOW + 20)


def test_what_a_callee_says_is_left_holds_back_until_its_reset() -> None:
    """Others use the same key: two are left, though we have used one of ten. Then the window is ours as before, and never more."""
    of = limit(requests=10, window_s=60)
    ended(of, OK, left={"requests": Allowance(2, 20.0)})
    assert 2 == free(of, NOW + 1)
    assert NOW + 20 == of.free_at(0, NOW + 1)
    assert 7 == free(of, NOW + 20)
    generous = limit(requests=10, window_s=60)
    ended(generous, OK, left={"requests": Allowance(5000, 60.0)})
    assert 9 == free(generous, NOW + 1)


def test_calls_that_began_behind_it_are_not_in_what_an_answer_says() -> None:
    """Five are left, and three of them have been sent meanwhile."""
    of = limit(requests=10, window_s=60)
    first = made(of)
    for _ in range(3):
        made(of, NOW + 1)
    first.end(OK, Statement(left={"requests": Allowance(5, 60.0)}), NOW + 2, 600.0)
    assert 2 == free(of, NOW + 2)


def test_the_word_of_the_last_call_counts() -> None:
    """Answers come in any order: an older word does not undo a newer one, and a newer one does."""
    of = limit(requests=10, window_s=60)
    old, new = made(of), made(of)
    new.end(OK, Statement(left={"requests": Allowance(1, 60.0)}), NOW + 1, 600.0)
    old.end(OK, Statement(left={"requests": Allowance(9, 60.0)}), NOW + 1, 600.0)
    assert 1 == free(of, NOW + 1)
    again = limit(requests=10, window_s=60)
    ended(again, OK, left={"requests": Allowance(0, 30.0)})
    ended(again, OK, NOW + 30, left={"requests": Allowance(4, 30.0)})
    assert 4 == free(again, NOW + 31)


@pytest.mark.parametrize(("finding", "used"), [(NOT_SENT, None), (OK, 10)])
def test_what_comes_back_of_an_earlier_call_was_never_in_a_later_ones_word(finding: Finding, used: int | None) -> None:
    """Two have begun, and the second is told that 100 are left: the first was not sent, or took less; there are no more for that."""
    of = limit(tokens=1000, window_s=60)
    first, second = made(of, tokens=200), made(of, tokens=200)
    second.end(OK, Statement(200, {"tokens": Allowance(100, 60.0)}), NOW + 1, 600.0)
    first.end(finding, Statement(used), NOW + 2, 600.0)
    assert (NOW + 2, NOW + 61) == (of.free_at(100, NOW + 2), of.free_at(101, NOW + 2))


def test_what_comes_back_of_a_later_call_is_left_as_before() -> None:
    """It was taken off what the first one was told; and what an earlier one took more than was expected nobody had told."""
    of = limit(tokens=1000, window_s=60)
    first, second, third = (made(of, tokens=200) for _ in range(3))
    second.end(OK, Statement(200, {"tokens": Allowance(300, 60.0)}), NOW + 1, 600.0)
    assert (NOW + 1, NOW + 61) == (of.free_at(100, NOW + 1), of.free_at(101, NOW + 1))
    third.end(NOT_SENT, SILENT, NOW + 2, 600.0)
    assert (NOW + 2, NOW + 61) == (of.free_at(300, NOW + 2), of.free_at(301, NOW + 2))
    first.end(OK, Statement(250), NOW + 3, 600.0)
    assert (NOW + 3, NOW + 61) == (of.free_at(250, NOW + 3), of.free_at(251, NOW + 3))


def test_no_reset_is_believed_beyond_what_a_request_may_wait() -> None:
    """A day: it is asked again in ten minutes. One that is not said is a window."""
    of = limit(requests=10, window_s=60)
    ended(of, OK, left={"requests": Allowance(0, 86_400.0)})
    assert NOW + 600 == of.free_at(0, NOW + 1)
    of = limit(requests=10, window_s=60)
    ended(of, OK, left={"requests": Allowance(0, None)})
    assert NOW + 60 == of.free_at(0, NOW + 1)


def test_a_429_takes_three_tenths_and_what_is_left_grows_slowly() -> None:
    """Once for all calls that were out at that moment; back at the whole in six windows, and one is left always."""
    of = limit(requests=100, window_s=10)
    calls = [made(of) for _ in range(5)]
    for one in calls:
        one.end(TOO_MANY, SILENT, NOW + 1, 600.0)
    assert 65 == free(of, NOW + 1)
    assert 85 == free(of, NOW + 31)
    assert 100 == free(of, NOW + 90)
    single = limit(requests=1, window_s=10)
    for n in range(9):
        ended(single, TOO_MANY, NOW + 10 * n)
    assert NOW + 100 == single.free_at(0, NOW + 100)


def test_a_429_lowers_how_many_are_open_at_once_too() -> None:
    """Ten, then seven."""
    of = limit(concurrency=10)
    ended(of, TOO_MANY)
    assert 7 == free(of, NOW + 1)


def test_a_quota_that_is_used_up_says_nothing_of_how_fast() -> None:
    """No waiting brings it back."""
    of = limit(requests=100, window_s=10)
    ended(of, Finding(Known.ANSWERED, Party.CALLER, status=429, is_quota=True))
    assert 99 == free(of, NOW)


def test_a_call_that_broke_off_is_open_for_a_moment_longer() -> None:
    """Its callee may not have seen yet that nobody waits; one that was answered, or never sent, has ended."""
    of = limit(concurrency=1, margin_s=0.5)
    for finding in (OK, NOT_SENT):
        ended(of, finding)
    for n, broken in enumerate((AMBIGUOUS, None)):
        ended(of, broken, NOW + n)
        assert NOW + n + 0.5 == of.free_at(0, NOW + n)


def test_a_call_that_came_late_leaves_the_window_later() -> None:
    """Calls take a tenth of a second, and one takes longer by 40 ms: so much later it may have come; a slow one says no more than that."""
    for took_s, later_s in ((0.14, 0.04), (5.0, 2.5)):
        of = limit(requests=9, window_s=10)
        calls = [made(of) for _ in range(9)]
        for one in calls[:8]:
            one.end(OK, SILENT, NOW + 0.1, 600.0)
        calls[8].end(OK, SILENT, NOW + took_s, 600.0)
        assert pytest.approx(NOW + 10 + later_s) == of.free_at(0, NOW + 6)


def test_calls_that_came_late_together_are_as_late_as_the_last_of_them() -> None:
    """Nine that were sent at once, each a little later than usual: they do not add up."""
    of = limit(requests=18, window_s=10)
    early, late = [made(of) for _ in range(9)], [made(of, NOW + 1) for _ in range(9)]
    for calls, took_s in ((early, 0.1), (late, 0.11)):
        for one in calls:
            one.end(OK, SILENT, (NOW if calls is early else NOW + 1) + took_s, 600.0)
    assert 9 == free(of, NOW + 10)
    assert pytest.approx(NOW + 11.01) == of.free_at(0, NOW + 10)


def test_what_is_ours_of_a_limit_is_what_is_used_of_it() -> None:
    """And where nothing is ours of one quantity nobody is let through, until that changes."""
    of = limit(requests=5, concurrency=3, tokens=100, window_s=10)
    of.grant(CONCURRENCY, 1, NOW)
    assert 1 == free(of), "one at once"
    of.grant(CONCURRENCY, 3, NOW)
    of.grant(REQUESTS, 2, NOW)
    assert 1 == free(of), "two in a window"
    for dimension in (CONCURRENCY, REQUESTS, TOKENS):
        of.grant(dimension, 0, NOW)
        assert of.is_closed
        assert of.free_at(0, NOW + 100) is None
        of.grant(dimension, 50, NOW)
        assert not of.is_closed


@pytest.mark.parametrize("counting", ["window", "bucket"])
def test_no_call_holds_a_limit_for_years(counting: str) -> None:
    """A callee that tells of a million million tokens, and a request that wants as many: it counts for as long as anything else waits."""
    of = limit(counting=counting, tokens=1000, window_s=60)
    made(of, tokens=100).end(OK, Statement(tokens=10**12), NOW, 600.0)
    assert NOW < (of.free_at(1, NOW) or NOW) <= NOW + 660
    of = limit(counting=counting, tokens=1000, window_s=60)
    made(of, tokens=10**9).end(FAILED, SILENT, NOW, 600.0)
    assert NOW < (of.free_at(1, NOW) or NOW) <= NOW + 660
    of = limit(counting=counting, tokens=1000, window_s=60)
    made(of, tokens=10**9).end(OK, Statement(tokens=100), NOW, 600.0)
    assert (NOW, True) == (of.free_at(900, NOW), NOW < (of.free_at(901, NOW) or NOW))


@pytest.mark.parametrize("counting", ["window", "bucket"])
def test_what_others_have_spent_of_what_is_gained_counts_for_a_window(counting: str) -> None:
    """Whoever had it may have used it in this window; what he had not used may be used at once."""
    for spent, at_once in ((8, 0), (3, 5), (0, 8)):
        of = limit(counting=counting, requests=10, window_s=10)
        of.grant(REQUESTS, 2, NOW)
        assert 2 == free(of)
        of.grant(REQUESTS, 10, NOW + 5, spent)
        assert at_once == free(of, NOW + 5) - (counting == "bucket")
        assert 10 == free(of, NOW + 15)


def test_it_is_never_more_than_what_is_configured() -> None:
    """Whatever is granted."""
    of = limit(requests=10, concurrency=3, window_s=10)
    of.grant(REQUESTS, 70, NOW)
    of.grant(CONCURRENCY, 50, NOW)
    assert 3 == free(of)


def test_what_is_lent_ends() -> None:
    """Nobody is let through when the time is over, and who was let through before is not called either, until it is lent anew."""
    of = limit(requests=10, window_s=10)
    of.lend(NOW + 5, NOW)
    entries, losses = of.hold(0), of.losses
    assert (NOW + 4, None) == (of.free_at(0, NOW + 4), of.free_at(0, NOW + 5))
    assert (True, False) == (of.may_begin(entries, losses, NOW + 4), of.may_begin(entries, losses, NOW + 5))
    of.lend(NOW + 20, NOW + 6)
    assert of.may_begin(entries, losses, NOW + 6)
    of.grant(REQUESTS, 0, NOW + 7)
    assert not of.may_begin(entries, losses, NOW + 7)


@pytest.mark.parametrize("fields", [{"requests": 2, "window_s": 10}, {"concurrency": 2}, {"tokens": 2, "window_s": 10}])
def test_who_was_let_through_is_not_called_with_what_was_taken_away(fields: dict[str, Any]) -> None:
    """Two were let through, then one is taken: of those that are about to begin only one may; nothing was taken: both may."""
    of = limit(**fields)
    first, second, losses = of.hold(1), of.hold(1), of.losses
    assert of.may_begin(first, losses, NOW)
    assert of.may_begin(second, losses, NOW)
    of.grant(next(dimension for dimension, _, _ in of.quantities()), 1, NOW)
    for entry in first:
        of.begin(entry, NOW)
    assert not of.may_begin(second, losses, NOW)


def test_tokens_that_never_fit_into_what_is_ours_wait_for_more_of_it() -> None:
    """A call of 60 tokens with a share of 50 in 100: it lacks something. With all of it one of 200 waits until it is free."""
    of = limit(tokens=100, window_s=10)
    of.grant(TOKENS, 50, NOW)
    assert (True, False) == (of.lacks(60), of.lacks(50))
    assert of.free_at(60, NOW) is None
    of.grant(TOKENS, 100, NOW)
    made(of, NOW, 10)
    assert (NOW + 10, NOW) == (of.free_at(200, NOW), of.free_at(60, NOW))


def test_what_a_bucket_had_used_of_what_went_is_told_until_it_is_refilled() -> None:
    """Ten were used, four are left: six of them went, and are refilled by whoever has them; ours are as full as before."""
    of = limit(counting="bucket", requests=10, window_s=10)
    for _ in range(10):
        made(of, NOW)
    of.grant(REQUESTS, 4, NOW)
    assert NOW + 2.5 == of.free_at(0, NOW)
    assert [10, 5, 0] == [of.used(REQUESTS, NOW + later) for later in (0, 5, 10)]


@pytest.mark.parametrize("counting", ["window", "bucket"])
def test_what_is_told_as_spent_is_what_we_have_used_ourselves(counting: str) -> None:
    """What others had spent of a gained part is theirs to tell; it takes nothing from what we have used since, however it was refilled."""
    of = limit(counting=counting, requests=100, window_s=10)
    of.grant(REQUESTS, 90, NOW)
    of.grant(REQUESTS, 100, NOW, 10)
    assert 0 == of.used(REQUESTS, NOW)
    for _ in range(60):
        made(of, NOW + 5)
    assert 60 == of.used(REQUESTS, NOW + 5)
    of.grant(REQUESTS, 50, NOW + 5)
    of.grant(REQUESTS, 100, NOW + 5)
    assert 60 == of.used(REQUESTS, NOW + 5)


def test_what_is_said_of_limits_is_read_from_what_comes() -> None:
    """Tokens as they are billed, what is left of the head; nothing where no answer came."""
    head = (("x-ratelimit-remaining-requests", "7"), ("x-ratelimit-reset-requests", "1s"))
    used = Usage(Tokens(30, 12, cache_read=20))
    assert Statement(42, {"requests": Allowance(7, 1.0)}) == statement_of(answer(200, b"{}", head), used, WALL)
    assert SILENT == statement_of(answer(200, b"{}", ()), None, WALL)
    assert SILENT == statement_of(NotSent("connect", "refused"), None, WALL) == statement_of(Ambiguous("reset", "broke"), None, WALL)
