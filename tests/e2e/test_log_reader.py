"""Reading a topic by positions on a real broker: logs have holes, and every reader ends where it was told to."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.positions import Anchor, Position, Span, parse_span
from dispatcher.errors import BrokerError, ConfigError
from dispatcher.settings import Settings
from tests.e2e.raw_produce import produce as produce_raw
from tests.topics import SettingsFactory
from tests.waiting import eventually

TIMEOUT_S = 30


def read(settings: Settings, text: str, partitions: Iterable[int] | None = None, *, until_end: bool = True) -> list[Record]:
    """Read the request topic to the end that is there now, or to the end of the range."""
    with LogReader(settings, settings.topics.requests, TIMEOUT_S) as reader:
        wanted = None if partitions is None else tuple(partitions)
        return list(reader.read(parse_span(text, datetime.now(UTC)), partitions=wanted, until_end=until_end))


def values(records: Iterable[Record]) -> list[bytes | None]:
    """Return the values alone."""
    return [record.value for record in records]


def write(settings: Settings, *contents: bytes, partition: int = 0, timestamp: int | None = None) -> None:
    """Write records to one partition, outside of any transaction."""
    producer = clients.producer(settings)
    for number, content in enumerate(contents):
        producer.produce(settings.topics.requests, content, b"k", partition=partition, timestamp=timestamp or 0)
        if number % 100 == 0:
            producer.flush(TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0


def transactional(settings: Settings) -> Producer:
    """Make a transactional producer that is ready."""
    producer = clients.producer(settings, transactional_id=settings.worker.slot)
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction(producer: Producer, settings: Settings, *contents: bytes, commit: bool = True) -> None:
    """Write records to partition 0 in one transaction, and end it."""
    producer.begin_transaction()
    for content in contents:
        producer.produce(settings.topics.requests, content, b"k", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def delete_before(settings: Settings, offset: int) -> None:
    """Let retention take partition 0 up to an offset."""
    part = TopicPartition(settings.topics.requests, 0, offset)
    admin = clients.admin(settings)  # by name: one that is collected takes its answers with it
    admin.delete_records([part])[part].result(TIMEOUT_S)


def test_the_end_is_an_offset_and_not_a_count(settings: SettingsFactory) -> None:
    """Aborted records and markers leave holes, and a tail of nothing but them is an end all the same."""
    made = settings(partitions=1)
    producer = transactional(made)
    for number in range(4):
        transaction(producer, made, b"%d" % number)
        transaction(producer, made, b"aborted", b"aborted", commit=False)
    assert values(read(made, "start")) == [b"0", b"1", b"2", b"3"]
    assert [record.offset for record in read(made, "start")] == [0, 5, 10, 15]
    assert values(read(made, "-4")) == []
    assert values(read(made, "+1:11")) == [b"1", b"2"]
    assert values(read(made, "16:19", until_end=False)) == []


def test_an_open_transaction_stands_behind_the_end(settings: SettingsFactory) -> None:
    """A reader to the end does not wait for a transaction, and sees all of it once it is committed."""
    made = settings(partitions=1)
    producer = transactional(made)
    transaction(producer, made, b"0")
    producer.begin_transaction()
    producer.produce(made.topics.requests, b"open", b"k", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert values(read(made, "start")) == [b"0"]
    producer.commit_transaction(TIMEOUT_S)
    assert values(read(made, "start")) == [b"0", b"open"]


def test_what_comes_meanwhile_moves_no_end(settings: SettingsFactory) -> None:
    """The ends are fixed before the first record; other partitions end on their own."""
    made = settings(partitions=2)
    write(made, b"0", b"1")
    write(made, b"2", partition=1)
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        records = reader.read(parse_span("start", datetime.now(UTC)), until_end=True)
        seen = [next(records)]
        write(made, b"late")
        write(made, b"late", partition=1)
        seen += records
    assert sorted(values(seen), key=str) == [b"0", b"1", b"2"]


def test_ranges_are_taken_in_each_partition(settings: SettingsFactory) -> None:
    """`+N`, `-N`, offsets and partitions: FROM is in, TO is out, and what lies outside of the log is nothing."""
    made = settings(partitions=2)
    write(made, *(b"a%d" % number for number in range(5)))
    write(made, *(b"b%d" % number for number in range(3)), partition=1)
    assert sorted(values(read(made, "-1")), key=str) == [b"a4", b"b2"]
    assert sorted(values(read(made, "+1:-1")), key=str) == [b"a1", b"a2", b"a3", b"b1"]
    assert sorted(values(read(made, "3:5")), key=str) == [b"a3", b"a4"]
    assert sorted(values(read(made, "start", [1])), key=str) == [b"b0", b"b1", b"b2"]
    assert values(read(made, "100:200")) == []
    assert values(read(made, "end")) == []
    assert values(read(made, "2:2")) == []


def test_times_are_found_by_the_broker(settings: SettingsFactory) -> None:
    """`@` is the first record of that time or later; a time behind everything is the end."""
    made = settings(partitions=1)
    # Not older than the retention: the broker would remove them while we look.
    first = int(datetime.now(UTC).timestamp() - 5 * 3600) * 1000
    hours = [first + hour * 3_600_000 for hour in range(3)]
    for hour in hours:
        write(made, b"%d" % hour, timestamp=hour)

    def between(since: int, until: int) -> list[bytes | None]:
        with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
            return values(reader.read(Span(Position(Anchor.TIME, since), Position(Anchor.TIME, until))))

    assert between(hours[0], hours[2]) == [b"%d" % hour for hour in hours[:2]]
    assert between(hours[0] + 1, hours[2] + 1) == [b"%d" % hour for hour in hours[1:]]
    assert between(hours[2] + 1, hours[2] + 2) == []
    assert values(read(made, "@-1h")) == []


def test_retention_before_and_while_reading(settings: SettingsFactory) -> None:
    """A start that is gone is the first record that is left; so it is for a reader that is overtaken."""
    made = settings(partitions=1)
    big = b"x" * 100_000
    write(made, *[big] * 1000)
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        records = reader.read(parse_span("start", datetime.now(UTC)), until_end=True)
        assert next(records).offset == 0
        delete_before(made, 900)
        offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert set(range(900, 1000)) <= set(offsets)
    # What was fetched before is read; the 100 MB are more than a reader fetches ahead.
    assert len(offsets) < 900
    assert [record.offset for record in read(made, "5:902")] == [900, 901]
    delete_before(made, 1000)
    assert read(made, "start") == []


def test_bytes_arrive_as_they_are(settings: SettingsFactory) -> None:
    """None is not empty, nothing needs to be UTF-8, duplicates and their order are kept, and only an unreadable *name* hides headers."""
    made = settings(partitions=1)
    headers = (("a", None), ("a", b""), ("ü", b"\xff"), ("a", b"2"))
    producer = clients.producer(made)
    producer.produce(made.topics.requests, None, b"\xff\xfe", partition=0, headers=list(headers))
    producer.produce(made.topics.requests, b"", b"", partition=0)
    producer.produce(made.topics.requests, b"\x80", None, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    produce_raw(made.kafka.bootstrap_servers, made.topics.requests, 0, b"k", b"v", ((b"ok", b"1"), (b"\xff", b"2")))
    got = [(record.key, record.value, record.headers) for record in read(made, "start")]
    assert got == [(b"\xff\xfe", None, headers), (b"", b"", ()), (None, b"\x80", ()), (b"k", b"v", None)]


def test_following_goes_on(settings: SettingsFactory) -> None:
    """Without an end the reader waits for what comes, from a position that need not exist yet."""
    made = settings(partitions=1)
    write(made, b"0")
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        records = reader.read(parse_span("2:4", datetime.now(UTC)))
        write(made, b"1", b"2", b"3", b"4")
        assert values(records) == [b"2", b"3"]
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        following = reader.read(parse_span("-1", datetime.now(UTC)))
        assert next(following).value == b"4"
        write(made, b"5")
        assert next(following).value == b"5"


def test_no_group_appears(settings: SettingsFactory) -> None:
    """Reading leaves no trace in the broker: no group, no committed offset."""
    made = settings(partitions=1)
    write(made, b"0")
    assert values(read(made, "start")) == [b"0"]
    admin = clients.admin(made)
    assert "dispatcher-reader" not in {group.group_id for group in admin.list_consumer_groups().result(TIMEOUT_S).valid or ()}


def test_the_partitioner_agrees_with_librdkafka(settings: SettingsFactory) -> None:
    """Keys of all lengths, the empty one too, go where the product's own producer puts them."""
    made = settings(partitions=12)
    keys = [bytes(range(7, 7 + length)) for length in range(40)] + [f"apikey:team-{number}".encode() for number in range(200)]
    producer = clients.producer(made)
    for key in keys:
        producer.produce(made.topics.requests, b"", key)
    assert producer.flush(TIMEOUT_S) == 0
    placed = [(record.key, record.partition) for record in read(made, "start")]
    assert sorted((key, partition_for(key, 12)) for key in keys) == sorted(placed)


@pytest.mark.parametrize("server", ["closed", "silent"])
def test_without_a_broker_reading_ends_within_its_time(server: str) -> None:
    """Nobody there, or somebody who says nothing: BrokerError with a hint, within the time given."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if server == "silent":
            listener.listen()
        settings = Settings.model_validate({"kafka": {"bootstrap_servers": f"127.0.0.1:{listener.getsockname()[1]}"}})
        begin = time.monotonic()
        with pytest.raises(BrokerError, match="cannot reach Kafka") as caught, LogReader(settings, "t", 2) as reader:
            list(reader.read(parse_span("start", datetime.now(UTC)), until_end=True))
        assert caught.value.hint
        assert time.monotonic() - begin < 2 + 2 + 3  # the last three are for a loaded machine


def test_what_does_not_exist_is_named(settings: SettingsFactory) -> None:
    """A topic or partition that is not there is a sentence with a hint, and is not created."""
    made = settings(partitions=2)
    missing = settings(init=False, topics={"prefix": f"{made.topics.prefix}-none"})
    with pytest.raises(ConfigError, match="does not exist") as caught:
        read(missing, "start")
    assert "topics init" in caught.value.hint
    assert missing.topics.requests not in clients.admin(made).list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(ConfigError, match="no partition 7"):
        read(made, "start", [0, 7])


def test_a_topic_that_is_deleted_ends_its_readers(settings: SettingsFactory) -> None:
    """A reader that follows does not wait for ever at a topic that is gone; how long is librdkafka's own setting, 30 s by default."""
    made = settings(partitions=1, kafka={"properties": {"topic.metadata.propagation.max.ms": "500"}})
    write(made, b"0")
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        following = reader.read(parse_span("start", datetime.now(UTC)))
        assert next(following).value == b"0"
        admin = clients.admin(made)
        admin.delete_topics([made.topics.requests])[made.topics.requests].result(TIMEOUT_S)
        eventually(lambda: made.topics.requests not in admin.list_topics(timeout=TIMEOUT_S).topics, what="the deletion")
        with pytest.raises(ConfigError, match="does not exist"):
            next(following)
