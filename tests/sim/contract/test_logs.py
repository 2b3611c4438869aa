"""What readers see of logs: holes, open transactions, ends, retention; and how reading stops and goes on."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID

from tests.sim.contract.conftest import WorldMaker
from tests.sim.contract.member import Member
from tests.sim.contract.worlds import World
from tests.sim.contract.writer import Writer, step


def test_markers_and_aborted_records_are_holes_and_the_end_lies_behind_them(world: World) -> None:
    """Committed records are seen at their offsets; ends are told behind trailing markers, which hold no record."""
    plain, writer = Writer(world), Writer(world, "w").open()
    reader = Member(world).read({0: 0})
    assert [] == reader.reach(0, 0)
    writer.begin().write(0, 2)
    assert None is writer.commit()
    assert [0, 1] == reader.reach(0, 3)
    writer.begin().write(0, 2)
    assert None is writer.abort()
    assert [0, 1] == reader.reach(0, 6)
    plain.write(0)
    assert [0, 1, 6] == reader.reach(0, 7)
    assert (None, 7) == (reader.commit({0: 7}, "text"), reader.committed(0))
    assert [0, 1, 6] == Member(world).read({0: 0}).reach(0, 7)


def test_an_open_transaction_hides_what_stands_behind_it(world: World) -> None:
    """The end that readers of committed records see is the last stable offset; the watermark is where the log ends all the same."""
    plain, writer = Writer(world).write(0), Writer(world, "w").open()
    writer.begin().write(0)
    plain.write(0, 2)
    reader = Member(world)
    assert (OFFSET_INVALID, OFFSET_INVALID) == reader.client.get_watermark_offsets(reader.part(0), cached=True)
    assert [0] == reader.read({0: 0}).reach(0, 1)
    assert (0, 4) == reader.client.get_watermark_offsets(reader.part(0), cached=True)
    assert None is writer.abort()
    assert [0, 2, 3] == reader.reach(0, 5)


def test_messages_of_one_idempotent_producer_stand_in_their_order(world: World) -> None:
    """Each once, however many are on their way at a time."""
    writer, values = Writer(world), [b"%d" % n for n in range(300)]
    for value in values:
        writer.hand_over(0, value=value)
    writer.client.flush(30)
    reader = Member(world).read({0: 0})
    assert list(range(300)) == reader.reach(0, 300)
    assert (values, [None] * 300) == (reader.values, writer.reports)


def test_a_position_before_the_start_of_the_log_is_an_error(world: World) -> None:
    """Retention has removed what was to be read: nothing is skipped in silence."""
    Writer(world).write(0, 5)
    world.trim(0, 3)
    assert ["_AUTO_OFFSET_RESET"] == _refused(world, 1)
    assert [3, 4] == Member(world).read({0: 3}).reach(0, 5)


def test_a_position_beyond_the_end_of_the_log_is_an_error(world: World) -> None:
    """Somebody has committed a position that does not exist."""
    Writer(world).write(0, 2)
    assert ["_AUTO_OFFSET_RESET"] == _refused(world, 7)


def test_who_was_refused_reads_on_only_where_it_is_assigned_anew(world: World) -> None:
    """Neither a seek nor a pause that ends brings it back; where the log begins and ends can be asked for."""
    Writer(world).write(0, 5)
    world.trim(0, 3)
    reader = Member(world)
    part = reader.part(0)
    reader.client.incremental_assign([reader.part(0, 1)])
    reader.poll_until(lambda: reader.errors, "the error")
    reader.client.pause([part])
    reader.client.resume([part])
    assert "_STATE" == step(lambda: reader.client.seek(reader.part(0, 3)))
    assert (3, 5) == reader.client.get_watermark_offsets(part, timeout=10, cached=False)
    _idle(reader)
    assert [] == reader.seen
    reader.errors.clear()
    reader.client.incremental_unassign([part])
    reader.client.incremental_assign([reader.part(0, 3)])
    assert [3, 4] == reader.reach(0, 5)
    assert [5] == [one.offset for one in reader.client.position([part])]


def test_where_no_position_is_given_the_committed_one_counts(make_world: WorldMaker) -> None:
    """And where none is committed, nothing is guessed."""
    world = make_world(is_started=False)
    Writer(world).write(0, 5).write(1)
    reader = Member(world)
    assert OFFSET_INVALID == reader.committed(0)
    assert ["_AUTO_OFFSET_RESET"] == _refused(world, OFFSET_INVALID)
    assert (None, 2, OFFSET_INVALID) == (reader.commit({0: 2}), reader.committed(0), reader.committed(1))
    assert [2, 3, 4] == reader.read({0: OFFSET_INVALID}).reach(0, 5)


def _refused(world: World, position: int) -> list[str]:
    reader = Member(world).read({0: position})
    reader.poll_until(lambda: reader.errors, "the error")
    assert [] == reader.seen
    return reader.errors


def test_a_log_that_loses_its_start_is_an_error_only_for_who_stands_before_it(world: World) -> None:
    """Who has read beyond the new start reads on."""
    writer = Writer(world).write(0, 5)
    reader = Member(world).read({0: 0})
    reader.reach(0, 5)
    world.trim(0, 4)
    writer.write(0, 2)
    assert [0, 1, 2, 3, 4, 5, 6] == reader.reach(0, 7)


def test_a_paused_partition_keeps_its_position(world: World) -> None:
    """What was fetched ahead is thrown away, and read again from the first record that was not returned."""
    writer = Writer(world).write(0, 5).write(1, 2)
    reader = Member(world).read({0: 0, 1: 0})
    reader.poll_until(lambda: len(reader.offsets(0)) >= 2, "two records")
    reader.client.pause([reader.part(0)])
    seen = reader.offsets(0)
    writer.write(1, 2)
    reader.reach(1, 4)
    assert seen == reader.offsets(0)
    reader.client.resume([reader.part(0)])
    assert [0, 1, 2, 3, 4] == reader.reach(0, 5)


def test_an_end_is_told_again_after_a_pause(world: World) -> None:
    """What is resumed begins anew: its end is told though nothing came."""
    Writer(world).write(0)
    reader = Member(world).read({0: 0})
    reader.reach(0, 1)
    reader.client.pause([reader.part(0)])
    reader.ends.clear()
    reader.client.resume([reader.part(0)])
    assert [0] == reader.reach(0, 1)


def test_a_sought_position_counts_while_paused_too(world: World) -> None:
    """Seek, then resume: reading goes on there. Resuming what is not paused does nothing."""
    Writer(world).write(0, 5)
    reader = Member(world).read({0: 0})
    reader.reach(0, 5)
    reader.client.pause([reader.part(0)])
    reader.client.seek(reader.part(0, 3))
    _idle(reader)
    assert [0, 1, 2, 3, 4] == reader.offsets(0)
    reader.ends.clear()
    reader.client.resume([reader.part(0)])
    assert [0, 1, 2, 3, 4, 3, 4] == reader.reach(0, 5)
    reader.client.resume([reader.part(0)])
    _idle(reader)
    assert 7 == len(reader.seen)


def test_a_pause_outlives_its_assignment(world: World) -> None:
    """Assigned again it still stands, whatever way it was given back, unless it was resumed in between."""
    Writer(world).write(0, 2).write(1)
    reader = Member(world).read({0: 0})
    reader.reach(0, 2)
    part = reader.part(0, 0)
    reader.client.pause([part])
    reader.client.unassign()
    assert "_STATE" == step(lambda: reader.client.seek(part))
    reader.read({0: 0, 1: 0}).reach(1, 1)
    _idle(reader)
    assert [0, 1] == reader.offsets(0)
    reader.client.incremental_unassign([part])
    reader.client.incremental_assign([part])
    _idle(reader)
    assert [0, 1] == reader.offsets(0)
    reader.client.incremental_unassign([part])
    reader.client.resume([part])
    reader.ends.clear()
    reader.client.incremental_assign([part])
    assert [0, 1, 0, 1] == reader.reach(0, 2)


def test_what_is_assigned_is_not_assigned_again(world: World) -> None:
    """Nor is given back what is not assigned. A pause of it is no error, and no pause."""
    Writer(world).write(0)
    reader = Member(world)
    reader.client.pause([reader.part(0)])
    assert [0] == reader.read({0: 0}).reach(0, 1)
    assert "_CONFLICT" == step(lambda: reader.client.incremental_assign([reader.part(0, 0)]))
    assert "_INVALID_ARG" == step(lambda: reader.client.incremental_unassign([reader.part(1)]))


def _idle(reader: Member) -> None:
    """Give it the time in which it would see what is there."""
    for _ in range(8):
        reader.poll()
