"""`lanes seek` on a real broker: what it plans, what it moves and ends, and what it refuses. Parked requests are made by hand."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.group import commit
from dispatcher.adapters.kafka.transaction import Transaction
from dispatcher.client import seek as client_seek
from dispatcher.client.lanes import Lanes, lane
from dispatcher.client.seek import Seeker
from dispatcher.core.operations.positions import END, START, Anchor, Position
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from dispatcher.errors import ConfigError, RefusedError, WaitTimeout
from tests.e2e.by_hand import Group, worked
from tests.e2e.conftest import Run
from tests.e2e.stage import ids, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def group(settings: SettingsFactory) -> Group:
    """Have it as `worked` says."""
    return worked(settings(partitions=1))


@pytest.fixture
def cli(group: Group, run: Run) -> Cli:
    """Run the program on this test's topics and group."""
    own = {"DISPATCHER_TOPICS__PREFIX": group.settings.topics.prefix, "DISPATCHER_WORKER__GROUP": group.settings.worker.group}

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*arguments, "-b", group.settings.kafka.bootstrap_servers, env=own)

    return cli


def offset(number: int) -> Position:
    """Name a place."""
    return Position(Anchor.OFFSET, number)


def test_a_seek_is_planned_then_done_and_read_back(group: Group, cli: Cli) -> None:
    """The plan counts what is executed again and what is parked; done, the position stands there, without a map, entries from it on ended.

    The same plan may be done again; planned again there is nothing to do.
    """
    planned = json.loads(cli("lanes", "seek", "-p", "0", "--to", "8", "--json").stdout)
    # 8, 10, 11, 13, 16 have ended; 9 and 14 are parked, and read from the log instead.
    (part,) = planned["partitions"]
    assert {"from": 12, "settled_above": 3, "to": 8, "again": 5, "never": 0, "exact": True}.items() <= part.items()
    assert (2, 1, 1) == (part["parked_dropped"], part["parked_kept"], part["parked_void"])
    assert (5, 2, {"key": "doc:1", "requests": 3}) == (planned["again"], planned["keys"], planned["top_keys"][0])
    assert 12 == group.headway.position, "a plan writes nothing"
    text = cli("lanes", "seek", "-p", "0", "--to", "8").stdout
    assert "5 requests of 2 keys executed again under the same ids, 0 never executed\nmost: doc:1 (3), " in text
    refused = cli("lanes", "seek", "--plan", planned["plan"], "--execute")
    assert (5, "") == (refused.returncode, refused.stdout)
    for ended in 3, 0:
        done = cli("lanes", "seek", "--plan", planned["plan"], "--execute", "-y", "--json")
        assert (0, ended) == (done.returncode, json.loads(done.stdout)["parked_ended"]), done.stderr
        assert Headway(8, CommitNote(group.facts.topic_id, 7, 41, 8)) == group.headway, "the epoch never goes back"
        assert {2} == group.entries
    assert "nothing to move\n" in cli("lanes", "seek", "-p", "0", "--to", "8").stdout


def test_what_is_passed_over_is_never_executed_and_what_is_parked_keeps_its_turn(group: Group) -> None:
    """To the end: 12, 15, 17 to 19 are passed over; parked requests stay, and the void entry does not come to life."""
    seeker = Seeker(group.settings)
    overview = seeker.plan(Position(Anchor.END))
    assert (0, 5) == (overview.again, overview.never)
    assert ((), (2, 9, 14), (18,)) == (overview.effects[0].dropped, overview.effects[0].kept, overview.effects[0].void)
    assert 1 == seeker.execute(overview.plan)
    assert (20, {2, 9, 14}) == (group.headway.position, group.entries)


def test_what_cannot_be_planned_or_changed_since_is_refused(group: Group) -> None:
    """A place that is not there; members of the group; somebody who has owned the partition since; another topic of the name."""
    seeker = Seeker(group.settings)
    with pytest.raises(ConfigError, match="offset 21 is not in partition 0"):
        seeker.plan(offset(21))
    plan = seeker.plan(offset(8)).plan
    with group.member():
        for attempt in (lambda: seeker.plan(offset(8)), lambda: seeker.execute(plan)):
            with pytest.raises(RefusedError, match="has members"):
                attempt()
        assert not commit(group.cluster, group.settings, {0: (8, "")}), "Kafka itself refuses whoever is no member"
    group.commit(12, (13, 15), (16, 17), epoch=8, transaction=1)
    with pytest.raises(RefusedError, match="not what it was"):
        seeker.execute(plan)
    assert (12, {2, 9, 14, 18}) == (group.headway.position, group.entries)


def test_somebody_who_comes_in_between_is_not_robbed(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes the partition over and leaves while a seek stands still before its commit: no tombstone of the seek counts."""
    plan = Seeker(group.settings).plan(offset(8)).plan
    write = Transaction.flush

    def slowly(self: Transaction) -> None:
        write(self)
        group.commit(12, (13, 15), (16, 17), epoch=8, transaction=1)

    monkeypatch.setattr(Transaction, "flush", slowly)
    with pytest.raises(RefusedError, match="not what it was"):
        Seeker(group.settings).execute(plan)
    assert (12, {2, 9, 14, 18}) == (group.headway.position, group.entries)


def test_a_seek_that_was_killed_before_its_last_step_is_finished_by_a_repeat(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is committed, the tombstones are not: the entries are void, and the same plan ends them, as does a new one."""
    plan = Seeker(group.settings).plan(offset(8)).plan

    class Killed(Exception):
        """Stands for SIGKILL."""

    def committed(*given: object) -> bool:
        assert commit(*given)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(client_seek, "commit", committed)
        with pytest.raises(Killed):
            Seeker(group.settings).execute(plan)
    assert (8, {2, 9, 14}) == (group.headway.position, group.entries)
    again = Seeker(group.settings).plan(offset(8))
    assert ((0, 0), (9, 14)) == ((again.again, again.never), again.effects[0].void)
    assert 2 == Seeker(group.settings).execute(plan)
    assert {2} == group.entries


def test_many_are_estimated(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reading would take too long the plan counts offsets, and says so."""
    monkeypatch.setattr(client_seek, "COUNTED_MAX", 5)
    overview = Seeker(group.settings).plan(offset(0))
    # 15 offsets are settled, and three of them parked.
    assert (12, 0, False) == (overview.again, overview.never, overview.exact)


def test_what_an_open_transaction_may_still_commit_is_waited_for(group: Group) -> None:
    """A worker that froze in a transaction may have parked what is not seen yet: nothing is planned from half of it."""
    producer = clients.producer(group.settings, transactional_id=f"{group.settings.topics.prefix}-frozen")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(group.settings.topics.parked, b"x", b"key", partition=0)
    assert 0 == producer.flush(30)
    with pytest.raises(WaitTimeout, match="open transaction hides the end of partition 0"):
        Seeker(group.settings, timeout_s=0.5).plan(offset(8))
    producer.abort_transaction(30)
    assert 5 == Seeker(group.settings).plan(offset(8)).again


@pytest.mark.soak
def test_a_worker_goes_on_where_it_was_sought_to(settings: SettingsFactory, tmp_path: Path) -> None:
    """Back to the start, with a key that a worker has parked: all that had ended is executed again, in order, what was parked once."""
    worker = {"ordering": "key", "lane_buffer_max_records": 8}
    with stage(settings, tmp_path, partitions=1, worker=worker) as set_up:
        lanes, replies = Lanes(set_up.settings, timeout_s=60), set_up.replies()
        lanes.pause(lane("doc:held"))
        first = set_up.worker().ready()
        held = set_up.submit(["doc:held"] * 4, prefix="held")
        others = set_up.submit([f"doc:{n % 5}" for n in range(30)])
        replies.await_count(len(others))
        eventually(lambda: set_up.positions()[0] == set_up.positions()[1], what="committed == end, though a key is held")
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        seeker = Seeker(set_up.settings)
        overview = seeker.plan(START)
        assert (30, 0, (0, 1, 2, 3)) == (overview.again, overview.never, overview.effects[0].dropped)
        assert 4 == seeker.execute(overview.plan)
        lanes.resume(lane("doc:held"))
        second = set_up.worker()
        replies.await_count(2 * len(others) + len(held))
        eventually(lambda: set_up.positions()[0] == set_up.positions()[1], what="committed == end")
        assert dict.fromkeys(others, 2) | dict.fromkeys(held, 1) == ids(replies.records)
        for key in ("doc:held", "doc:0", "doc:4"):
            offsets = [call["offset"] for call in set_up.calls(key=key)]
            again = offsets[len(offsets) // 2 :] if key != "doc:held" else offsets
            assert sorted(set(offsets)) == again
        second.signal(signal.SIGTERM)
        assert 0 == second.wait()
        assert seeker.plan(END).effects[0].is_nothing, "nothing is parked any more"
