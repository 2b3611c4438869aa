"""Transactions: who is fenced and by what, what spoils one, and how each step says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.sim.contract.conftest import WorldMaker
from tests.sim.contract.member import Member
from tests.sim.contract.worlds import REPLY_MAX_BYTES, World
from tests.sim.contract.writer import Writer, step

FENCED = "_FENCED fatal"
# What a producer that has been fenced hears, step by step.
STEPS = {
    "commit": [FENCED, FENCED],
    "abort": [FENCED, FENCED],
    "send offsets": [FENCED, FENCED],
    "produce": [FENCED, "_FATAL"],
}


def _fenced(writer: Writer, what: str, group: object) -> list[str | None]:
    """Take a step in a transaction that was ended by somebody else, and then another: that one must fail too."""
    match what:
        case "commit":
            return [writer.commit(), writer.commit()]
        case "abort":
            return [writer.abort(), writer.abort()]
        case "send offsets":
            return [writer.propose({0: 1}, group), writer.commit()]
        case _:
            # Not flushed: while a fatal error waits to be raised, the client library raises SystemError out of delivery reports.
            writer.hand_over(0)
            return [writer.commit(), step(lambda: writer.hand_over(0))]


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(world: World) -> None:
    """The broker's sweep ends it: whatever the producer does next says that it is fenced, though nobody else exists."""
    writers = {what: Writer(world, what, 1.0).open().begin().write(0) for what in STEPS}
    member = Member(world).joins()
    # Four records and four markers; none of the records is seen.
    assert [] == member.reach(0, 8)
    group = member.client.consumer_group_metadata()
    assert STEPS == {what: _fenced(writer, what, group) for what, writer in writers.items()}
    assert None is Writer(world, "commit").open().begin().write(0).commit()
    assert [8] == member.reach(0, 10)


def test_a_second_producer_of_the_same_name_fences_the_first(world: World) -> None:
    """It settles what the first had open before it may begin; the first hears of it with its next step, also where it had nothing open."""
    writers = {what: Writer(world, what).open().begin().write(0) for what in STEPS}
    idle = Writer(world, "idle").open()
    heirs = [Writer(world, name).open() for name in (*STEPS, "idle")]
    member = Member(world).joins()
    assert [] == member.reach(0, 8)
    group = member.client.consumer_group_metadata()
    assert STEPS == {what: _fenced(writer, what, group) for what, writer in writers.items()}
    assert STEPS["produce"] == _fenced(idle.begin(), "produce", None)
    assert [None] * 5 == [heir.begin().write(0).commit() for heir in heirs]
    assert 5 == len(member.reach(0, 18))


def test_steps_have_their_order(world: World) -> None:
    """What is out of order is refused without harm. A transaction that holds nothing may be ended, and is ended once."""
    writer = Writer(world, "w").open()
    group = Member(world).client.consumer_group_metadata()
    assert ["_STATE"] * 4 == [writer.commit(), writer.abort(), writer.propose({0: 0}, group), writer.try_write(0)]
    assert (None, "_STATE") == (step(writer.begin), step(writer.begin))
    assert (None, "_STATE") == (writer.commit(), writer.commit())
    assert (None, "_STATE") == (writer.begin().abort(), writer.abort())
    assert (None, "_STATE") == (writer.begin().write(0).commit(), writer.commit())


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_step_that_runs_out_of_time_goes_on(make_world: WorldMaker, *, is_commit: bool) -> None:
    """Only the same step may be asked for meanwhile, and it is answered with how the first one ended. Taking a name is such a step."""
    world = make_world()
    writer = Writer(world, "w")
    assert "_TIMED_OUT retriable" == step(lambda: writer.client.init_transactions(0.0))
    assert ["_CONFLICT retriable"] * 2 == [writer.abort(), step(writer.begin)]
    writer.open()
    this, other = (writer.commit, writer.abort) if is_commit else (writer.abort, writer.commit)
    # A broker may answer before a busy machine has looked at its clock.
    transactions = next(n for n in range(1, 50) if this_runs_out(writer.begin().write(0), this))
    # Both words refuse without harm: the second one, where the step has ended before anybody asked again.
    assert {"_CONFLICT retriable", "_STATE"} >= {other(), step(writer.begin)}
    assert "_STATE" == writer.try_write(0)
    assert (None, "_STATE") == (this(), this())
    written = [2 * n for n in range(transactions)]
    assert (written if is_commit else []) == Member(world).read({0: 0}).reach(0, 2 * transactions)


def this_runs_out(_: Writer, this: Callable[[float], str | None]) -> bool:
    """Ask for a step without any time; whether it is on its way, else it is done."""
    answer = this(0.0)
    assert answer in {"_TIMED_OUT retriable", None}
    return answer is not None


def test_sent_offsets_that_run_out_of_time_are_left_behind(world: World) -> None:
    """They alone: whatever is asked for next is done, the same once more or the end."""
    writer, group = Writer(world, "w").open(), Member(world).client.consumer_group_metadata()
    Writer(world).write(0, 2)
    assert "_TIMED_OUT retriable" == writer.begin().write(1).propose({0: 1}, group, wait_s=0.0)
    assert (None, None) == (writer.abort(), step(writer.begin))
    assert "_TIMED_OUT retriable" == writer.write(1).propose({0: 2}, group, wait_s=0.0)
    assert (None, None) == (writer.propose({0: 2}, group), writer.commit())
    assert 2 == Member(world).committed(0)


def test_a_message_that_the_topic_does_not_take_spoils_its_transaction_alone(world: World) -> None:
    """The broker refuses it for its size; outside of a transaction the next message is taken, inside nothing but the abort."""
    large = b"x" * (REPLY_MAX_BYTES + 10_000)
    plain = Writer(world)
    assert "MSG_SIZE_TOO_LARGE" == plain.try_write(0, topic=world.replies, value=large)
    assert None is plain.try_write(0)
    writer = Writer(world, "w").open().begin().write(0)
    assert "MSG_SIZE_TOO_LARGE" == writer.try_write(0, topic=world.replies, value=large)
    assert "_STATE" == writer.try_write(0)
    assert ["MSG_SIZE_TOO_LARGE abortable"] * 2 == [writer.commit(), writer.commit()]
    assert (None, None) == (writer.abort(), writer.begin().write(0).commit())
    assert [0, 3] == Member(world).read({0: 0}).reach(0, 5)


def test_a_partition_that_does_not_exist_is_refused(world: World) -> None:
    """At once where the client knows the topic; where it has to ask first, as a failed delivery, which spoils the transaction."""
    known, fresh = Writer(world).write(0), Writer(world)
    assert ["_UNKNOWN_PARTITION"] * 2 == [known.try_write(9), fresh.try_write(9)]
    assert ([None], ["_UNKNOWN_PARTITION"]) == (known.reports, fresh.reports)
    assert None is fresh.try_write(0)

    writer = Writer(world, "known").open().begin().write(0)
    assert ("_UNKNOWN_PARTITION", [None], None) == (writer.try_write(9), writer.reports, writer.commit())
    writer = Writer(world, "fresh").open().begin()
    assert ("_UNKNOWN_PARTITION", ["_UNKNOWN_PARTITION"]) == (writer.try_write(9), writer.reports)
    assert ("_INCONSISTENT abortable", None) == (writer.commit(), writer.abort())


def test_positions_of_an_open_transaction_hold_up_who_asks_for_stable_ones(world: World) -> None:
    """For those partitions, members or not; until it commits, aborts, or is settled by a new producer of its name."""
    member, outsider = Member(world).joins(), Member(world)
    writer, group = Writer(world, "w").open(), member.client.consumer_group_metadata()
    assert None is writer.begin().propose({0: 0}, group)
    assert ["_TIMED_OUT"] * 2 == [step(partial(one.committed, 0, 0.5)) for one in (member, outsider)]
    assert "_TIMED_OUT" == step(lambda: outsider.client.committed([outsider.part(0), outsider.part(1)], timeout=0.5))
    assert 0 == outsider.committed(1)
    assert (None, 0) == (writer.abort(), outsider.committed(0))

    Writer(world).write(0, 3)
    assert (None, None, 1) == (writer.begin().propose({0: 1}, group), writer.commit(), member.committed(0))
    assert None is writer.begin().propose({0: 2}, group)
    Writer(world, "w").open()
    assert 1 == member.committed(0)


def test_the_later_commit_wins_not_the_later_marker(world: World) -> None:
    """A plain commit that came after a transaction's offsets stands, though the transaction commits after it."""
    Writer(world).write(0, 3)
    member, writer = Member(world).joins(), Writer(world, "w").open()
    assert None is writer.begin().propose({0: 1}, member.client.consumer_group_metadata())
    assert (None, None, 2) == (member.commit({0: 2}), writer.commit(), member.committed(0))


def test_words_beside_a_position_have_a_limit(world: World) -> None:
    """They come back as they went; too many are refused, and spoil a transaction."""
    member, writer = Member(world).joins(), Writer(world, "w").open()
    many, too_many = "x" * 4095, "x" * 4096
    assert None is member.commit({0: 0}, many)
    (found,) = member.client.committed([member.part(0)], timeout=5)
    assert (0, many) == (found.offset, found.metadata)
    assert "OFFSET_METADATA_TOO_LARGE" == step(lambda: member.commit({0: 0}, too_many))
    group = member.client.consumer_group_metadata()
    assert "OFFSET_METADATA_TOO_LARGE abortable" == writer.begin().propose({0: 0}, group, too_many)
    assert ("OFFSET_METADATA_TOO_LARGE abortable", None) == (writer.commit(), writer.abort())
