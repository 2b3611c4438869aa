"""A key that is paused all the while costs the others nothing: they flow past it, also when a worker is killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.coordinator import REQUEST_S
from dispatcher.adapters.kafka.group import headways
from dispatcher.core.internal.control import PAUSED, RUNNING, Command, key_target, message
from dispatcher.core.internal.parked import read_key
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.commit_note import RANGES_MAX_BYTES, decode_any
from dispatcher.core.progress.headway import Headway
from dispatcher.settings import Settings
from tests.e2e.backlog import counting, write
from tests.e2e.history import whole
from tests.e2e.stage import Stage, Worker, header, kill, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

PARTITIONS, HELD, HELD_REQUESTS = 3, "doc:held", 50
SLOW_MS = 200
# A range takes two bytes at the least, of those that Kafka takes beside a position.
RANGES_MAX = RANGES_MAX_BYTES // 2
# Of a worker: the process (80 MB), its buffers, what it knows of what is parked, and what the client library holds; seen: 381 MB. With all
# of 300,000 requests, of some 1.5 KB in memory, it would be 530 MB.
MEMORY_MAX = 450 * 1024 * 1024


class Watch:
    """What is watched while requests flow: memory of the worker that runs, and the ranges that stand beside the committed positions."""

    def __init__(self, set_up: Stage) -> None:
        self.memory = self.ranges = self.runs = 0
        self._set_up = set_up
        self._admin = clients.admin(set_up.settings)
        self._parts = [TopicPartition(set_up.settings.topics.requests, n) for n in range(PARTITIONS)]
        self.worker: Worker | None = None

    def start(self) -> Worker:
        """Start a worker and watch it."""
        self.worker = self._set_up.worker()
        self.runs += 1
        return self.worker

    def look(self) -> list[int]:
        """Look at both; gives the committed positions, none where a busy broker does not say."""
        group = self._set_up.settings.worker.group
        asked = ConsumerGroupTopicPartitions(group, self._parts)
        answer = self._admin.list_consumer_group_offsets([asked], require_stable=False, request_timeout=REQUEST_S)[group]
        try:
            found = answer.result(45)
        except (KafkaException, TimeoutError):
            self._admin = clients.admin(self._set_up.settings)
            return []
        notes = [decode_any(part.metadata) for part in found.topic_partitions or ()]
        self.ranges = max(self.ranges, *(len(note.settled) for note in notes if note is not None), 0)
        if self.worker is not None and self.worker.popen.poll() is None:
            self.memory = max(self.memory, psutil.Process(self.worker.popen.pid).memory_info().rss)
        return [part.offset for part in found.topic_partitions or ()]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [3000, pytest.param(300_000, marks=pytest.mark.soak)])
def test_others_flow_past_a_key_that_is_paused_all_the_while(settings: SettingsFactory, tmp_path: Path, count: int) -> None:
    """The commit tells of all that has ended, a kill repeats nothing but what was not committed, and the key goes on where it stood.

    Memory and the ranges beside the positions stay within their bounds, however many flow past.
    """
    with counting() as callee:
        upstreams = {"callee": {"base_url": callee.url, "allow_private": True}}
        # A small buffer, so that few requests are as many: the key would fill it, and the others stand.
        worker = {"ordering": "key", "lane_buffer_max_records": 40 if count < 10_000 else 4000}
        with stage(settings, tmp_path, partitions=PARTITIONS, worker=worker, upstreams=upstreams) as set_up:
            want(set_up.settings, PAUSED)
            write(set_up.settings, [(HELD, "/x")] * HELD_REQUESTS, upstream="callee")
            # Every twentieth is slow: what follows it ends before it, and travels in the map.
            write(set_up.settings, ((f"doc:{n % 200}", f"/x?ms={SLOW_MS * (n % 20 == 7)}") for n in range(count)), upstream="callee")
            watch = Watch(set_up)
            first = watch.start()
            eventually(lambda: watch.look() and callee.figures()["ids"] >= count // 2, 600, "half of the others are answered")
            kill(first)
            replied = whole(set_up.settings, set_up.settings.topics.replies)
            committed, parked = far(set_up.settings), aside(set_up.settings)
            second = watch.start()
            ends = sorted(set_up.positions()[1].items())
            eventually(lambda: watch.look() == [end for _, end in ends], 600, "all is committed, past the key that is paused")
            # Of the slow ones some may be parked, and come back in their time.
            eventually(lambda: callee.figures()["ids"] >= count, 600, "all others are answered")
            before = callee.figures()
            assert count == before["ids"]
            want(set_up.settings, RUNNING)
            eventually(lambda: callee.figures()["ids"] == count + HELD_REQUESTS, what="the key has gone on")
            after = callee.figures()
    again = sum(map(is_anew, before["again"].values()))
    kept = sum(len(one.settled) for one in committed.values())
    print(f"{count} past a paused key: {watch.memory >> 20} MB, at most {watch.ranges} ranges in a commit")
    print(f"{again} called again after the kill, none of them in the {kept} ranges of the map")
    assert 0 < watch.ranges <= RANGES_MAX, "more than the commit's metadata hold"
    assert watch.memory < MEMORY_MAX
    assert [] == [place for place in map(place_of, replied) if not committed[place[0]].is_settled(place[1])], "a commit tells of each reply"
    steps = [event["step"] for worker in (first, second) for event in worker.events("publish_failed")]
    assert "commit_map" not in steps, "no commit left a range out"
    assert after["again"] == before["again"], "what was parked was called once"
    # Only what was in hand, or had ended and was not committed yet: how much that is depends on how busy the machine was.
    done = {name for name in before["again"] if is_settled(name, committed) and place_in(name) not in parked}
    assert {} == {name: before["again"][name] for name in done if is_anew(before["again"][name])}


def is_settled(name: str, committed: dict[int, Headway]) -> bool:
    """Whether the log was done with the request of that id, as far as the group had committed; it may have been parked for that."""
    partition, offset = place_in(name)
    return committed[partition].is_settled(offset)


def place_in(name: str) -> tuple[int, int]:
    """The place that is the id of a request: partition and offset."""
    _, partition, offset = name.partition("@")[0].rsplit("/", 2)
    return int(partition), int(offset)


def aside(settings: Settings) -> set[tuple[int, int]]:
    """The places of what is parked: to be called from there, or called already and not answered for good."""
    found: set[tuple[int, int]] = set()
    for record in whole(settings, settings.topics.parked):
        place = read_key(record.key)
        assert place is not None
        (found.discard if record.value is None else found.add)(place[1:])
    return found


def is_anew(calls: list[str]) -> bool:
    """Whether a call of a later assignment is among these: the others are retries of answers that got lost."""
    return len({call.partition("/")[0] for call in calls}) > 1


def place_of(reply: Record) -> tuple[int, int]:
    """Where the request of a reply stands: partition and offset."""
    return int(header(reply, "dispatcher-request-partition")), int(header(reply, "dispatcher-request-offset"))


def far(settings: Settings) -> dict[int, Headway]:
    """What the group has committed, with the map."""
    cluster, topic = connect(settings, 30), settings.topics.requests
    return headways(cluster, settings, range(PARTITIONS), facts_of(cluster, [topic])[topic].topic_id)


def want(settings: Settings, state: str) -> None:
    """Say what is wanted of the key."""
    wanted = message(Command(f"{state}-1", key_target(HELD.encode()), state, "2026-11-29T10:00:00Z", "a test"), settings.topics.control)
    producer = clients.producer(settings)
    producer.produce(wanted.topic, wanted.value, wanted.key, wanted.partition, headers=list(wanted.headers))
    assert 0 == producer.flush(60)
