"""A lane that its agents share (`worker.fairness = "agent"`): whose turn it is, in memory, parked, and where a commit can carry no more."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import Asked, Journal, Known
from dispatcher.core.internal.tried import Noted, tried
from dispatcher.core.lanes.ending import Cancelled, Expired
from dispatcher.core.lanes.fair_lane_queue import FairLaneQueue
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import BUSY, IDLE, READY, Fetch, Gated, Held, Settle, Start, Wait
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.status import Reason, Status
from tests.core.aside import Aside
from tests.core.keyed import KEY, Hold, fail, fetch, finish, park, run, start
from tests.specimens import MONO, OWNER, answer, decoder, noted, now, record, settings, value

FLOOD = 1000
KEYED = decoder(settings(worker={"ordering": "key", "fairness": "agent"}))
STRICT = decoder(settings(worker={"fairness": "agent"}, agents={"heavy": {"weight": 3}}))
ROOM = Room(records=5000, size_bytes=1 << 22, unpublished_s=10)


class Tight:
    """Whether a commit can carry no more."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self) -> bool:
        return self.full


def of_agent(agent: str, offset: int) -> Record:
    """A request of an agent; of none where it is empty."""
    return record(value(**({"agent": agent} if agent else {})), offset)


def shared(*agents: str, hold: Hold | None = None, tight: Tight | None = None) -> Lane:
    """A lane of one key with a request of each of these agents, in this order, from offset 0 on."""
    lane = Lane(OWNER, KEYED, KEY, (hold or Hold()).of, queue=FairLaneQueue({}, tight or Tight()))
    for offset, agent in enumerate(agents):
        lane.add(of_agent(agent, offset), MONO, agent)
    return lane


def partition(room: Room = ROOM, settled: list[tuple[int, int]] | None = None) -> Partition:
    """A strict partition from offset 0 on, of which nothing is parked."""
    held = Partition(OWNER, 0, STRICT, room, settled or [])
    assert [] == held.restore([], now())
    return held


def accept(held: Partition, *agents: str, first: int = 0) -> Lane:
    """Requests of these agents come, each under a key of its own; the lane of the partition."""
    (lane,) = held.accept([record(value(agent=agent), first + n, key=b"doc:%d" % n) for n, agent in enumerate(agents)], MONO)
    return lane


def called(held: Partition, lane: Lane) -> tuple[int, list[Outcome]]:
    """The next call, answered: which request it was for, and what can be published of it."""
    assert held.may_start(lane)
    offset = start(lane)
    lane.answered(answer(), now(), 0.5)
    step = lane.next(now())
    assert isinstance(step, Settle)
    return offset, held.settle(step.outcome, MONO)


def settle(held: Partition, lane: Lane) -> list[Outcome]:
    """What ends without a call: what can be published of it."""
    step = lane.next(now())
    assert isinstance(step, Settle)
    return held.settle(step.outcome, MONO)


# --- turns ----------------------------------------------------------------------------------------------------------------------------


def test_a_lone_request_behind_a_flood_waits_for_the_one_in_hand() -> None:
    """A strict lane, 1,000 of one agent, one in its call: then another agent's comes, and is next."""
    held = partition()
    lane = accept(held, *["flood"] * FLOOD)
    assert [0, 1] == [called(held, lane)[0] for _ in range(2)]
    assert 2 == start(lane)
    accept(held, "lone", first=FLOOD)
    lane.answered(answer(), now(), 0.5)
    assert isinstance(lane.next(now()), Settle)
    assert [FLOOD, 3] == [called(held, lane)[0] for _ in range(2)]


def test_a_lone_request_waits_for_two_service_times_at_most() -> None:
    """It comes while the next of the flood has its turn, and waits for a slot: that one goes first."""
    lane = shared(*["flood"] * 5)
    assert [0, 1] == [finish(lane) for _ in range(2)]
    assert READY == lane.next(now(), may_call=False)
    lane.add(of_agent("lone", 9), MONO, "lone")
    assert [2, 9, 3, 4] == [finish(lane) for _ in range(4)]


def test_weights_are_shares() -> None:
    """An agent of weight 3 has three turns for one of others."""
    held = partition()
    lane = accept(held, *["heavy"] * 12, *["light"] * 12)
    turns = [called(held, lane)[0] >= 12 for _ in range(12)]
    assert [3, 3, 3] == [turns[4 * n : 4 * n + 4].count(False) for n in range(3)]


def test_requests_without_an_agent_are_one_agent() -> None:
    """Named by nothing: they take turns with the others as any agent does."""
    assert [0, 3, 1, 4, 2] == run(shared("", "", "", "a", "a"), Aside())


def test_a_retry_is_in_place() -> None:
    """While the request whose turn it is waits, no other agent's goes before it."""
    lane = shared("a", "a", "b")
    assert 0 == fail(lane, wait_s=5)
    assert isinstance(noted(lane, now(1)), Wait)
    assert [0, 2, 1] == [finish(lane, 5) for _ in range(3)]


def test_a_lane_that_is_held_starts_nothing_of_anybody() -> None:
    """Paused: no agent has its turn; let go on, they have it as before."""
    hold = Hold()
    lane = shared("a", "a", "b", hold=hold)
    assert 0 == finish(lane)
    hold.why = "paused"
    assert Held("paused") == lane.next(now())
    hold.why = ""
    assert [2, 1] == [finish(lane) for _ in range(2)]


def test_what_ends_early_costs_its_agent_nothing() -> None:
    """Of three of an agent the first two are cancelled: its third has the turn that the first would have had."""
    lane = shared("a", "a", "a", "b")
    for offset in (0, 1):
        assert isinstance(lane.end(offset, Cancelled("no"), now()), Outcome)
    assert [2, 3] == [finish(lane) for _ in range(2)]
    assert IDLE == lane.next(now())


def test_who_was_alone_owes_nothing_for_it() -> None:
    """A lane that had nothing more to do begins anew."""
    lane = shared("a", "a", "a")
    assert [0, 1, 2] == [finish(lane) for _ in range(3)]
    assert IDLE == lane.next(now())
    for offset, agent in ((5, "a"), (6, "b")):
        lane.add(of_agent(agent, offset), MONO, agent)
    assert [5, 6] == [finish(lane) for _ in range(2)]


# --- parked ---------------------------------------------------------------------------------------------------------------------------


def test_what_was_called_and_is_moved_aside_goes_on_first() -> None:
    """A flood is parked with its head, which waits; when that is due it is called again, and then the others have their turns."""
    lane, aside = shared(*["flood"] * 20, "lone"), Aside()
    assert 0 == fail(lane, wait_s=60)
    assert [*range(21)] == park(lane, aside)[0]
    assert isinstance(step := lane.next(now(59)), Wait)
    assert step == Wait(MONO + 60, "retry_after")
    asked = fetch(lane, aside, 60)
    assert ([0, 20], 16) == (asked[:2], len(asked))
    assert [0, 20, *range(1, 20)] == run(lane, aside, 60)


def test_of_a_queue_that_is_moved_those_whose_turn_is_next_stay() -> None:
    """A call takes long: of 40 of a flood and two others the next four stay, in their turn, and the last ones are among them."""
    lane, aside = shared(*["flood"] * 40, "a", "b"), Aside()
    assert 0 == start(lane)
    assert [*range(3, 40)] == park(lane, aside, keep=4)[0]
    lane.answered(answer(), now(), 0.5)
    assert isinstance(lane.next(now()), Settle)
    assert [40, 41, 1] == [finish(lane) for _ in range(3)]
    lane.add(of_agent("late", 50), MONO, "late")
    assert [50, 2, *range(3, 40)] == run(lane, aside)


def test_while_parked_ones_come_back_others_have_their_turns() -> None:
    """The flood's next is being read; who is in memory and comes before it does not wait for that."""
    lane, aside = shared("a", "a", "a"), Aside()
    park(lane, aside)
    asked = lane.next(now())
    assert isinstance(asked, Fetch)
    assert BUSY == lane.next(now())
    assert [] == lane.fetched(*aside.read(asked.entries[:1]), now())
    assert 0 == finish(lane)
    lane.add(of_agent("b", 7), MONO, "b")
    assert 7 == finish(lane)
    assert BUSY == lane.next(now())
    assert [] == lane.fetched(*aside.read(asked.entries[1:]), now())
    assert [1, 2] == [finish(lane) for _ in range(2)]


def test_what_was_sent_for_and_is_not_there_has_no_turn() -> None:
    """Gone from the parked topic: the others go on."""
    lane, aside = shared("a", "a", "b"), Aside()
    park(lane, aside)
    asked = lane.next(now())
    assert isinstance(asked, Fetch)
    assert [] == lane.fetched(*aside.read(asked.entries, lost=[0]), now())
    assert [1, 2] == [finish(lane) for _ in range(2)]


def test_a_new_owner_knows_who_asks_in_what_is_parked() -> None:
    """The agent stands in the parked request, and with it whose turn it is."""
    before, aside = shared(*["flood"] * 5, "lone", "lone"), Aside()
    park(before, aside)
    lane = shared()
    lane.restore(aside.entries(), now())
    assert [0, 5, 1, 6, 2, 3, 4] == run(lane, aside)


def test_a_new_owner_goes_on_with_what_was_called() -> None:
    """Its earlier owner has noted that it was tried: a retry is in place, whoever else would have a turn."""
    held = Partition(OWNER, 0, STRICT, ROOM)
    lane = accept(held, *"aaab")
    assert [] == held.restore([], now(), noted=Noted([tried(3, Tries(1, 1), 0.0, "backoff", now(), MONO - 5, begun=False)]))
    step = noted(lane, now())
    assert isinstance(step, Start)
    assert (3, 2) == (step.request.record.offset, step.attempt)
    lane.answered(answer(), now(), 0.5)
    assert isinstance(lane.next(now()), Settle)
    assert [0, 1, 2] == [called(held, lane)[0] for _ in range(3)]


def test_the_first_of_an_agent_that_expires_is_waited_for() -> None:
    """It may have been called, and then its end may halt the lane: nothing starts while it is read back, of no agent."""
    lane, aside = shared("a", "a", "b", "b"), Aside()
    park(lane, aside)
    asked = lane.end(2, Expired(), now())
    assert isinstance(asked, Fetch)
    assert BUSY == lane.next(now())
    (ended,) = lane.fetched(*aside.read(asked.entries), now())
    assert ended.reply is not None
    assert Status.EXPIRED is ended.reply.status
    assert [0, 3, 1] == run(lane, aside)


def test_the_second_of_an_agent_that_expires_is_not_waited_for() -> None:
    """It was never called: others go on meanwhile."""
    lane, aside = shared("a", "a", "b"), Aside()
    park(lane, aside)
    assert isinstance(lane.end(1, Expired(), now()), Fetch)
    assert [0, 2] == fetch(lane, aside)


# --- a commit that can carry no more --------------------------------------------------------------------------------------------------


def test_where_a_commit_can_carry_no_more_the_oldest_goes_first() -> None:
    """A strict lane in which the last ones had their turns, until the map is full: then the log's order, until there is room."""
    held = partition(Room(records=50, size_bytes=1 << 20, unpublished_s=10, ranges=2))
    lane = accept(held, *"aaaaaaabacadae")
    assert [0, 7, 9] == [called(held, lane)[0] for _ in range(3)]
    assert (2, True) == (held.progress.ranges, held.is_map_full)
    assert [*range(1, 7)] == [called(held, lane)[0] for _ in range(6)]
    assert not held.is_map_full
    assert [11, 8, 13, 10, 12] == [called(held, lane)[0] for _ in range(5)]
    assert 14 == held.progress.planned


def test_who_has_its_turn_and_was_not_called_gives_way_to_the_oldest() -> None:
    """Its turn came while there was room, and it waited for a slot: it goes back, or the map could never empty."""
    tight = Tight()
    lane = shared("a", "a", "a", "b", tight=tight)
    assert 0 == finish(lane)
    assert READY == lane.next(now(), may_call=False)
    assert (3, False) == (lane.first_offset, lane.is_ahead)
    tight.full = True
    assert (1, False) == (lane.first_offset, lane.is_ahead)
    assert [1, 2] == [finish(lane) for _ in range(2)]
    tight.full = False
    assert 3 == finish(lane)


def test_who_was_called_goes_on_whatever_a_commit_can_carry() -> None:
    """Older ones of its lane wait for its retry: it may start, or nothing of the lane ever would; its outcome can wait."""
    held = partition(Room(records=50, size_bytes=1 << 20, unpublished_s=10, ranges=1, map_bytes=28))
    lane = accept(held, *"aaaabaaa")
    assert 0 == called(held, lane)[0]
    assert 4 == fail(lane, wait_s=1)
    assert isinstance(lane.end(2, Cancelled("no"), now()), Outcome)
    held.progress.settle(6)
    assert held.is_map_full
    assert (4, True, True) == (lane.first_offset, lane.is_ahead, held.may_start(lane))
    assert 4 == start(lane, 1)


# --- sent again -----------------------------------------------------------------------------------------------------------------------


def finished(offset: int) -> Finished:
    """The end of a request of one id and key, at that offset."""
    return Finished("j", 0, offset, "t", "x", KEY, b"f" * 16, Status.OK, 1, 100.0, "r", 0)


@pytest.mark.parametrize(("ended", "expected"), [({7}, 7), (set(), None)])
def test_an_original_may_stand_behind_its_duplicate(ended: set[int], expected: int | None) -> None:
    """Another agent's, later in the log, had its turn first: where that has ended under this position, it is the original.

    Where somebody has moved the position back it has not, and both are executed again.
    """
    journal = Journal(3600, 100)
    journal.confirm(finished(7))
    found = journal.find(Asked("x", KEY, 3, b"f" * 16), 101.0, ended.__contains__)
    assert expected == (found.offset if isinstance(found, Known) else None)
    assert journal.find(Asked("x", KEY, 3, b"f" * 16), 101.0) is None


def test_a_duplicate_does_not_wait_for_an_original_that_waits_for_it() -> None:
    """Its end is known, and no commit can tell of it before the older one has ended: that says at once what its reply will say.

    Each reply names who asked for it. Another one of that id that asks for something else is a conflict.
    """
    held = partition(Room(records=50, size_bytes=1 << 20, unpublished_s=10, map_bytes=20))
    named = {"headers": (("ce_id", b"x"),)}
    plain, asked = record(value(agent="a"), 0), record(value(agent="a"), 1, **named)
    again, other = record(value(agent="b"), 2, **named), record(value(agent="b", path="/other"), 3, **named)
    (lane,) = held.accept([plain, asked, again, other], MONO)
    assert 0 == called(held, lane)[0]
    assert (2, []) == called(held, lane)
    duplicate, original = settle(held, lane)
    assert duplicate.reply is not None
    assert original.reply is not None
    assert (1, True, 2, False) == (
        *(duplicate.reply.record.offset, duplicate.reply.is_duplicate),
        *(original.reply.record.offset, original.reply.is_duplicate),
    )
    said = [orjson.loads(outcome.reply.message().value or b"") for outcome in (duplicate, original) if outcome.reply is not None]
    http = {"status": 200, "headers": {"content-type": "application/json"}, "body": {}}
    assert {"status": "ok", "attempts": 1, "agent": "b", "http": http} == said[1]
    assert said[1] | {"agent": "a", "duplicate": True} == said[0]
    (conflict,) = settle(held, lane)
    assert conflict.letter is not None
    assert Reason.ID_CONFLICT is conflict.letter.reason


# --- any queue ------------------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=40), st.data())
def test_every_request_has_its_turn_in_the_order_of_its_agent(agents: list[str], data: st.DataObject) -> None:
    """Whatever is parked, read back and answered in between, and however full commits are: all are called once, in order per agent."""
    tight, aside = Tight(), Aside()
    lane, order = shared(*agents, tight=tight), list[int]()
    parks = iter(data.draw(st.lists(st.sampled_from([None, None, None, 0, 1, 3]), max_size=60)))
    for _ in range(20 * len(agents)):
        tight.full = data.draw(st.booleans())
        if (keep := next(parks, None)) is not None:
            park(lane, aside, keep=keep)
        match step := noted(lane, now()):
            case Start():
                order.append(step.request.record.offset)
                lane.answered(answer(), now(), 0.5)
            case Fetch(entries):
                lane.fetched(*aside.read(entries), now())
            case Settle(outcome):
                aside.publish(outcome)
            case _:
                assert IDLE == step
                break
    assert list(range(len(agents))) == sorted(order)
    for agent in set(agents):
        mine = [offset for offset in order if agents[offset] == agent]
        assert sorted(mine) == mine


def test_whose_turn_it_is_comes_back_when_it_is_called() -> None:
    """It was parked before a limit, for a while; another agent's, whose turn is later, is read with it."""
    of = decoder(settings(worker={"ordering": "key", "fairness": "agent"}, limits={"l": {"upstream": "openai", "concurrency": 1}}))
    gate: Gate[Lane] = Gate(of.settings.upstreams, limits=of.settings.limits)
    first, second = (Lane(OWNER, of, b"k%d" % n, Hold().of, gate=gate, queue=FairLaneQueue({}, Tight())) for n in range(2))
    for lane in (first, second):
        for offset, agent in enumerate("ab"):
            lane.add(of_agent(agent, offset), MONO, agent)
    start(first)
    step = noted(second, now())
    assert isinstance(step, Gated)
    gate.stand(second, step.claim)
    gate.limits["l"].grant("concurrency", 0, MONO)
    aside = Aside()
    park(second, aside)
    assert isinstance(noted(second, now(1)), Wait)
    second.parking.hasten(now(1))
    assert [0, 1] == fetch(second, aside, 1)
