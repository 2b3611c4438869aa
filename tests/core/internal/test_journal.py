"""The dedup window: which requests are duplicates, of what, for how long; how much of it is kept in memory."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import CONFLICT, Ahead, Asked, Coming, Conflict, Journal, Known
from dispatcher.core.messages.status import Status
from tests.core.internal.test_finished import finished

AT = finished().at
SAME, OTHER = finished().fingerprint, bytes(16)
WINDOW_S = 3600.0


def asked(offset: int = 50, fingerprint: bytes = SAME, redrive_id: str = "", **changed: Any) -> Asked:
    """A request with the id of the specimen, behind it."""
    names: dict[str, Any] = {"request_id": "r-1", "key": b"doc:42"} | changed
    return Asked(offset=offset, fingerprint=fingerprint, redrive_id=redrive_id, **names)


def journal(*ends: Finished, entries_max: int = 1000, **how: Any) -> Journal:
    """One that was read back."""
    made = Journal(WINDOW_S, entries_max, **how)
    for end in ends:
        made.add(end, end.at)
    return made


def found(of: Journal, request: Asked | None = None, later_s: float = 1) -> Known | Coming | Ahead | Conflict | None:
    """What is said of a request so long after the specimen has ended."""
    return of.find(request or asked(), AT + later_s)


KNOWN = Known(40, Status.OK, AT, "dispatcher.replies", 2)


def test_a_request_that_comes_again_is_known() -> None:
    """Within the window, and not a moment longer; what was never seen is nothing."""
    made = journal(finished())
    assert KNOWN == found(made)
    assert KNOWN == found(made, later_s=WINDOW_S - 0.1)
    assert found(made, later_s=WINDOW_S) is None
    assert found(Journal(WINDOW_S, 10)) is None


def test_what_the_log_has_lost_answers_a_request_that_gets_its_offset_or_an_older_one() -> None:
    """It was executed before whatever comes: only a position that was moved back makes a request stand before the end of its id."""
    before, same = asked(offset=39), asked(offset=40)
    made = journal(finished())
    assert [None, None] == [found(made, one) for one in (before, same)]
    made.lose(41)
    assert [None, None] == [found(made, one) for one in (before, same)], "the log holds it"
    made.lose(40)
    assert [KNOWN, KNOWN, KNOWN] == [found(made, one) for one in (before, same, asked())]
    made.confirm(finished(offset=41))
    assert [None, None] == [found(made, one) for one in (before, asked(offset=41))], "that one ended since, and stands in the log"


def test_the_scope_of_an_id_is_its_key() -> None:
    """The same id under another key is another request; key and id are not one text."""
    made = journal(finished())
    assert found(made, asked(key=b"doc:43")) is None
    assert found(made, asked(request_id="r-2")) is None
    assert found(made, asked(key=b"doc:42r", request_id="-1")) is None


def test_the_same_id_for_something_else_is_a_conflict() -> None:
    """Whether the first one's end is published or still on its way."""
    assert CONFLICT == found(journal(finished()), asked(fingerprint=OTHER))
    coming = journal()
    assert coming.expect(finished())
    assert CONFLICT == found(coming, asked(fingerprint=OTHER))


def test_an_end_that_is_not_published_is_waited_for() -> None:
    """Its reply cannot be read before that; what is known then is what was published."""
    made = journal()
    assert made.expect(finished())
    assert Coming(40) == found(made)
    published = finished().answered(Status.DEAD, "dispatcher.replies", 0)
    made.confirm(published)
    assert Known(40, Status.DEAD, AT, "dispatcher.replies", 0) == found(made)


@pytest.mark.parametrize("offset", [39, 40])
def test_who_moves_the_position_back_wants_it_called_again(offset: int) -> None:
    """A request is no duplicate of itself, or of a later one: its end was committed with it, so that it comes again for a reason."""
    assert found(journal(finished()), asked(offset)) is None


def test_at_least_once_a_request_is_answered_by_its_own_end() -> None:
    """A crash between reply and commit brings it again: it need not be called."""
    made = journal(finished(), is_fenced=False)
    assert KNOWN == found(made, asked(40))
    assert found(made, asked(39)) is None


@pytest.mark.parametrize("status", [Status.DEAD, Status.EXPIRED, Status.CANCELLED])
def test_what_is_redriven_is_executed_anew(status: Status) -> None:
    """A dead letter keeps its id; its redrive id says that somebody wants it executed once more, and only once."""
    made = journal(finished(status=status))
    assert found(made, asked(redrive_id="again-1")) is None
    assert Known(40, status, AT, "dispatcher.replies", 2) == found(made), "who sends again without one has asked for nothing new"
    again = finished(status=status, offset=50, redrive_id="again-1", at=AT + 1)
    made.add(again, AT + 1)
    assert Known(50, status, AT + 1, "dispatcher.replies", 2) == found(made, asked(60, redrive_id="again-1"))
    assert found(made, asked(60, redrive_id="again-2")) is None


@pytest.mark.parametrize("status", [Status.OK, Status.ERROR])
def test_what_the_callee_has_answered_is_not_redriven(status: Status) -> None:
    """Somebody else was faster: the answer is there."""
    assert Known(40, status, AT, "dispatcher.replies", 2) == found(journal(finished(status=status)), asked(redrive_id="again-1"))


def test_a_duplicate_that_is_cancelled_hides_no_answer() -> None:
    """It was no execution: what is known of the first one stays, and is all that is told."""
    cancelled = finished(status=Status.CANCELLED, calls=0, offset=60, at=AT + 2)
    known, coming = journal(finished()), journal()
    assert coming.expect(finished())
    for made in (known, coming):
        assert not made.expect(cancelled)
    assert KNOWN == found(known, asked(70))


def test_one_that_is_cancelled_before_its_original_ends_gives_way() -> None:
    """It stood behind it and ended before it: it does not answer the original, whose end is what counts, in either order."""
    cancelled = finished(status=Status.CANCELLED, calls=0, offset=60)
    made = journal()
    assert made.expect(cancelled)
    assert found(made, asked(40)) is None
    assert made.expect(finished(at=AT + 1))
    made.confirm(cancelled)
    made.confirm(finished(at=AT + 1))
    assert Known(40, Status.OK, AT + 1, "dispatcher.replies", 2) == found(made, asked(70))
    swapped = journal(finished(at=AT + 1), cancelled)
    assert Known(40, Status.OK, AT + 1, "dispatcher.replies", 2) == found(swapped, asked(70))


def test_where_all_were_cancelled_that_is_the_answer() -> None:
    """One execution, one end: whoever wants another one sends it under another id."""
    made = journal(finished(status=Status.CANCELLED, calls=0))
    assert Known(40, Status.CANCELLED, AT, "dispatcher.replies", 2) == found(made)


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    """It is counted how often that shortened the window; what is too old goes uncounted."""
    made = journal(*(finished(request_id=f"r-{n}", at=AT + n) for n in range(10)), entries_max=4)
    assert (4, 6) == (len(made), made.dropped)
    assert [n for n in range(10) if found(made, asked(request_id=f"r-{n}"))] == [6, 7, 8, 9]
    made.add(finished(request_id="late", at=AT + 5000), AT + 5000)
    assert (1, 6) == (len(made), made.dropped)


def test_what_comes_again_and_again_fills_no_memory() -> None:
    """Behind one that stays, thousands of ends of another id are one."""
    made = journal(finished(request_id="stays"), entries_max=100)
    for n in range(10_000):
        made.add(finished(status=Status.DEAD, redrive_id=f"again-{n}"), AT)
    assert 2 == len(made)
    assert 201 >= len(made._line)


def test_an_entry_takes_what_the_settings_say() -> None:
    """About 230 bytes: its row, its name, its place in a dictionary and in the line."""
    made = journal(*(finished(request_id=f"r-{n}", offset=n) for n in range(50_000)), entries_max=50_000)
    rows = sum(sys.getsizeof(row) + sys.getsizeof(name) for name, row in made._rows.items())
    per_entry = (rows + sys.getsizeof(made._rows) + sys.getsizeof(made._line)) / 50_000
    assert 180 <= per_entry <= 240, per_entry


class Machine(RuleBasedStateMachine):
    """Requests of few ids end in some order; against a list that remembers everything."""

    def __init__(self) -> None:
        super().__init__()
        self.now = AT
        self.offset = 0
        self.made = Journal(10.0, 3)
        self.ends: list[Finished] = []

    @rule(
        name=st.sampled_from(("a", "b", "c", "d", "e")),
        what=st.sampled_from((SAME, OTHER)),
        status=st.sampled_from(Status),
        redrive=st.sampled_from(("", "", "x")),
        passed_s=st.sampled_from((0.0, 1.0, 4.0)),
    )
    def come(self, name: str, what: bytes, status: Status, redrive: str, passed_s: float) -> None:
        """One comes, is judged, and where it is executed ends so."""
        self.now += passed_s
        self.offset += 1
        request = Asked(name, b"k", self.offset, what, redrive)
        live = [end for end in self.ends if end.at + 10.0 > self.now]
        last = {end.request_id: end for end in live}
        kept = dict(sorted(last.items(), key=lambda pair: self.ends.index(pair[1]))[-3:])
        expected = kept.get(name)
        if expected is not None and expected.status not in {Status.OK, Status.ERROR} and redrive and redrive != expected.redrive_id:
            expected = None
        is_known = self.made.find(request, self.now)
        if expected is None:
            assert is_known is None
            end = finished(
                request_id=name,
                key=b"k",
                offset=self.offset,
                fingerprint=what,
                status=status,
                redrive_id=redrive,
                at=self.now,
            )
            assert self.made.expect(end)
            self.made.confirm(end)
            self.ends.append(end)
        elif expected.fingerprint != what:
            assert CONFLICT == is_known
        else:
            assert Known(expected.offset, expected.status, expected.at, "dispatcher.replies", 2) == is_known

    @invariant()
    def holds_what_it_may(self) -> None:
        """Never more than that."""
        assert len(self.made) <= 3


Machine.TestCase.settings = hypothesis_settings(max_examples=200, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase
