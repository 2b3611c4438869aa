"""What the restorer's reader sees of topics that others write: where they end, what stands there, and what comes."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.errors import PartitionAway, TopicAway
from tests.sim.contract.worlds import World
from tests.sim.contract.writer import Writer

Told = tuple[str, int, int]
# Nothing is written as late as that.
LATER_MS = 4_000_000_000_000


def test_an_open_transaction_counts_for_the_end_and_is_waited_for(world: World) -> None:
    """What a former owner has not settled may be committed yet: the reading goes on to where the log ended when it was asked."""
    plain, writer, reader = Writer(world).write(0), Writer(world, "w").open(), world.reader()
    writer.begin().write(0, 2)
    plain.write(0)
    assert {0: 4, 1: 0} == reader.ends(world.requests, [0, 1])
    found = _begun(world, reader, {0: (0, 4)}, 1)
    assert [("record", 0, 0)] == found
    assert [] == reader.step(5)
    assert None is writer.commit()
    plain.write(0)
    assert [("record", 0, 0), ("record", 0, 1), ("record", 0, 2), ("record", 0, 3), ("ended", 0, -1)] == _rest(world, reader, found)


def test_a_time_is_not_looked_for_behind_an_open_transaction(world: World) -> None:
    """A record of that time or later may stand in it: it is not before where the log is stable to. A marker has no time."""
    Writer(world).write(0, 3)
    writer, reader = Writer(world, "w").open(), world.reader()
    writer.begin().write(1, 2)
    assert {0: 0, 1: 0} == reader.since(world.requests, {0: 0, 1: 0})
    assert {0: 3, 1: 0} == reader.since(world.requests, {0: LATER_MS, 1: LATER_MS})
    assert None is writer.commit()
    world.until(lambda: reader.since(world.requests, {1: LATER_MS}) == {1: 3}, "the marker")
    assert {1: 0} == reader.since(world.requests, {1: 0})
    world.trim(0, 2)
    assert {0: 2} == reader.since(world.requests, {0: 0})


def test_what_is_aborted_is_passed_over_and_a_stop_may_lie_in_it(world: World) -> None:
    """A partition has been read when its stop is reached, whatever stands before it; one without a record takes no time."""
    writer, reader = Writer(world, "w").open(), world.reader()
    writer.begin().write(0, 3)
    assert None is writer.abort()
    world.until(lambda: reader.ends(world.requests, [0]) == {0: 4}, "the marker")
    Writer(world).write(0, 2)
    reader.begin(world.requests, {0: (0, 3), 1: (0, 0)})
    assert [("ended", 0, -1), ("ended", 1, -1)] == sorted(_rest(world, reader, []))
    reader.begin(world.requests, {0: (2, 5)})
    assert [("record", 0, 4), ("ended", 0, -1)] == _rest(world, reader, [])


def test_what_is_gone_at_the_start_is_passed_over(world: World) -> None:
    """Compaction and retention take what stood there: the rest is read."""
    Writer(world).write(0, 5)
    world.trim(0, 3)
    reader = world.reader()
    reader.begin(world.requests, {0: (1, 5)})
    assert [("record", 0, 3), ("record", 0, 4), ("ended", 0, -1)] == _rest(world, reader, [])


def test_readings_may_be_nested(world: World) -> None:
    """One that is begun while another goes on does not disturb it."""
    Writer(world).write(0, 3).write(1, 2)
    outer, inner = world.reader(), []
    outer.begin(world.requests, {0: (0, 3)})
    found = _begun(world, outer, None, 1)
    inner_reader = world.reader()
    inner_reader.begin(world.requests, {1: (0, 2)})
    inner = _rest(world, inner_reader, [])
    assert [("record", 1, 0), ("record", 1, 1), ("ended", 1, -1)] == inner
    assert [("record", 0, 0), ("record", 0, 1), ("record", 0, 2), ("ended", 0, -1)] == _rest(world, outer, found)


def test_news_are_what_is_committed_behind_an_offset(world: World) -> None:
    """Each once and in order; what is in an open transaction is none yet, and neither is what stands behind it."""
    plain, writer, reader = Writer(world).write(0, 3), Writer(world, "w").open(), world.reader()
    reader.follow(world.requests, 2)
    heard: list[int] = []

    def hears(last: int) -> bool:
        heard.extend(reader.news(0.1))
        return bool(heard) and heard[-1] >= last

    world.until(lambda: hears(2), "what stood there")
    writer.begin().write(0)
    plain.write(0)
    assert [] == reader.news(0.3)
    assert None is writer.commit()
    world.until(lambda: reader.ends(world.requests, [0]) == {0: 6}, "the marker")
    plain.write(0)
    world.until(lambda: hears(6), "all news")
    assert [2, 3, 4, 6] == heard


def _begun(world: World, reader: Any, ranges: dict[int, tuple[int, int]] | None, count: int) -> list[Told]:
    """Read until there are so many items."""
    found: list[Told] = []
    if ranges is not None:
        reader.begin(world.requests, ranges)

    def is_there() -> bool:
        found.extend(reader.step() or [])
        return len(found) >= count

    world.until(is_there, f"{count} items")
    return found


def _rest(world: World, reader: Any, found: list[Told]) -> list[Told]:
    """Read to the end; gives what was `found` before, and what came."""

    def is_over() -> bool:
        told = reader.step()
        found.extend(told or [])
        return told is None

    world.until(is_over, "the end of the reading")
    return found


def test_what_is_not_there_is_told_as_such(world: World) -> None:
    """A topic that was deleted, and one that has fewer partitions than it had: nothing that waiting would mend, and told at once."""
    reader = world.reader()
    assert {0: 0} == reader.ends(world.requests, [0])
    deleted = f"{world.requests}.deleted"
    with pytest.raises(TopicAway) as gone:
        reader.ends(deleted, [0])
    assert gone.type is TopicAway
    with pytest.raises(TopicAway):
        reader.since(deleted, {0: 0})
    with pytest.raises(PartitionAway):
        reader.ends(world.requests, [99])
    with pytest.raises(PartitionAway):
        reader.since(world.requests, {99: 0})
    assert {0: 0} == reader.ends(world.requests, [0])
