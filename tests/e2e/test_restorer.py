"""The restorer on a real broker: what is parked is told whole, in order and once, whatever transactions and compaction left in the log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.compacted import CompactedReader
from dispatcher.adapters.logs import logger
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry, Parked, tombstone
from dispatcher.core.internal.tried import Noted, Tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Fetch, Recall, Restore, Stop
from dispatcher.worker.restorer import Restorer
from tests.e2e.operator import configure
from tests.e2e.raw_produce import produce as produce_raw
from tests.specimens import topics_of
from tests.topics import SettingsFactory
from tests.waiting import eventually

TIMEOUT_S = 60
ID = "mZfX3kAZQ2y_-dUvVvTkPw"
Start = Callable[[Settings], "Running"]


class Running:
    """A restorer in its thread, and what it posts."""

    def __init__(self, settings: Settings) -> None:
        self._posted: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.journals: dict[int, Journal] = {}  # as they were read last
        self.inbox: SimpleQueue[object] = SimpleQueue()
        self.tried: dict[int, Iterable[Tried]] = {}  # what the last answer said is noted
        self.restorer = Restorer(
            settings,
            topics_of(settings.topics.requests, ID),
            CompactedReader(settings),
            self,
            lambda function, *args: function(*args),
            self.inbox,
            SystemClock(),
            logger(),
        )
        self._thread = Thread(target=self.restorer.run, daemon=True)
        self._thread.start()

    def commanded(self, records: list[Record]) -> None:
        self._posted.put(("commanded", records))

    def restored(self, owner: Owner, entries: list[Entry], journal: Journal | None, noted: Noted) -> None:
        if journal is not None:
            self.journals[owner.partition] = journal
        self._posted.put(("restored", (owner, entries)))
        self.tried[owner.partition] = noted.tried

    def fetched(self, owner: Owner, found: list[Parked], missing: list[Entry]) -> None:
        self._posted.put(("fetched", (owner, found, missing)))

    def recalled(self, recall: Recall, recorded: Recorded | None) -> None:
        self._posted.put(("recalled", (recall, recorded)))

    def next(self, kind: str) -> Any:
        """Wait for the next thing posted, which is of this kind."""
        got, what = self._posted.get(timeout=TIMEOUT_S)
        assert kind == got
        return what

    def is_silent(self) -> bool:
        """Tell whether nothing is posted that was not taken."""
        return self._posted.empty()

    def restore(self, partition: int = 0) -> list[Entry]:
        """Ask for the index of a partition."""
        owner = Owner(partition, 1)
        self.inbox.put(Restore(owner))
        told, entries = self.next("restored")
        assert owner == told
        return list(entries)

    def fetch(self, *entries: Entry, partition: int = 0) -> tuple[list[Parked], list[Entry]]:
        """Ask for requests."""
        self.inbox.put(Fetch(Owner(partition, 1), entries))
        _, found, missing = self.next("fetched")
        return found, missing

    def close(self) -> None:
        self.inbox.put(Stop())
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start restorers, and end them."""
    made: list[Running] = []

    def start(settings: Settings) -> Running:
        made.append(Running(settings))
        return made[-1]

    yield start
    for running in made:
        running.close()


class Log:
    """Writes to the topics that a restorer reads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plain = clients.producer(settings)
        self._names = count()

    def request(self, offset: int, *, calls: int = 1, key: bytes = b"doc:1", partition: int = 0, value: bytes = b"{}") -> Parked:
        """Make a request that is parked after some calls."""
        record = Record(self.settings.topics.requests, partition, offset, key, value, (("ce_id", b"r-%d" % offset),), 5)
        return Parked(record, Tries(calls, 0), 1e9 + calls, "backoff")

    def message(self, request: Parked | int, *, partition: int = 0) -> Message:
        """Give a request's record; for a bare offset its tombstone."""
        topic = self.settings.topics.parked
        return tombstone(topic, ID, partition, request) if isinstance(request, int) else request.message(topic, ID)

    def write(self, *requests: Parked | int, partition: int = 0) -> None:
        """Write outside of any transaction."""
        for request in requests:
            _produce(self._plain, self.message(request, partition=partition))
        assert self._plain.flush(TIMEOUT_S) == 0

    def begin(self, *requests: Parked | int, partition: int = 0) -> Producer:
        """Write in a transaction, which stays open."""
        producer = clients.producer(self.settings, transactional_id=f"{self.settings.topics.prefix}-{next(self._names)}")
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for request in requests:
            _produce(producer, self.message(request, partition=partition))
        assert producer.flush(TIMEOUT_S) == 0
        return producer

    def command(self, target: bytes) -> None:
        """Write to the control topic."""
        self._plain.produce(self.settings.topics.control, b"{}", target, 0)
        assert self._plain.flush(TIMEOUT_S) == 0


def _produce(producer: Producer, message: Message) -> None:
    producer.produce(message.topic, message.value, message.key, message.partition, headers=list(message.headers))


def test_an_index_holds_what_is_parked_and_nothing_else(settings: SettingsFactory, start: Start) -> None:
    """Ended, overwritten, aborted and foreign records are not in it; it is in source order, and its places give the requests back.

    What stands under another topic's id, in another partition than its own, or is no record of ours at all is passed over.
    """
    made = settings(partitions=2)
    log = Log(made)
    requests = {n: log.request(n, value=b"%d" % n) for n in range(10)}
    log.write(requests[7], requests[3], requests[5], requests[1], 3)
    log.begin(requests[2], 5).abort_transaction(TIMEOUT_S)
    again = log.request(7, calls=2, value=b"7")
    log.begin(requests[4], again, 1).commit_transaction(TIMEOUT_S)
    foreign = replace(log.message(requests[6]), key=b"another_topic_of_before/0/6")
    elsewhere = replace(log.message(requests[6]), partition=1)
    for message in (foreign, elsewhere, replace(log.message(requests[6]), key=None), replace(log.message(requests[6]), headers=())):
        _produce(log._plain, message)
    assert log._plain.flush(TIMEOUT_S) == 0
    produce_raw(made.kafka.bootstrap_servers, made.topics.parked, 0, log.message(requests[6]).key, b"v", ((b"\xff", b"2"),))
    running = start(made)
    assert [] == running.next("commanded")
    entries = running.restore()
    assert [requests[4], requests[5], again] == [running.fetch(entry)[0][0] for entry in entries], (
        "each by its place, and the last of its key counts"
    )
    assert [(4, 1e9 + 1), (5, 1e9 + 1), (7, 1e9 + 2)] == [(entry.offset, entry.due) for entry in entries]
    assert ([again, requests[4]], []) == running.fetch(entries[2], entries[0]), "in the order asked"
    assert [] == running.restore(1)


def test_what_was_written_since_is_found(settings: SettingsFactory, start: Start) -> None:
    """Requests without a known place, or whose place another record of their key took, are found; ended ones are said to be missing."""
    made = settings(partitions=1)
    log = Log(made)
    log.write(log.request(1), log.request(2), log.request(3))
    running = start(made)
    running.next("commanded")
    first, second, third = running.restore()
    again, fourth = log.request(1, calls=2), log.request(4)
    log.write(again, fourth, 3)
    unknown = [replace(entry, place=-1) for entry in (first, second, third, fourth.entry())]
    assert ([again, log.request(2), fourth], [unknown[2]]) == running.fetch(*unknown)
    # A second time, when everything has been taken in already; and at a place where something else stands.
    assert ([fourth, again], []) == running.fetch(unknown[3], replace(first, place=second.place))
    assert ([], [unknown[2]]) == running.fetch(unknown[2])


def test_an_open_transaction_is_waited_for_and_holds_up_nobody_else(settings: SettingsFactory, start: Start) -> None:
    """What a former owner has not committed yet belongs to the index; meanwhile news, other partitions and their requests come."""
    made = settings(partitions=2)
    log = Log(made)
    log.command(b"key:doc:1")
    there, other = log.request(5), log.request(8, partition=1)
    log.write(other)
    open_one = log.begin(there)
    log.write(6)
    running = start(made)
    assert [b"key:doc:1"] == [record.key for record in running.next("commanded")]
    running.inbox.put(Restore(Owner(0, 1)))
    running.inbox.put(Restore(Owner(1, 1)))
    owner, entries = running.next("restored")
    assert (Owner(1, 1), [8]) == (owner, [entry.offset for entry in entries])
    log.command(b"key:doc:2")
    assert [b"key:doc:2"] == [record.key for record in running.next("commanded")]
    assert ([other], []) == running.fetch(*entries, partition=1)
    assert running.is_silent()
    open_one.commit_transaction(TIMEOUT_S)
    _, entries = running.next("restored")
    assert ([there], []) == running.fetch(*entries)


def test_many_payloads_are_read_in_little_memory(settings: SettingsFactory, start: Start) -> None:
    """10 MB of parked requests become an index: no more than some of them are held at a time."""
    made = settings(partitions=1)
    log = Log(made)
    log.write(*[log.request(n, value=bytes([n]) * 100_000) for n in range(100)])
    running = start(made)
    running.next("commanded")
    tracemalloc.start()
    entries = running.restore()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 100 == len(entries)
    assert peak < 2_000_000
    (found,), _ = running.fetch(entries[77])
    assert log.request(77, value=bytes([77]) * 100_000) == found


def test_what_is_gone_from_the_log_is_missing(settings: SettingsFactory, start: Start) -> None:
    """A place before the log's beginning holds nothing any more, and an index begins where the log does."""
    made = settings(partitions=1)
    configure(made, made.topics.parked, {"cleanup.policy": "compact,delete"})
    log = Log(made)
    log.write(*[log.request(n) for n in range(4)])
    running = start(made)
    running.next("commanded")
    entries = running.restore()
    gone, admin = TopicPartition(made.topics.parked, 0, 2), clients.admin(made)
    admin.delete_records([gone])[gone].result(TIMEOUT_S)
    assert ([log.request(2), log.request(3)], entries[:2]) == running.fetch(*entries)
    assert ([], entries[1:2]) == running.fetch(entries[1])
    assert entries[2:] == running.restore()


@pytest.mark.soak
def test_a_compacted_log_gives_the_same_index(settings: SettingsFactory, start: Start) -> None:
    """After Kafka's own compaction, with holes where records were, index and requests are as before."""
    made = settings(partitions=1)
    swift = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100", "delete.retention.ms": "0"}
    configure(made, made.topics.parked, swift)
    log = Log(made)
    for calls in range(1, 4):
        log.write(*[log.request(n, calls=calls) for n in range(50)])
        log.begin(*[n for n in range(50) if n % 3 == calls - 1 and n % 2]).commit_transaction(TIMEOUT_S)
    running = start(made)
    running.next("commanded")
    before = running.restore()
    kept = [n for n in range(50) if n % 3 != 2 or n % 2 == 0]
    assert kept == [entry.offset for entry in before]

    def is_compacted() -> bool:
        # A record that comes makes Kafka close the segment before it.
        log.write(log.request(1000, calls=9))
        with_reader = CompactedReader(made)
        records = [item for item in with_reader.read(made.topics.parked, {0: (0, 150)}) if isinstance(item, Record)]
        with_reader.close()
        return len(records) < 120

    eventually(is_compacted, 120, "compaction")
    after = running.restore()
    assert before == after[:-1]
    assert ([log.request(n, calls=3) for n in kept], []) == running.fetch(*before)
