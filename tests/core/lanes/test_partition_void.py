"""Copies in the parked topic of what the log still holds: they are not executed, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.internal.parked import Entry, tombstone
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Settle, Start
from tests.specimens import MONO, OWNER, TOPIC_ID, answer, decoder, now, record, settings, settled

KEY = b"doc:1"
ROOM = Room(records=2, size_bytes=1 << 20, unpublished_s=10, park_s=0.1)
VOID = Entry(5, KEY, 3, 100, 0.0, "queued")
END = tombstone("dispatcher.parked", TOPIC_ID, 0, 5)


def partition(publishing: str) -> Partition:
    """An assignment from 5 on, whose predecessor was killed before it could commit that it has parked 5."""
    return Partition(OWNER, 5, decoder(settings(worker={"ordering": "key", "publishing": publishing})), ROOM)


def test_with_transactions_it_ends_at_once() -> None:
    """Whoever is not the owner any more commits nothing, this neither."""
    (outcome,) = partition("exactly_once").restore([VOID], now())
    assert (None, (END,)) == (outcome.reply, outcome.extra)


@pytest.mark.parametrize("is_parked_anew", [True, False])
def test_without_transactions_it_ends_with_its_request(*, is_parked_anew: bool) -> None:
    """A tombstone that a lost owner has on its way would take away what its successor has parked; behind a reply it harms nobody."""
    held = partition("at_least_once")
    assert [] == held.restore([VOID], now())
    (lane,) = held.accept([record(offset=5, key=KEY), record(offset=6, key=b"doc:2")], MONO)[:1]
    assert isinstance(lane.next(now()), Start)
    if is_parked_anew:
        lane.answered(answer(429, headers=(("retry-after", "50"),)), now(), 0.5)
        (moved,) = (outcome for outcome in held.park(now()) if outcome.parks and outcome.record is not None and outcome.record.offset == 5)
        assert [b"parked" in message.topic.encode() and message.value is not None for message in moved.extra] == [True]
    else:
        lane.answered(answer(), now(), 0.5)
        step = lane.next(now())
        assert isinstance(step, Settle)
        assert (END,) == settled(held, step.outcome, MONO).extra


def test_what_the_log_has_lost_ends_in_the_parked_topic_too() -> None:
    """It counts as settled from now on, so that the next owner would take the copy for a request that waits, and execute it late.

    What was read before it was lost is executed, and its copy ends with it.
    """
    held = partition("at_least_once")
    assert [] == held.restore([VOID, replace(VOID, offset=6), replace(VOID, offset=7)], now())
    (lane,) = held.accept([record(offset=5, key=KEY)], MONO)
    outcome = held.skip_to(7, MONO)
    assert outcome is not None
    assert ((6, 7), (tombstone("dispatcher.parked", TOPIC_ID, 0, 6),)) == (outcome.span, outcome.extra)
    assert isinstance(lane.next(now()), Start)
    lane.answered(answer(), now(), 0.5)
    step = lane.next(now())
    assert isinstance(step, Settle)
    assert (END,) == settled(held, step.outcome, MONO).extra
