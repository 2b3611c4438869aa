"""Partitions whose log does not hold what their group would read next: each stands alone and is shown, or is read on behind the gap."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from dispatcher.adapters.kafka.admin import connect, create_missing
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.core.progress.commit_note import CommitNote
from tests.e2e import operator
from tests.e2e.kinds import key_on
from tests.e2e.stage import Stage, Worker, header, kill, stage
from tests.e2e.test_parking import WORKER, assert_one_life, let_it_go_on, park_a_key
from tests.topics import SettingsFactory
from tests.waiting import eventually

FORMER = bytes(16)  # the id of no topic
# More than a worker fetches ahead of a partition that is full.
MANY, LARGE = 60, 500_000


def fill(set_up: Stage, partition: int, count: int, *, prefix: str = "", path: str = "/echo", size: int = 0) -> list[str]:
    """Submit requests to a partition; give their ids."""
    key = key_on(partition, set_up.settings.topics.partitions).decode()
    return set_up.submit([key] * count, path, prefix=f"{prefix}p{partition}", metadata="x" * size)


def answered(set_up: Stage, names: Iterable[str]) -> None:
    """Wait until these requests have their reply each, and no other has one."""
    wanted, replies = sorted(names), set_up.replies()
    replies.await_count(len(wanted))
    assert wanted == sorted(header(record, "ce_causationid") for record in replies.read())


def told(worker: Worker, name: str) -> dict[int, tuple[str, object, object]]:
    """Name the partitions of which the log tells this: cause, position and where the log begins."""
    return {event["partition"]: (event["cause"], event.get("position"), event.get("log_start")) for event in worker.events(name)}


def value(worker: Worker, series: str) -> float:
    """Read a metric; 0 where there is none."""
    lines = worker.get("/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"dispatcher_{series} ")), 0.0)


def end(worker: Worker) -> None:
    """SIGTERM: an orderly end."""
    worker.signal(signal.SIGTERM)
    assert 0 == worker.wait(), worker.text()


def test_what_retention_removed_stops_its_partition_alone_or_is_passed(settings: SettingsFactory, tmp_path: Path) -> None:
    """Committed 5, and the log begins at 50: nothing of that partition is called, nor committed; the other one is served.

    It shows in the log, in the metrics and on `/readyz`, which stays 200: no other worker would get on with it. A worker that may goes
    on at 50, and tells how much was lost.
    """
    with stage(settings, tmp_path, partitions=2) as set_up:
        lost, others = fill(set_up, 0, 60), fill(set_up, 1, 3)
        operator.move(set_up.settings, {0: 5})
        operator.trim(set_up.settings, 0, 50)
        standing = set_up.worker().ready()
        answered(set_up, others)
        eventually(lambda: told(standing, "gap") == {0: ("retention", 5, 50)}, what="it stands")
        eventually(lambda: value(standing, 'lane_state{partition="0"}') == 4, what="it shows")
        assert 1 == value(standing, 'gaps_total{cause="retention",then="stands"}')
        assert "ok; partitions [0] stand at a gap, see the log\n" == standing.get("/readyz").text
        assert "worker.on_gap" in standing.events("gap")[0]["hint"]
        end(standing)
        assert 5 == set_up.positions()[0][0]
        going_on = set_up.worker(on_gap="continue")
        answered(set_up, [*others, *lost[50:]])
        assert {0: ("retention", 5, 50)} == told(going_on, "gap_passed")
        assert 45 == value(going_on, "gap_offsets_total") == going_on.events("gap_passed")[0]["lost"]
        eventually(lambda: {0: 60, 1: 3} == set_up.positions()[0], what="committed == end")


def test_a_log_that_is_trimmed_under_a_partition_that_is_not_read(settings: SettingsFactory, tmp_path: Path) -> None:
    """A full lane reads nothing meanwhile: what it holds is executed, what was removed is lost and counted, what came later is executed."""
    with stage(settings, tmp_path, partitions=1, worker={"lane_buffer_max_records": 2, "on_gap": "continue"}) as set_up:
        first = fill(set_up, 0, 1)
        set_up._upstream.signal(signal.SIGSTOP)
        running = set_up.worker().ready()
        eventually(lambda: value(running, 'lane_inflight{partition="0"}') == 1, what="the call that holds the lane")
        many = fill(set_up, 0, MANY, prefix="many-", size=LARGE)
        operator.trim(set_up.settings, 0, 1 + MANY)
        set_up._upstream.signal(signal.SIGCONT)
        last = fill(set_up, 0, 1, prefix="last-")
        replies = set_up.replies()
        eventually(lambda: last[0] in {header(record, "ce_causationid") for record in replies.read()}, what="it goes on")
        done = [header(record, "ce_causationid") for record in replies.records]
        (passed,) = running.events("gap_passed")
        assert [*first, *many[: passed["position"] - 1], *last] == done
        assert 1 + MANY - passed["position"] == passed["lost"] == value(running, "gap_offsets_total")
        assert 0 < passed["lost"]
        eventually(lambda: {0: 2 + MANY} == set_up.positions()[0], what="committed == end")


def test_positions_that_nobody_can_go_on_from_stop_their_partitions_alone(settings: SettingsFactory, tmp_path: Path) -> None:
    """Beyond the end, none at all, of a former topic: each stands for its reason, and the fourth partition is served.

    `on_gap = "continue"` reads the new topic from its start, and no other: between the edges of a log only a person can choose.
    """
    with stage(settings, tmp_path, init=False, partitions=4) as set_up:
        create_missing(connect(set_up.settings, 30), set_up.settings)
        names = {n: fill(set_up, n, 3) for n in range(4)}
        operator.move(set_up.settings, {0: 7, 3: 0})
        operator.move(set_up.settings, {2: 2}, CommitNote(FORMER, 1, 1, 2).encode())
        standing = set_up.worker().ready()
        answered(set_up, names[3])
        gaps = {0: ("beyond_end", 7, 0), 1: ("no_position", None, None), 2: ("former_topic", 2, None)}
        eventually(lambda: told(standing, "gap") == gaps, what="all three stand")
        assert "partitions [0, 1, 2] stand" in standing.get("/readyz").text
        end(standing)
        going_on = set_up.worker(on_gap="continue").ready()
        answered(set_up, names[2] + names[3])
        eventually(lambda: told(going_on, "gap").keys() == {0, 1}, what="the other two stand")
        assert {2: ("former_topic", 2, 0)} == told(going_on, "gap_passed")
        end(going_on)
        assert {0: 7, 2: 3, 3: 3} == {n: position for n, position in set_up.positions()[0].items() if position >= 0}


def test_a_parked_request_outlives_its_record(settings: SettingsFactory, tmp_path: Path) -> None:
    """Its place in the log is committed past and trimmed away while it waits: what was moved aside is all that is needed to call it."""
    with stage(settings, tmp_path, partitions=1, worker=WORKER) as set_up:
        replies = set_up.replies()
        first = set_up.worker()
        names = park_a_key(set_up, replies)
        eventually(lambda: set_up.positions()[0] == set_up.positions()[1], what="committed == end")
        kill(first)
        operator.trim(set_up.settings, 0, set_up.positions()[1][0])
        set_up.worker()
        let_it_go_on(set_up, replies, names)
        assert_one_life(set_up, replies, names)


@pytest.mark.soak
def test_a_topic_that_was_made_anew_while_nobody_looked_is_read_from_its_start(settings: SettingsFactory, tmp_path: Path) -> None:
    """Kafka drops the group's positions with the topic: a worker says what to do, and nothing of the new one is skipped after that."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        topics = set_up.settings.topics
        old = fill(set_up, 0, 5)
        first = set_up.worker()
        answered(set_up, old)
        eventually(lambda: {0: 5} == set_up.positions()[0], what="committed == end")
        end(first)
        admin = operator.connected(set_up.settings)
        operator.delete(admin, topics.requests)
        operator.create(admin, topics.requests, 1)
        eventually(lambda: set_up.positions()[0][0] < 0, what="Kafka has dropped the position")
        new = fill(set_up, 0, 10, prefix="new-")
        lost = set_up.worker()
        assert 3 == lost.wait(), lost.text()
        assert "`dispatcher topics init`" in lost.text()
        assert {0: 0} == init_topics(set_up.settings).started
        set_up.worker()
        answered(set_up, old + new)
