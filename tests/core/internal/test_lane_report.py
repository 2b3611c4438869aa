"""What a worker tells of its lanes: read back as written, bounded, the worst first, and nothing foreign taken for a report."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.internal.lane_report import (
    LANES_MAX,
    REPORT_MAX_BYTES,
    LaneReport,
    PartitionReport,
    Weight,
    WorkerReport,
    decode,
    encode,
    notable,
    tombstone,
)

TOPIC = "dispatcher.workers"
LANE = LaneReport(
    key="doc:42",
    why="retry_after",
    until=1_795_946_400.5,
    calling=False,
    queued=3,
    parked=2,
    head="dispatcher.requests/3/41@AbCdEfGh",
    offset=41,
    attempts=2,
    waited_s=12.5,
)
PARTITION = PartitionReport(3, 1_795_946_400, 41, 5, 1, 2, 4, "", (LANE,))
REPORT = WorkerReport("a-0", "2026-11-29T10:00:00.000Z", "key", 2.0, 17, (PARTITION,))


def test_a_report_is_read_back() -> None:
    """Whole, under its slot's name; a key that is not text too."""
    odd = replace(
        REPORT, partitions=(replace(PARTITION, notable=(replace(LANE, key={"base64": "/w=="}, until=None, head=None, offset=None),)),)
    )
    for report in (REPORT, odd):
        message = report.message(TOPIC)
        assert (TOPIC, 0, b"a-0") == (message.topic, message.partition, message.key)
        assert report == decode(message.value)


def test_an_orderly_end_leaves_nothing() -> None:
    """A tombstone of the slot, which is no report."""
    assert (TOPIC, b"a-0", None) == ((ended := tombstone("a-0", TOPIC)).topic, ended.key, ended.value)
    assert decode(None) is None


@pytest.mark.parametrize("content", [b"", b"null", b"{}", b"[1]", b"\xff", b'{"slot":"a"}', b'{"v":2}', encode(REPORT)[:-1]])
def test_foreign_records_are_no_reports(content: bytes) -> None:
    """Another tool's, or broken."""
    assert decode(content) is None


def test_a_later_version_may_add_fields() -> None:
    """They are passed over; a change of `v` is another format, and no report to us."""
    later = orjson.loads(encode(REPORT)) | {"more": 1}
    later["partitions"][0]["notable"][0]["more"] = [1]
    assert REPORT == decode(orjson.dumps(later))
    assert decode(orjson.dumps(later | {"v": 2})) is None


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 1024))
def test_a_report_is_bounded(partitions: int, lanes: int, key_length: int) -> None:
    """Any number of partitions with any number of lanes of the longest keys: the first lanes are kept, and every partition has a row."""
    lane = replace(LANE, key="k" * key_length, head="i" * 200)
    whole = replace(REPORT, partitions=tuple(replace(PARTITION, partition=n, notable=(lane,) * lanes) for n in range(partitions)))
    content = encode(whole)
    found = decode(content)
    assert found is not None
    assert len(content) <= REPORT_MAX_BYTES
    assert list(range(partitions)) == [each.partition for each in found.partitions]
    assert all(len(each.notable) <= LANES_MAX for each in found.partitions)


def test_too_many_partitions_are_cut() -> None:
    """A worker of ten thousand partitions still tells of some, within the bound."""
    content = encode(replace(REPORT, partitions=(PARTITION,) * 10_000))
    found = decode(content)
    assert found is not None
    assert 0 < len(found.partitions) < 10_000
    assert len(content) <= REPORT_MAX_BYTES


WEIGHTS = st.builds(Weight, st.booleans(), st.floats(0, 1e6), st.integers(0, 10**6))


@given(st.lists(WEIGHTS, max_size=80), st.integers(1, 30))
def test_the_worst_lanes_are_told(lanes: list[Weight], most: int) -> None:
    """None twice, no more than asked for; the one that waited longest, the longest, and one that is held are among them."""
    places = list(range(len(lanes)))
    told = notable(places, lambda place: lanes[place], most)
    assert len(told) == len(set(told)) == min(most, len(lanes))
    if lanes and most >= 3:
        assert max(weight.waited_s for weight in lanes) in {lanes[place].waited_s for place in told}
        assert max(weight.queued for weight in lanes) in {lanes[place].queued for place in told}
        assert any(weight.is_held for weight in lanes) == any(lanes[place].is_held for place in told)
        assert told == sorted(told, key=lambda place: (not lanes[place].is_held, -lanes[place].waited_s, place))


def test_held_lanes_stand_first() -> None:
    """Then those that waited longest."""
    lanes = {
        "quick": Weight(is_held=False, waited_s=1, queued=9),
        "slow": Weight(is_held=False, waited_s=8, queued=1),
        "halted": Weight(is_held=True, waited_s=2, queued=1),
    }
    assert ["halted", "slow", "quick"] == notable(lanes, lanes.__getitem__)
