"""What an earlier owner parked comes back to its place: between what is older in the log and what is newer."""

from __future__ import annotations

import pytest

from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.steps import Ready, Wait
from tests.core.aside import Aside
from tests.core.keyed import KEY, ask, fail, fetch, finish, keyed, park, run, start
from tests.specimens import MONO, WALL, now, record


def parked_before(*offsets: int, wait_s: int = 0) -> Aside:
    """What an earlier owner left: these requests are parked; the first one was tried where it has to wait."""
    aside = Aside()
    lane = keyed(*offsets)
    if wait_s:
        fail(lane, wait_s=wait_s)
    park(lane, aside)
    assert aside.offsets == [*offsets]
    return aside


def test_what_is_parked_comes_before_what_was_added() -> None:
    """The log is read while the parked topic is: its records wait for the older ones."""
    aside = parked_before(1, 2)
    lane = keyed(7, 8)
    lane.restore(aside.entries(), now())
    assert (2, 2) == (len(lane), lane.parked)
    assert [1, 2, 7, 8] == run(lane, aside)


def test_a_record_whose_turn_it_seemed_to_be_goes_back_into_the_line() -> None:
    """The lane was asked before it was known what is parked."""
    aside = parked_before(1)
    lane = keyed(7, 8)
    assert isinstance(lane.next(now(), may_call=False), Ready)
    lane.restore(aside.entries(), now())
    assert 1 == lane.first_offset
    assert [1, 7, 8] == run(lane, aside)


def test_what_is_older_than_the_parked_ones_stays_before_them() -> None:
    """A busy lane keeps its first ones and parks the rest: the next owner has those first ones from the log."""
    aside = parked_before(5, 6)
    lane = keyed(2, 3, 9)
    lane.restore(aside.entries(), now())
    assert [2, 3, 5, 6, 9] == run(lane, aside)


def test_what_was_read_meanwhile_stays_between_the_parked_ones() -> None:
    """The log was read a good way before it was known what is parked: each has its place."""
    aside = parked_before(1, 5, 9)
    lane = keyed(3, 7, 8, 11)
    lane.restore(aside.entries(), now())
    assert (4, 3) == (len(lane), lane.parked)
    assert [1, 3, 5, 7, 8, 9, 11] == run(lane, aside)


@pytest.mark.parametrize("earlier", [[], [1]], ids=["none parked below the mark", "one parked below the mark"])
def test_one_that_is_admitted_comes_behind_what_was_read_before(earlier: list[int]) -> None:
    """The log was read up to where it came from: older ones of its key are here by then, newer ones come later."""
    aside = parked_before(*earlier, 5, 9)
    lane = keyed()
    entries = aside.entries()
    lane.restore(entries[: len(earlier)], now())
    lane.add(record(offset=3), MONO)
    lane.admit(entries[-2], 0)
    lane.add(record(offset=7), MONO)
    lane.add(record(offset=8), MONO)
    lane.admit(entries[-1], 0)
    lane.add(record(offset=11), MONO)
    assert (4, 2 + len(earlier)) == (len(lane), lane.parked)
    assert [*earlier, 3, 5, 7, 8, 9, 11] == run(lane, aside)


def test_one_that_is_admitted_still_waits_for_its_time() -> None:
    """Also where it stood behind others that had to be called first."""
    aside = parked_before(5, wait_s=30)
    entry = aside.entries()[0]
    lane = keyed(3)
    lane.restore([Entry(1, KEY, 0, 100, 0, "queued")], now())
    lane.admit(entry, MONO + 30)
    assert 1 == ask(lane).entries[0].offset
    lane.fetched([], [Entry(1, KEY, 0, 100, 0, "queued")], now())
    assert 3 == finish(lane)
    assert Wait(MONO + 30, "retry_after") == lane.next(now(1))
    assert [5] == fetch(lane, aside, 30)
    assert 5 == start(lane, 30)


def test_times_hold_across_processes() -> None:
    """What was to wait 30 s still does, 10 s later in a process whose monotonic clock began elsewhere; its tries are counted on."""
    aside = parked_before(5, wait_s=30)
    lane = keyed()
    later = now(10)
    lane.restore(aside.entries(), later)
    assert Wait(MONO + 30, "retry_after") == lane.next(later)
    assert WALL + 30 == aside.entries()[0].due
    assert [5] == fetch(lane, aside, 30)
    step = lane.next(now(30))
    assert 2 == getattr(step, "attempt", None)
