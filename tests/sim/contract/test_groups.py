"""Groups in the three protocols: which callbacks come when, and whose commits are taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dispatcher.adapters.kafka.clients import GroupProtocol
from tests.sim.contract.conftest import WorldMaker
from tests.sim.contract.member import Member
from tests.sim.contract.worlds import World
from tests.sim.contract.writer import Writer, step

PROTOCOLS: tuple[GroupProtocol, ...] = ("consumer", "cooperative", "eager")
NOTHING: tuple[str, list[int]] = ("assigned", [])
REFUSED = "ILLEGAL_GENERATION abortable"
COMMITTED = {0: 2, 1: 3}
GONE = "UNKNOWN_MEMBER_ID abortable"
in_each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@in_each_protocol
def test_a_second_member_comes_and_goes(make_world: WorldMaker, protocol: GroupProtocol) -> None:
    """Who gives up what, and when: eager members everything, the others only what goes; a call for nothing is made, too.

    While both are in, any live member may commit any partition; when one has left, nobody may in its name.
    """
    world = make_world(protocol, partitions=4)
    first = Member(world).joins()
    alone = first.client.consumer_group_metadata()
    second = Member(world).subscribe()
    _share(world, first, second)
    gone, kept = sorted(second.owned), sorted(first.owned)
    all_ = [0, 1, 2, 3]
    told: list[tuple[str, list[int]]] = [("assigned", all_)]
    told += [("revoked", all_), ("assigned", kept)] if protocol == "eager" else [("revoked", gone)]
    assert told == _something(first.told)
    assert [("assigned", gone)] == _something(second.told)
    assert protocol == "cooperative" or NOTHING not in second.told
    _assert_who_may_commit(world, first, second, alone)

    parted = second.client.consumer_group_metadata()
    second.client.close()
    assert [("assigned", gone), ("revoked", gone)] == _something(second.told)
    _share(world, first)
    told += [("revoked", kept), ("assigned", all_)] if protocol == "eager" else [("assigned", gone)]
    assert told == _something(first.told)
    assert (protocol != "eager") == (NOTHING in first.told)
    assert [GONE, GONE] == _proposed(world, parted, (kept[0], gone[0]))


def _assert_who_may_commit(world: World, first: Member, second: Member, alone: object) -> None:
    """`alone`: the first member's metadata from before the second came."""
    kept, gone = min(first.owned), min(second.owned)
    present, other = first.client.consumer_group_metadata(), second.client.consumer_group_metadata()
    assert [None, None] == _proposed(world, present, (kept, gone))
    assert [None, None] == _proposed(world, other, (kept, gone))
    # An epoch of before is good for what has been ours since, in a group of the new kind; a generation is good for nothing else.
    assert [None if world.protocol == "consumer" else REFUSED, REFUSED] == _proposed(world, alone, (kept, gone))
    assert None is first.commit({gone: 0})
    assert "UNKNOWN_MEMBER_ID" == step(lambda: Member(world).commit({gone: 0}))
    # Who names neither member nor generation is taken unchecked; a client of the new kind names itself before it is in.
    stranger = Member(world).client.consumer_group_metadata()
    refused = GONE if world.protocol == "consumer" else None
    assert [refused, refused] == _proposed(world, stranger, (kept, gone))


def _proposed(world: World, group: object, partitions: Iterable[int]) -> list[str | None]:
    """Send offsets of each partition in a transaction of its own; gives how that ended. What is refused fails the commit as well."""
    writer, ends = Writer(world, "proposer").open(), []
    for n in partitions:
        ends.append(writer.begin().propose({n: 0}, group))
        assert ends[-1] == writer.commit()
        if ends[-1] is not None:
            assert None is writer.abort()
    return ends


@in_each_protocol
def test_a_member_that_is_thrown_out_loses_everything_and_comes_back(make_world: WorldMaker, protocol: GroupProtocol) -> None:
    """Until it hears of it, it thinks that it owns them, and its commits are refused; then they are lost, not revoked."""
    world = make_world(protocol)
    member = Member(world).joins()
    Writer(world).write(0, 5)
    member.reach(0, 5)
    assert None is member.commit({0: 3, 1: 0})
    group, name = member.client.consumer_group_metadata(), member.client.memberid()
    world.expel(member.client)
    assert [GONE] == _proposed(world, group, (0,))
    assert "UNKNOWN_MEMBER_ID" == step(lambda: member.commit({0: 4}))
    member.poll_until(lambda: len(_something(member.told)) == 3, "assigned again")
    assert [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])] == _something(member.told)
    assert [0, 1, 2, 3, 4, 3, 4] == member.reach(0, 5), "read again from what is committed"
    # A client of the new kind keeps its name; a classic one is named anew.
    assert (protocol == "consumer") == (name == member.client.memberid())
    assert [REFUSED if protocol == "consumer" else GONE] == _proposed(world, group, (0,))


@in_each_protocol
def test_who_is_no_member_commits_while_there_is_none(make_world: WorldMaker, protocol: GroupProtocol) -> None:
    """A client that has not joined: its id, and whether it may commit for a group without members."""
    world = make_world(protocol)
    outsider = Member(world)
    assert (protocol == "consumer") == bool(outsider.client.memberid())
    Writer(world).write(0, 2)
    assert (None, 1) == (outsider.commit({0: 1}), outsider.committed(0))
    assert [None] == _proposed(world, outsider.client.consumer_group_metadata(), (0,))


# A cooperative group does here what a new one does.
@pytest.mark.parametrize("protocol", ["consumer", "eager"])
def test_a_rebalance_inside_a_batch(make_world: WorldMaker, protocol: GroupProtocol) -> None:
    """Callbacks come inside `consume`; what was returned and not committed is read again by the next owner, from its committed position."""
    world = make_world(protocol)
    first, second = Member(world).joins(), Member(world)
    Writer(world).write(0, 5).write(1, 5)
    assert None is first.commit(COMMITTED)
    second.subscribe()

    def is_over() -> Any:
        first.take(0.5)
        return any(what == "revoked" for what, _ in first.told)

    world.until(is_over, "revoked")
    for n in (0, 1):
        seen = sorted(set(first.offsets(n)))
        assert not seen or (seen[0] in {0, COMMITTED[n]} and seen == list(range(seen[0], seen[-1] + 1))), "no record is passed over"
    _share(world, first, second)
    (gone,) = second.owned
    assert list(range(COMMITTED[gone], 5)) == second.reach(gone, 5)


def _share(world: World, *members: Member) -> None:
    """Poll until each has as much as the others, nothing twice, and nothing more is to come."""

    def is_so() -> bool:
        for member in members:
            member.poll()
        owned = [n for member in members for n in member.owned]
        return sorted(owned) == list(range(world.partitions)) and all(member.owned for member in members)

    world.until(is_so, "all partitions are shared out")
    for member in members * 8:
        member.poll()


def _something(told: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Leave out the calls for no partition."""
    return [one for one in told if one[1]]
