"""The witness judges order, overlap and repetition by the callee's own view."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.sample_upstream import behaviour, history, witness
from dispatcher.sample_upstream.history import LaneHistory
from dispatcher.sample_upstream.witness import Visit, Witness

Starts = list[tuple[int, int]]  # (epoch, offset)


def judged(starts: Starts) -> tuple[int, int]:
    """Out of order, and not started again at the end."""
    lane = LaneHistory()
    for epoch, offset in starts:
        lane.start(epoch=epoch, offset=offset)
    return lane.out_of_order, len(lane.owed)


def epochs(*offsets: tuple[int, ...]) -> Starts:
    """One tuple of offsets per epoch."""
    return [(epoch, offset) for epoch, of in enumerate(offsets, start=1) for offset in of]


@pytest.mark.parametrize("module", [behaviour, history, witness])
def test_the_examples_in_the_docstrings_hold(module: object) -> None:
    """What the documentation of the pure parts shows is what they do."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "starts",
    [
        epochs((1, 2, 3)),
        epochs((1, 1, 1, 2)),  # attempts
        epochs((1, 5, 9)),  # logs have holes
        epochs((1, 2), (1, 2, 3)),
        epochs((1, 2), (2, 3)),
        epochs((1, 2), (3, 4)),
        epochs((1, 2, 3), (2,), (2, 3, 4)),  # killed twice in a row
        epochs((1, 2, 3, 4), (3,), (3, 4)),
        epochs((1, 3), (2, 3)),  # 2 had waited unseen
        [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3)],  # the old owner did not know yet
    ],
)
def test_a_history_that_only_repeats_what_was_not_committed_is_in_order(starts: Starts) -> None:
    """Without the re-executed suffix of each owner epoch, these starts are in log order."""
    assert judged(starts) == (0, 0)


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (epochs((1, 3, 2)), (1, 0)),
        (epochs((1, 3, 2, 4)), (1, 0)),
        (epochs((1, 2, 1, 2, 3)), (1, 0)),  # the same owner does not begin again
        (epochs((1, 3), (2,)), (0, 1)),  # 3 was not re-executed, so 2 came after it
        (epochs((1, 3), (2, 4)), (1, 0)),
        (epochs((5, 6), (4, 5, 6)), (1, 0)),  # further back than anything that was uncommitted
        ([(1, 1), (1, 2), (2, 3), (1, 2)], (1, 0)),  # an old owner starts what the new one had passed
    ],
)
def test_a_start_that_overtakes_is_found(starts: Starts, expected: tuple[int, int]) -> None:
    """What comes after something younger counts once; what a new owner skips on its way back counts when it is passed."""
    assert judged(starts) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6), st.data())
def test_any_sequence_of_crashes_of_a_correct_dispatcher_is_in_order(owners: list[tuple[int, int]], data: st.DataObject) -> None:
    """Each owner starts at what is committed, goes up one by one, commits some of it and dies: in order, and nothing is owed."""
    committed, starts, furthest = 0, [], 0
    for epoch, (ran, to_commit) in enumerate(owners):
        starts += [(epoch, offset) for offset in range(committed, committed + ran) for _ in range(data.draw(st.integers(1, 2)))]
        furthest = max(furthest, committed + ran)
        committed += min(ran, to_commit)
    starts += [(len(owners), offset) for offset in range(committed, furthest + 1)]
    assert judged(starts) == (0, 0)


@given(st.integers(2, 30), st.data())
def test_any_swap_within_one_epoch_is_found(count: int, data: st.DataObject) -> None:
    """Of one owner's ascending starts, two exchanged ones are never in order."""
    first, second = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=2)))
    offsets = list(range(count))
    offsets[first], offsets[second] = offsets[second], offsets[first]
    assert judged([(1, offset) for offset in offsets])[0] >= 1


def test_the_history_of_a_lane_is_bounded() -> None:
    """A long run keeps the last starts only, and still judges a rewind within them."""
    lane = LaneHistory()
    for offset in range(history.STARTS_KEPT_MAX * 2):
        lane.start(epoch=1, offset=offset)
    assert len(lane.starts) <= history.STARTS_KEPT_MAX
    for offset in range(history.STARTS_KEPT_MAX * 2 - 10, history.STARTS_KEPT_MAX * 2 + 10):
        lane.start(epoch=2, offset=offset)
    assert (lane.out_of_order, len(lane.owed)) == (0, 0)


def test_two_open_calls_of_one_partition_overlap_and_of_two_partitions_do_not() -> None:
    """Overlaps are counted per lane, and by whether one owner made both calls."""
    seen = Witness()
    first = seen.start(Visit(partition=0, offset=1, epoch=1), 0.0)
    elsewhere = seen.start(Visit(partition=1, offset=1, epoch=1), 0.0)
    assert seen.summary()["overlaps"]["partition"] == {"same_epoch": 0, "other_epoch": 0}
    second = seen.start(Visit(partition=0, offset=2, epoch=1), 0.1)
    assert seen.summary()["overlaps"]["partition"] == {"same_epoch": 1, "other_epoch": 0}
    seen.end(second, "answered", 0.2, status=200)
    third = seen.start(Visit(partition=0, offset=1, epoch=2), 0.3)
    assert seen.summary()["overlaps"]["partition"] == {"same_epoch": 1, "other_epoch": 1}
    for number in (first, elsewhere, third):
        seen.end(number, "client_closed", 1.0)
    summary = seen.summary()
    assert (summary["open"], summary["in_flight_max"], summary["in_flight_max_by_partition"]) == (0, 3, {"0": 2, "1": 1})


def test_a_key_is_a_lane_of_its_own() -> None:
    """Two keys of one partition may be out of partition order while each is in its own; one key may not."""
    seen = Witness()
    for key, offset in (("a", 1), ("b", 3), ("a", 2)):
        seen.end(seen.start(Visit(partition=0, offset=offset, epoch=1, key=key), 0.0), "answered", 0.0, status=200)
    assert seen.summary()["out_of_order"] == {"partition": 1, "key": 0}
    seen.start(Visit(partition=0, offset=1, epoch=1, key="a"), 0.0)
    assert seen.summary()["out_of_order"] == {"partition": 2, "key": 1}
    assert seen.summary()["findings"][-1] == "key a: offset 1 started after offset 2 in epoch 1"


def test_calls_that_name_their_lane_are_judged_by_it_alone() -> None:
    """Workers with a lane for each key: order and overlap count in it, by the key where it is told, and not in the partition."""
    seen = Witness()
    for lane, offset in (("a", 1), ("b", 3), ("a", 2)):
        seen.start(Visit(partition=0, offset=offset, epoch=1, lane=lane), 0.0)
    summary = seen.summary()
    assert {"partition": 0, "key": 0} == summary["out_of_order"]
    assert 1 == summary["overlaps"]["key"]["same_epoch"]
    assert ({"0": 3}, 1, 2) == (summary["in_flight_max_by_partition"], summary["partitions"], summary["keys"])
    seen.start(Visit(partition=0, offset=2, epoch=1, lane="b", key="doc:1"), 0.0)
    assert {"partition": 0, "key": 0} == seen.summary()["out_of_order"]
    seen.start(Visit(partition=0, offset=2, epoch=1, lane="b"), 0.0)
    assert ["key b: offset 2 started after offset 3 in epoch 1"] == seen.summary()["findings"]


def test_a_repeated_answer_is_told_by_its_id_and_split_by_owner() -> None:
    """Only 2xx answers count: a refused attempt repeats nothing."""
    seen = Witness()
    for epoch, status in ((1, 503), (1, 200), (1, 200), (2, 200), (2, 200)):
        seen.end(seen.start(Visit(partition=0, offset=1, epoch=epoch, idempotency_key="r"), 0.0), "answered", 0.0, status=status)
    assert seen.summary()["repeated"] == {"same_epoch": 2, "other_epoch": 1}
    assert seen.summary()["statuses"] == {"200": 4, "503": 1}


def test_events_are_bounded_and_the_summary_is_not() -> None:
    """With room for three events the newest three are kept, and every call is judged."""
    seen = Witness(events_max=3)
    for offset in range(5):
        seen.end(seen.start(Visit(partition=0, offset=offset, epoch=1, key="k"), float(offset)), "answered", offset + 0.5, status=200)
    assert [(event["event"], event["t_s"]) for event in seen.events()] == [("end", 3.5), ("start", 4.0), ("end", 4.5)]
    assert (seen.summary()["calls"], seen.summary()["events_dropped"]) == (5, 7)


def test_a_reset_forgets_and_calls_open_across_it_do_not_disturb() -> None:
    """After a reset only what began since counts."""
    seen = Witness()
    old = seen.start(Visit(partition=0, offset=9, epoch=9), 0.0)
    seen.reset()
    new = seen.start(Visit(partition=0, offset=1, epoch=1), 1.0)
    assert new != old
    seen.end(old, "answered", 2.0, status=200)
    summary = seen.summary()
    assert (summary["calls"], summary["open"], summary["endings"], summary["out_of_order"]["partition"]) == (1, 1, {}, 0)


def test_a_call_without_position_is_counted_and_not_judged() -> None:
    """A caller that is no dispatcher sends no position: it cannot be out of order."""
    seen = Witness()
    seen.start(Visit(), 0.0)
    assert (seen.summary()["without_position"], seen.summary()["out_of_order"]["partition"]) == (1, 0)
