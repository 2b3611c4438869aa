"""The memory that partitions share: bounded together, fair to whoever holds little, and not stopped and started all the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.lanes.buffer import NOTHING, Amount, Buffer, Flow, Tap

RECORD_BYTES = 100
BOUND = 1000
OWN = Amount(10 * BOUND, 10 * BOUND * RECORD_BYTES)  # of one partition: larger, so that only the whole binds


def amount(records: int) -> Amount:
    """So many records, all of one size."""
    return Amount(records, records * RECORD_BYTES)


class World:
    """Partitions that are fetched from whenever their taps are open."""

    def __init__(self, partitions: int, own: Amount = OWN) -> None:
        self.own = own
        self.buffer = Buffer(amount(BOUND))
        self.taps = {n: Tap() for n in range(partitions)}
        self.held = dict.fromkeys(self.taps, 0)
        self.closed: set[int] = set()
        self.turns = 0
        for n in self.taps:
            self.buffer.note(n, NOTHING)

    def change(self, partition: int, records: int) -> None:
        """Deliver so many, or execute where negative; then all taps are looked at."""
        self.held[partition] = max(0, self.held[partition] + records)
        self.buffer.note(partition, amount(self.held[partition]))
        for n, tap in self.taps.items():
            match tap.turn(self.buffer.limit(n, self.own), amount(self.held[n])):
                case Flow.PAUSE:
                    assert n not in self.closed
                    self.closed.add(n)
                    self.turns += 1
                case Flow.RESUME:
                    self.closed.remove(n)
                case None:
                    pass

    def fill(self, *partitions: int, step: int = 1) -> None:
        """Deliver to these in turn until all of them are stopped."""
        while open_ones := [n for n in partitions if n not in self.closed]:
            for n in open_ones:
                self.change(n, step)


def test_one_partition_alone_takes_its_own_bound_or_half_of_all() -> None:
    """The other half is there for whoever comes."""
    world = World(12)
    world.fill(0)
    assert BOUND // 2 == world.held[0]
    small = World(12, amount(40))
    small.fill(0)
    assert 40 == small.held[0]


@pytest.mark.parametrize("partitions", [1, 2, 3, 12, 100])
def test_partitions_that_all_want_all_get_equal_parts_and_stay_within_the_bound(partitions: int) -> None:
    """Nearly all of the memory is used, and none has more than one record more than another."""
    world = World(partitions)
    world.fill(*range(partitions))
    assert max(world.held.values()) - min(world.held.values()) <= 1
    assert BOUND / 2 <= world.buffer.held.records <= BOUND


def test_a_partition_that_comes_late_is_not_starved() -> None:
    """It has its half share although one that never moves again holds half of all, and others the rest."""
    world = World(12)
    world.fill(0)
    world.fill(*range(1, 11))
    assert 11 not in world.closed
    world.fill(11)
    assert world.held[11] >= BOUND // 24


def test_bytes_bind_as_records_do() -> None:
    """A few large records fill the memory as many small ones do."""
    buffer = Buffer(amount(BOUND))
    buffer.note(0, Amount(3, BOUND * RECORD_BYTES))
    assert BOUND - 3 == buffer.limit(1, OWN).records
    assert BOUND * RECORD_BYTES // 4 == buffer.limit(1, OWN).size_bytes


def test_what_went_is_free_again() -> None:
    """A partition that was given away counts no more: neither what it held, nor as one to share with."""
    buffer = Buffer(amount(BOUND))
    buffer.note(0, amount(BOUND))
    buffer.note(1, NOTHING)
    buffer.forget(0)
    buffer.forget(0)
    assert NOTHING == buffer.held
    assert BOUND == buffer.limit(1, OWN).records


def test_all_that_drain_at_once_are_not_started_and_stopped_all_the_time() -> None:
    """Between two stops of a partition it executes half of what it held: limits that grow while all drain do not bring that forward."""
    world = World(12)
    world.fill(*range(12))
    before, full = world.turns, world.held[0]
    for _ in range(full // 2 - 1):
        for n in range(12):
            world.change(n, -1)
    assert set(range(12)) == world.closed
    assert before == world.turns


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(-300, 60)), max_size=120),
    st.sampled_from([OWN, amount(50), amount(1)]),
)
def test_whatever_comes_and_goes_memory_is_bounded_and_who_holds_little_is_fetched_from(
    partitions: int, changes: list[tuple[int, int]], own: Amount
) -> None:
    """Never much over one and a half of the bound; none is stopped that holds less than half of its share; in the end all go on."""
    world = World(partitions, own)
    share = min(own.records, BOUND // (2 * partitions))
    for n, records in changes:
        if n < partitions and (records < 0 or n not in world.closed):
            world.change(n, records)
        assert sum(world.held.values()) == world.buffer.held.records
        assert world.buffer.held.records <= BOUND * 3 / 2 + 60 * partitions
        assert all(world.held[one] * 2 > share for one in world.closed)
    for n in range(partitions):
        world.change(n, -world.held[n])
    for n in range(partitions):
        world.change(n, 0)
    assert set() == world.closed
