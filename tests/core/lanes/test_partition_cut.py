"""A log that has lost its end, as a partition meets it: what is noted of lost requests is not taken for the ones that get their offsets."""

from __future__ import annotations

import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.tried import Noted, Tried, forgotten
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Settle, Start
from dispatcher.core.messages.status import Status
from tests.specimens import MONO, OWNER, TOPIC_ID, answer, decoder, now, record, settings

ROOM = Room(records=10, size_bytes=1 << 20, unpublished_s=10)
# The position is where the log ends: nothing else tells that it was longer.
LOG_END = 5
BEGUN, FAILED = Tried(5, Tries(1), begun=True), Tried(5, Tries(2, 2), 0.0, 1e12, "backoff")


def partition(ordering: str, tried: Tried, log_end: int) -> tuple[Partition, list[object]]:
    """An assignment from 5 on, to which that is told; and what is written because of that."""
    held = Partition(OWNER, LOG_END, decoder(settings(worker={"ordering": ordering})), ROOM)
    void = held.restore([], now(), noted=Noted([tried], log_end))
    return held, [message for outcome in void for message in outcome.extra]


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("tried", [BEGUN, FAILED])
def test_a_new_request_inherits_nothing_of_a_lost_one(ordering: str, tried: Tried) -> None:
    """It is called at once, as its first attempt; and the note ends, so that no later owner takes it for the new request's either."""
    held, written = partition(ordering, tried, LOG_END)
    assert [forgotten("dispatcher.state", TOPIC_ID, 0, 5)] == written
    (lane,) = held.accept([record(offset=5)], MONO)
    step = lane.next(now())
    assert isinstance(step, Start)
    assert 1 == step.attempt
    lane.answered(answer(), now(), 0.5)
    settle = lane.next(now())
    assert isinstance(settle, Settle)
    assert settle.outcome.reply is not None
    assert Status.OK is settle.outcome.reply.status


def test_a_request_that_is_there_keeps_what_is_noted_of_it() -> None:
    """The log ends right behind it."""
    held, written = partition("key", BEGUN, LOG_END + 1)
    assert [] == written
    (lane,) = held.accept([record(offset=5)], MONO)
    step = lane.next(now())
    assert isinstance(step, Start)
    assert 2 == step.attempt
