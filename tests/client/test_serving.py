"""A callee may not wait for the lane that waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dispatcher import OwnLane, serving
from dispatcher.client.serving import refuse_own_lane
from dispatcher.core.lanes.lane_name import lane_name

CALL = {"Dispatcher-Topic": "dispatcher.requests", "dispatcher-partition": "3", "DISPATCHER-OFFSET": "10", "Dispatcher-Epoch": "1"}


def test_its_own_lane_is_refused_inside_and_only_there() -> None:
    """A new request of the lane, and one that stands behind: exit 5. Other lanes, and what stands before, are fine."""
    refuse_own_lane("dispatcher.requests", 3)
    with serving(CALL):
        for offset in (None, 10, 11):
            with pytest.raises(OwnLane) as caught:
                refuse_own_lane("dispatcher.requests", 3, offset)
            assert caught.value.exit_code == 5
        refuse_own_lane("dispatcher.requests", 3, 9)
        refuse_own_lane("dispatcher.requests", 2)
        refuse_own_lane("other.requests", 3)
    refuse_own_lane("dispatcher.requests", 3)


def test_a_worker_that_does_not_name_its_topic_counts_for_every_topic() -> None:
    """Rather a refusal too many than a callee that waits for itself."""
    with serving({"Dispatcher-Partition": "3", "Dispatcher-Offset": "10"}), pytest.raises(OwnLane):
        refuse_own_lane("other.requests", 3)


def test_calls_inside_calls_add_up() -> None:
    """Whoever answers two workers at once, one inside the other, waits for neither."""
    with serving(CALL), serving(CALL | {"dispatcher-partition": "4"}):
        for partition in (3, 4):
            with pytest.raises(OwnLane):
                refuse_own_lane("dispatcher.requests", partition)


def test_a_lane_per_key_is_refused_for_that_key_alone() -> None:
    """Workers that have a lane for each key name it: other keys of the partition go on, and what is not known may be it."""
    with serving(CALL | {"dispatcher-lane": lane_name(b"doc:1")}):
        for offset in (None, 10, 11):
            refuse_own_lane("dispatcher.requests", 3, offset, key=b"doc:2")
            with pytest.raises(OwnLane, match="another one of it"):
                refuse_own_lane("dispatcher.requests", 3, offset, key=b"doc:1")
            with pytest.raises(OwnLane, match="a receipt says which key"):
                refuse_own_lane("dispatcher.requests", 3, offset)
        refuse_own_lane("dispatcher.requests", 3, 9, key=b"doc:1")
        refuse_own_lane("dispatcher.requests", 2, key=b"doc:1")


def test_a_lane_spans_the_topics_of_all_classes() -> None:
    """Wherever else among them a request of its key stands: offsets of two topics say nothing of each other."""
    siblings = ("d.requests.analysis", "d.requests.monitoring")
    with serving(CALL | {"Dispatcher-Topic": siblings[0], "dispatcher-lane": lane_name(b"doc:1")}):
        refuse_own_lane(siblings[1], 3, 9, key=b"doc:2", siblings=siblings)
        refuse_own_lane("other.requests", 3, 9, key=b"doc:1", siblings=siblings)
        refuse_own_lane(siblings[0], 3, 9, key=b"doc:1", siblings=siblings)
        for offset in (None, 9, 11):
            with pytest.raises(OwnLane):
                refuse_own_lane(siblings[1], 3, offset, key=b"doc:1", siblings=siblings)


def test_without_a_lanes_name_all_keys_are_one() -> None:
    """A strict partition: whatever the key."""
    with serving(CALL), pytest.raises(OwnLane):
        refuse_own_lane("dispatcher.requests", 3, key=b"doc:2")


@pytest.mark.parametrize("headers", [{}, {"Dispatcher-Partition": "3"}, {"Dispatcher-Partition": "x", "Dispatcher-Offset": "²"}])
def test_other_callers_are_no_lane(headers: dict[str, str]) -> None:
    """A service is also called by others."""
    with serving(headers):
        refuse_own_lane("dispatcher.requests", 3)


async def test_it_belongs_to_the_task() -> None:
    """A task that was made inside knows it; one beside it does not."""

    async def ask() -> bool:
        try:
            refuse_own_lane("dispatcher.requests", 3)
        except OwnLane:
            return True
        return False

    with serving(CALL):
        inside = asyncio.create_task(ask())
        elsewhere: list[bool] = []
        thread = threading.Thread(target=lambda: elsewhere.append(asyncio.run(ask())))
        thread.start()
        thread.join()
    assert (await inside, elsewhere, await ask()) == (True, [False], False)
