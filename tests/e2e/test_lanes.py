"""Operating lanes: what is paused or halted starts nothing, whoever has the partition and whatever was before; the others go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from dispatcher.adapters.kafka.log import LogReader
from dispatcher.client import control
from dispatcher.client.lanes import Effect, Lanes, lane, partition
from dispatcher.core.internal.control import HALTED, Command, message, read_command
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.operations.lane_board import LaneRow, lane_rows, partition_rows
from dispatcher.core.operations.positions import START, Span
from tests.e2e.conftest import Run
from tests.e2e.stage import Stage, Worker, assert_all_is_well, by_request, header, kill, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

WITHIN_S = 60.0
KEY = {"ordering": "key", "report_interval_s": 0.2, "halted_max_records": 3}
UPSTREAM = {"attempts_max": 100, "backoff_base_s": 0.5, "backoff_max_s": 0.5, "breaker_failures": 0}
FAILS = "/fault/500"


@pytest.fixture
def set_up(settings: SettingsFactory, tmp_path: Path) -> Iterator[Stage]:
    """One partition, lanes per key."""
    with stage(settings, tmp_path, partitions=1, upstream=UPSTREAM, worker=KEY) as made:
        yield made


def lanes(set_up: Stage) -> Lanes:
    """The operator's hand."""
    return Lanes(set_up.settings, timeout_s=WITHIN_S)


def told(set_up: Stage, key: str, like: Callable[[LaneRow], bool]) -> LaneRow:
    """Wait until a lane is told of as it should be."""
    found: list[LaneRow] = []

    def look() -> bool:
        found[:] = [row for row in lane_rows(lanes(set_up).facts()) if row.key == key and like(row)]
        return bool(found)

    eventually(look, WITHIN_S, f"lane {key} is told of")
    return found[0]


def confirmed(effect: Effect, worker: Worker, set_up: Stage) -> bool:
    """Whether it changed something, and that worker has said that it knows."""
    return effect.changed and effect.confirmed_by == f"{set_up.settings.topics.prefix}-{worker.name}"


def test_a_paused_key_starts_nothing_across_restart_and_takeover(set_up: Stage) -> None:
    """Paused before any worker is there: the one that comes reads that first; so does its successor after a crash. The other key goes on.

    To pause once more, and to resume what runs, does nothing and says so. The two requests are called in order once it is resumed.
    """
    target = lane("doc:held")
    first = lanes(set_up).pause(target, "too many errors")
    assert (True, None, "paused") == (first.changed, first.owner, first.command and first.command.state)
    worker = set_up.worker().ready()
    replies = set_up.replies()
    set_up.submit(["doc:held", "doc:free", "doc:held", "doc:free"])
    replies.await_count(2)
    again = lanes(set_up).pause(target)
    assert (False, first.command) == (again.changed, again.command)
    seen = told(set_up, "doc:held", lambda row: row.queued == 2)
    assert ("paused", "r-0", "too many errors") == (seen.state, seen.head, seen.command and seen.command.reason)
    kill(worker)
    successor = set_up.worker().ready()
    set_up.submit(["doc:free"], prefix="later")
    replies.await_count(3)
    assert [] == set_up.calls(key="doc:held")
    assert confirmed(lanes(set_up).resume(target), successor, set_up)
    assert not lanes(set_up).resume(target).changed
    found = by_request(replies.await_count(5))
    assert {"r-0", "r-1", "r-2", "r-3", "later-0"} == set(found)
    assert ["r-0", "r-2"] == [call["id"] for call in set_up.calls(key="doc:held")]


def test_a_pause_is_effective_in_a_backoff(set_up: Stage) -> None:
    """A request between two tries is not tried again while its key is paused, and goes on where it was when it is resumed."""
    worker = set_up.worker().ready()
    replies = set_up.replies()
    set_up.submit(["doc:slow"], "/echo?fault=503&times=1000")
    eventually(lambda: set_up.calls(id="r-0", status=503), WITHIN_S, "the first try")
    assert confirmed(lanes(set_up).pause(lane("doc:slow")), worker, set_up)
    tries = told(set_up, "doc:slow", lambda row: row.attempts is not None).attempts
    # Three times the longest wait between two tries.
    set_up.submit(["doc:other"], "/echo?latency_ms=1500", prefix="other")
    replies.await_count(1)
    assert tries == len(set_up.calls(id="r-0"))
    assert tries == told(set_up, "doc:slow", lambda row: row.state == "paused").attempts
    assert confirmed(lanes(set_up).resume(lane("doc:slow")), worker, set_up)
    eventually(lambda: len(set_up.calls(id="r-0")) > (tries or 0), WITHIN_S, "the next try")


def test_a_failure_halts_its_key_until_somebody_skips(set_up: Stage) -> None:
    """The dead letter is there, its key waits and the other goes on, across a restart; skip lets it go on, as resume would.

    Three may wait there: a fourth is a dead letter at once.
    """
    worker = set_up.worker().ready()
    replies = set_up.replies()
    set_up.submit(["doc:42"], FAILS, prefix="bad", attempts_max=1, after_failure="halt_key")
    set_up.submit(["doc:42", "doc:7"])
    replies.await_count(2)
    seen = told(set_up, "doc:42", lambda row: row.state == "halted")
    assert seen.command is not None
    assert "bad-0" in seen.command.reason
    set_up.submit(["doc:42"] * 3, prefix="more")
    assert "halted_key" == value(by_request(replies.await_count(3))["more-2"])["reason"]
    worker.signal(signal.SIGTERM)
    assert 0 == worker.wait()
    assert {} == lanes(set_up).facts().reports
    assert {"bad-0", "r-1", "more-2"} == set(by_request(replies.read()))
    successor = set_up.worker().ready()
    told(set_up, "doc:42", lambda row: row.queued == 3)
    plan = lanes(set_up).plan_skip(b"doc:42")
    assert (lane("doc:42"), 3) == (plan.target, plan.behind)
    assert confirmed(lanes(set_up).skip(plan), successor, set_up)
    assert not lanes(set_up).skip(plan).changed
    found = by_request(replies.await_count(6))
    statuses = {name: header(one, "dispatcher-status") for name, one in found.items()}
    assert {"bad-0": "dead", "more-2": "dead"} | dict.fromkeys(("r-0", "r-1", "more-0", "more-1"), "ok") == statuses


def test_a_skip_lifts_only_the_halt_that_was_shown(settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request fails while it is being written: its halt stays, is told, and is what the topic keeps of that key."""
    made = settings(partitions=1)
    topic, make = made.topics.control, control.command

    def halt(name: str) -> Command:
        written = Command(name, "key:doc:42", HALTED, "2026-11-29T10:00:00Z", "a worker", name)
        control.write(made, message(written, topic), WITHIN_S)
        return written

    def late(*wanted: str, **more: Any) -> Command:
        halt("newer")
        return make(*wanted, **more)

    halt("shown")
    plan = Lanes(made).plan_skip(b"doc:42")
    monkeypatch.setattr(control, "command", late)
    effect = Lanes(made).skip(plan)
    assert (False, "newer") == (effect.changed, effect.command and effect.command.id)
    with LogReader(made, topic, WITHIN_S) as reader:
        found = [read_command(record) for record in reader.read(Span(START), until_end=True)]
    assert ["shown", "newer", None, "newer"] == [one.id if one is not None and one.state == HALTED else None for one in found]
    monkeypatch.undo()
    assert Lanes(made).skip(Lanes(made).plan_skip(b"doc:42")).changed
    assert [] == list(control.desired(made, WITHIN_S).targets())


@pytest.mark.parametrize("room", [pytest.param(4000, marks=pytest.mark.soak), 4])
def test_a_skipped_request_ends_without_a_call(set_up: Stage, room: int) -> None:
    """The first of a lane, then one by its id: cancelled, each once; those that stay are called. What has ended is not skipped.

    Where there is little room they have been parked before.
    """
    worker = set_up.worker(lane_buffer_max_records=room).ready()
    replies = set_up.replies()
    lanes(set_up).pause(lane("doc:42"))
    set_up.submit(["doc:42"] * 3)
    told(set_up, "doc:42", lambda row: (row.queued, row.parked) == ((3, 0) if room > 4 else (0, 3)))
    found = lanes(set_up).describe(lane("doc:42"))
    assert (3, 0 if room > 4 else 3, "r-0") == (found.queued, found.parked, found.head_id)
    plan = lanes(set_up).plan_skip(b"doc:42")
    assert ("r-0", 2, room == 4) == (plan.request_id, plan.behind, plan.parked)
    effect = lanes(set_up).skip(plan, "not wanted")
    assert effect.changed
    assert effect.confirmed_by
    by_id = lanes(set_up).plan_skip_request("r-2")
    assert ("r-2", 0) == (by_id.request_id, by_id.behind)
    assert lanes(set_up).skip(by_id).changed
    assert "ended" in lanes(set_up).plan_skip_request("r-0").why
    ended = by_request(replies.await_count(2))
    assert {"r-0": "cancelled", "r-2": "cancelled"} == {name: header(one, "dispatcher-status") for name, one in ended.items()}
    assert "not wanted" in value(ended["r-0"])["error"]["message"]
    assert confirmed(lanes(set_up).resume(lane("doc:42")), worker, set_up)
    assert "ok" == header(by_request(replies.await_count(3))["r-1"], "dispatcher-status")
    assert ["r-1"] == [call["id"] for call in set_up.calls()]
    assert lanes(set_up).plan_skip(b"doc:42").target is None


def test_a_paused_partition_stands_while_the_others_go_on(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """In strict mode, by the command line: nothing of it is called until it is resumed, and the board says so."""
    with stage(settings, tmp_path, partitions=2, worker={"report_interval_s": 0.2}) as set_up:
        keys = {partition_for(f"doc:{n}".encode(), 2): f"doc:{n}" for n in range(10)}
        worker = set_up.worker().ready()
        config = str(tmp_path / f"{worker.name}.json.toml")
        paused = run("--config", config, "lanes", "pause", "-p", "1", "--reason", "moving house", "--timeout", "60s")
        assert (0, "") == (paused.returncode, paused.stderr)
        assert f"partition:1 paused: worker {set_up.settings.topics.prefix}-{worker.name} knows\n" == paused.stdout
        replies = set_up.replies()
        set_up.submit([keys[1], keys[0]] * 2)
        replies.await_count(2)
        assert [] == set_up.calls(key=keys[1])
        listed = run("--config", config, "--json", "lanes", "list")
        rows = [orjson.loads(line) for line in listed.stdout.splitlines()]
        assert ["", "paused"] == [one["why"] for one in rows if one["kind"] == "partition"]
        resumed = run("--config", config, "--json", "lanes", "resume", "-p", "1", "--timeout", "60s")
        assert (0, True) == (resumed.returncode, orjson.loads(resumed.stdout)["changed"])
        assert 4 == len(by_request(replies.await_count(4)))


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_what_is_paused_stays_so_while_partitions_move(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """Workers come, end in order and are killed; a partition and a key of another one start nothing at any of them, the rest goes on."""
    with stage(settings, tmp_path, partitions=4, worker={"ordering": ordering, "report_interval_s": 0.2}) as set_up:
        keys = {partition_for(f"doc:{n}".encode(), 4): f"doc:{n}" for n in range(40)}
        lanes(set_up).pause(partition(1))
        lanes(set_up).pause(lane(keys[2]))
        replies, workers = set_up.replies(), [set_up.worker().ready()]
        for number, step in enumerate(("join", "end", "join", "kill")):
            set_up.submit([keys[n] for n in range(4)], prefix=f"r{number}")
            if step == "join":
                workers.append(set_up.worker().ready())
            elif step == "end":
                workers[0].signal(signal.SIGTERM)
                assert 0 == workers.pop(0).wait()
            else:
                kill(workers.pop(0))
            replies.await_count(2 * number + 2)
            assert [] == set_up.calls(key=keys[1]) + set_up.calls(key=keys[2])
        for target in (partition(1), lane(keys[2])):
            assert confirmed(lanes(set_up).resume(target), workers[0], set_up)
        names = [f"r{number}-{n}" for number in range(4) for n in range(4)]
        assert_all_is_well(set_up, names, replies.await_count(len(names)))


def test_without_workers_the_board_shows_what_is_certain(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Positions, lag and what is held; - where only a worker knows. Descriptions count what stands in the log."""
    with stage(settings, tmp_path, partitions=1, worker=KEY) as set_up:
        set_up.submit(["doc:42", "doc:7", "doc:42"])
        lanes(set_up).pause(lane("doc:42"))
        facts = lanes(set_up).facts()
        assert [(0, 3, None, "no_worker", 1)] == [
            (one.position, one.lag, one.held, one.why, one.paused_keys) for one in partition_rows(facts)
        ]
        assert [("doc:42", "paused", None)] == [(one.key, one.state, one.queued) for one in lane_rows(facts)]
        found = lanes(set_up).describe(lane("doc:42"))
        assert (2, True, 0, "r-0", None) == (found.queued, found.is_exact, found.parked, found.head_id, found.owner)
        assert 3 == lanes(set_up).describe(partition(0)).queued
        config = tmp_path / "cli.toml"
        config.write_text(set_up._config(None, {}))
        planned = run("--config", str(config), "lanes", "skip", "doc:42")
        assert 0 == planned.returncode, planned.stderr
        assert "request r-0 of key doc:42 ends as cancelled, 1 request waiting behind it" in planned.stdout
        assert "lanes skip --id" in planned.stdout
        refused = run("--config", str(config), "lanes", "skip", "doc:42", "--execute")
        assert 5 == refused.returncode
        assert lanes(set_up).describe(lane("doc:42")).queued == 2
