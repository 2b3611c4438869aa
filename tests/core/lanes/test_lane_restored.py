"""A lane that gets parked requests of an earlier assignment back: each before what is newer, whatever came first."""

from __future__ import annotations

import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.parked import Entry, Parked
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.lanes.steps import Fetch, Ready, Settle, Start
from tests.specimens import MONO, OWNER, answer, decoder, now, record

KEY = b"doc:1"


def order_of(lane: Lane) -> list[int]:
    """Run a lane to its end, and give the offsets that it calls."""
    called: list[int] = []
    while True:
        match lane.next(now()):
            case Fetch(entries):
                parked = [Parked(record(offset=entry.offset, key=KEY), Tries(), 0.0, "queued") for entry in entries]
                lane.fetched(parked, (), now())
            case Start(request=request):
                called.append(request.record.offset)
                lane.answered(answer(), now(), 0.5)
            case Settle():
                pass
            case _:
                return called


@pytest.mark.parametrize("key", [KEY, None], ids=["a key", "a partition"])
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked before", "not asked"])
def test_what_was_delivered_before_takes_its_place_by_age(key: bytes | None, *, is_asked: bool) -> None:
    """Records may come before it is known what is parked: one of them may be the next to be called already.

    The older ones stayed in memory when those behind them were parked, so that the log holds them still.
    """
    lane = Lane(Owner(OWNER.partition, OWNER.epoch), decoder(), key)
    for offset in (3, 4, 9):
        lane.add(record(offset=offset, key=KEY), MONO)
    if is_asked:
        assert isinstance(lane.next(now(), may_call=False), Ready)
    lane.restore([Entry(offset, KEY, offset, 100, 0.0, "queued") for offset in (5, 7)], now())
    lane.add(record(offset=10, key=KEY), MONO)
    assert [3, 4, 5, 7, 9, 10] == order_of(lane)


@pytest.mark.parametrize("key", [KEY, None], ids=["a key", "a partition"])
def test_the_next_to_be_called_goes_back_behind_what_is_older(key: bytes | None) -> None:
    """A new owner's first record of a key overtook those that were parked before it."""
    lane = Lane(Owner(OWNER.partition, OWNER.epoch), decoder(), key)
    lane.add(record(offset=9, key=KEY), MONO)
    assert isinstance(lane.next(now(), may_call=False), Ready)
    lane.restore([Entry(5, KEY, 0, 100, 0.0, "queued")], now())
    assert [5, 9] == order_of(lane)
