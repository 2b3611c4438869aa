"""Requests of a key that waits long are moved aside, and come back as they were: in order, once, also to another worker."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.compacted import CompactedReader
from dispatcher.core.internal.control import PAUSED, RUNNING, Command, key_target, message
from dispatcher.core.internal.parked import read_key
from dispatcher.core.messages.record import Record
from dispatcher.settings import Settings
from tests.e2e.history import assert_guarantees, judged_stage
from tests.e2e.stage import Replies, Stage, Worker, header, ids, kill, stage
from tests.sim.contract.worlds import answered
from tests.topics import SettingsFactory
from tests.waiting import eventually

WORKER = {"ordering": "key", "lane_buffer_max_records": 8, "commit_interval_ms": 0}
SLOW = "doc:slow"
OTHERS = [f"doc:{n % 10}" for n in range(100)]
# Long enough for a command to reach the worker before the refused request is due.
WAIT_S = 5


def parked(settings: Settings) -> dict[tuple[int, int], int]:
    """Name the requests that are parked now, by partition and offset, with the offset of each one's record."""
    reader, topic = CompactedReader(settings), settings.topics.parked
    ends = answered(reader.ends(topic, range(settings.topics.partitions)))
    found: dict[tuple[int, int], int] = {}
    for item in reader.read(topic, {n: (0, end) for n, end in ends.items()}):
        if isinstance(item, Record):
            key = read_key(item.key)
            assert key is not None
            if item.value is None:
                found.pop(key[1:], None)
            else:
                found[key[1:]] = item.offset
    reader.close()
    return found


def offsets(records: list[Record]) -> list[int]:
    """Tell where the requests of these replies stand."""
    return [int(header(record, "dispatcher-request-offset")) for record in records]


def want(settings: Settings, state: str) -> None:
    """Say what is wanted of the slow key."""
    wanted = message(Command(f"{state}-1", key_target(SLOW.encode()), state, "2026-11-29T10:00:00Z", "a test"), settings.topics.control)
    producer = clients.producer(settings)
    producer.produce(wanted.topic, wanted.value, wanted.key, wanted.partition, headers=list(wanted.headers))
    assert producer.flush(60) == 0


def park_a_key(set_up: Stage, replies: Replies) -> list[str]:
    """Have the requests of one key parked by the worker that runs, the first after a call, while the requests of others flow past it."""
    names = set_up.submit([SLOW], f"/echo?fault=429&retry_after={WAIT_S}&times=1", prefix="first")
    eventually(lambda: set_up.calls(id=names[0]), what="the first call")
    want(set_up.settings, PAUSED)
    names += set_up.submit([SLOW] * 5, prefix="slow")
    eventually(lambda: len(parked(set_up.settings)) == len(names), what="the key is parked")
    names += set_up.submit(OTHERS, prefix="other")
    assert sorted(names[6:]) == sorted(header(record, "ce_causationid") for record in replies.await_count(len(OTHERS)))
    return names


def let_it_go_on(set_up: Stage, replies: Replies, names: list[str]) -> None:
    """See that the next worker holds the key as the last one did, and lift that."""
    names += set_up.submit(["doc:probe"], prefix="probe")
    replies.await_count(len(OTHERS) + 1)
    assert len(OTHERS) + 2 == len(set_up.calls())
    want(set_up.settings, RUNNING)


def assert_one_life(set_up: Stage, replies: Replies, names: list[str]) -> None:
    """Every request has its one reply, each was called once but for the refused one, and that as one request: here and there."""
    replies.await_count(len(names))
    slow = [record for record in replies.read() if header(record, "ce_causationid") in names[:6]]
    assert names[:6] == [header(record, "ce_causationid") for record in slow], "in order"
    assert sorted(offsets(slow)) == offsets(slow)
    assert [2, 1, 1, 1, 1, 1] == [int(header(record, "dispatcher-attempt")) for record in slow]
    refused, again = set_up.calls(id=names[0])
    assert [1, 2] == [refused["attempt"], again["attempt"]]
    assert refused["offset"] == again["offset"] == offsets(slow)[0]
    assert again["epoch"] > refused["epoch"]
    # Two clocks were asked for the time between: to a tenth of a second they agree.
    assert again["t_s"] > refused["end_s"] + WAIT_S - 0.1
    assert len(names) + 1 == len(set_up.calls()), "nothing was called again"
    eventually(lambda: not parked(set_up.settings), what="what was parked has ended")
    eventually(lambda: len({tuple(part.items()) for part in set_up.positions()}) == 1, what="committed == end")


def test_a_parked_key_goes_on_at_the_next_worker(settings: SettingsFactory, tmp_path: Path) -> None:
    """A key that waits holds nobody else; the next worker restores its requests, in order, with what has happened to them.

    The refused one is not called before its time, and as attempt 2 of the same request; nothing else is called twice.
    """
    with stage(settings, tmp_path, partitions=1, worker=WORKER) as set_up:
        replies = set_up.replies()
        first = set_up.worker()
        names = park_a_key(set_up, replies)
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        set_up.worker()
        let_it_go_on(set_up, replies, names)
        assert_one_life(set_up, replies, names)


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_parked_key_outlives_a_kill(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """The same where the worker is killed: what it had committed, parked requests and those above the mark, is not called again."""
    with judged_stage(settings, tmp_path, partitions=1, worker=WORKER | {"publishing": publishing}) as set_up:
        replies = set_up.replies()
        first = set_up.worker()
        names = park_a_key(set_up, replies)
        eventually(lambda: set_up.positions()[0] == set_up.positions()[1], what="committed == end, though a key waits")
        kill(first)
        second = set_up.worker()
        let_it_go_on(set_up, replies, names)
        assert_one_life(set_up, replies, names)
        assert_guarantees(set_up, first, second)


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_many_keys_are_parked_while_workers_die(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """Keys that wait, in all partitions, and workers that are killed one after another: the guarantees hold, and nothing stays parked."""
    chance = Random(7)
    worker = WORKER | {"publishing": publishing, "lane_buffer_max_records": 50}
    with judged_stage(settings, tmp_path, latency_ms=5, partitions=4, worker=worker) as set_up:
        replies = set_up.replies()
        workers = [set_up.worker()]
        names: list[str] = []
        for round_ in range(3):
            for part in range(10):
                path = f"/echo?fault=429&retry_after={chance.randint(1, 4)}&times=1" if part % 2 else "/echo"
                names += set_up.submit([f"doc:{chance.randrange(60)}" for _ in range(20)], path, prefix=f"r{round_}-{part}")
            replies.await_count(len(replies.records) + 50)
            workers.append(set_up.worker())
            kill(workers[-2])
        eventually(lambda: set(names) <= set(ids(replies.read())), 180, "a reply to each")
        eventually(lambda: not parked(set_up.settings), what="what was parked has ended")
        eventually(lambda: set_up.positions()[0] == set_up.positions()[1], what="committed == end")
        if publishing == "exactly_once":
            assert {1} == set(ids(replies.read()).values())
        assert_guarantees(set_up, *workers)
        print(_tally(set_up, workers))


def _tally(set_up: Stage, workers: list[Worker]) -> dict[str, object]:
    seen = set_up.witness()
    lost = sum(len(worker.events("parked_lost")) for worker in workers)
    return {"calls": seen["calls"], "repeated": seen["repeated"], "statuses": seen["statuses"], "lost": lost}
