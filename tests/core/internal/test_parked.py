from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import (
    KEY_HEADER,
    OVERHEAD_MAX_BYTES,
    PARKED_HEADER,
    Entry,
    Parked,
    parked,
    parked_key,
    read_key,
    read_parked,
    tombstone,
    until_at,
)
from dispatcher.core.messages.record import Message, Record

ID = "mZfX3kAZQ2y_-dUvVvTkPw"
TOPIC, PARKED = "d.requests", "d.parked"

raw = st.none() | st.binary(max_size=50)
names = st.sampled_from([PARKED_HEADER, KEY_HEADER, "ce_id"]) | st.text(st.characters(codec="utf-8"), max_size=10)
headers = st.none() | st.lists(st.tuples(names, raw), max_size=6).map(tuple)
times = st.floats(0, 4e9)
counts = st.integers(0, 1000)
records = st.builds(
    Record, st.just(TOPIC), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), raw, raw, headers, st.none() | st.integers(0, 2**62)
)
requests = st.builds(
    Parked, records, st.builds(Tries, counts, counts), times, st.sampled_from(["backoff", "queued"]), st.none() | times, st.none() | times
)


def stored(message: Message, place: int = 9) -> Record:
    """Give what a reader of the parked topic gets."""
    return Record(message.topic, message.partition, place, message.key, message.value, message.headers, 1)


@given(requests)
def test_a_parked_request_comes_back_as_it_was(request_: Parked) -> None:
    """Key, value and headers byte for byte (None, duplicates, our own names among them), position, timestamp, tries and times."""
    message = request_.message(PARKED, ID)
    assert (PARKED, request_.record.partition) == (message.topic, message.partition)
    assert request_ == read_parked(stored(message), ID, TOPIC)
    # Compaction keeps what has a value: a request without one must not read as a tombstone.
    assert message.value is not None


@given(requests)
def test_what_is_added_is_bounded(request_: Parked) -> None:
    """A parked record takes at most a bounded number of bytes more than its original."""
    assert request_.message(PARKED, ID).size_bytes <= request_.record.size_bytes + OVERHEAD_MAX_BYTES


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_a_key_names_the_original(partition: int, offset: int) -> None:
    """Topic id, partition and offset can be read from a key; the tombstone has the same key and no value."""
    key = parked_key(ID, partition, offset)
    assert (ID, partition, offset) == read_key(key)
    assert Message(PARKED, partition, key, None, ()) == tombstone(PARKED, ID, partition, offset)
    assert read_parked(stored(tombstone(PARKED, ID, partition, offset)), ID, TOPIC) is None


@pytest.mark.parametrize("key", [None, b"", b"doc:1", b"a/1", b"a/1/x", b"a/-1/2", b"a/01/2", b"a/1/2/3", b"\xff/1/2", b"/1/2", b"a/1/2\n"])
def test_other_keys_are_not_ours(key: bytes | None) -> None:
    """What is not exactly a key of ours is none."""
    assert read_key(key) is None


@given(st.binary(max_size=30))
def test_any_bytes_are_a_key_or_none(key: bytes) -> None:
    """Reading a key never fails; what is read is written as it was."""
    found = read_key(key)
    assert found is None or key == parked_key(*found)


REQUEST = Parked(Record(TOPIC, 3, 7, b"doc:1", b"{}", (("a", b"1"),), 5), Tries(2, 1), 1e9, "backoff")
GOOD = stored(REQUEST.message(PARKED, ID))
FACTS: dict[str, Any] = orjson.loads((GOOD.headers or ())[-1][1] or b"")


def with_facts(**changed: object) -> Record:
    """Give the good record with other facts in its header."""
    return replace(GOOD, headers=((KEY_HEADER, b"k"), (PARKED_HEADER, orjson.dumps(FACTS | changed))))


@pytest.mark.parametrize(
    "record",
    [
        replace(GOOD, key=parked_key("another_topic_id", 3, 7)),
        replace(GOOD, key=parked_key(ID, 4, 7)),  # written into a partition that is not its own
        replace(GOOD, key=b"doc:1"),
        replace(GOOD, key=None),
        replace(GOOD, headers=None),
        replace(GOOD, headers=()),
        replace(GOOD, headers=(GOOD.headers or ())[-1:]),
        replace(GOOD, headers=(*(GOOD.headers or ()), ("behind", b""))),
        *(replace(GOOD, headers=((KEY_HEADER, b"k"), (PARKED_HEADER, text))) for text in (None, b"", b"{", b"[]", b"\xff", b'{"v":1}')),
        *(with_facts(v=version) for version in (0, 2, "1", None)),
        *(with_facts(calls=count) for count in (-1, 1.5, "1", None, True, 2**40)),
        *(with_facts(failures=count) for count in (-1, None)),
        *(with_facts(due=due) for due in (None, "soon", False)),
        *(with_facts(why=why) for why in (None, "", "a b", "x" * 33, 1)),
        with_facts(hinted="now"),
        with_facts(started=[]),
        with_facts(ts=1.5),
        with_facts(has_value=1),
        with_facts(has_headers=None),
    ],
)
def test_what_is_foreign_or_corrupt_is_no_request(record: Record) -> None:
    """Nothing is taken for a parked request, and nothing raises, unless every part is as we write it."""
    assert read_parked(record, ID, TOPIC) is None


@given(st.lists(st.tuples(names, raw), max_size=3).map(tuple))
def test_any_headers_can_be_read(others: tuple[tuple[str, bytes | None], ...]) -> None:
    """Reading never raises, whatever a foreign record has in our headers."""
    read_parked(replace(GOOD, headers=others), ID, TOPIC)


def test_an_entry_is_what_an_index_needs() -> None:
    """Offset and key of the original, the place, what fetching it takes, when it is due, and why it waits."""
    assert Entry(7, b"doc:1", 9, REQUEST.record.size_bytes, 1e9, "backoff") == REQUEST.entry(9)
    assert -1 == REQUEST.entry().place


def test_times_travel_on_the_wall_clock() -> None:
    """What one process knows by its monotonic clock, another knows by its own, as far as it lies back or ahead."""
    here, there = Instant(mono=1000, wall=50_000), Instant(mono=7, wall=50_020)
    record = REQUEST.record
    travelling = parked(record, Tries(3, 1, hinted_since=990), 1060, "retry_after", here, started=980)
    assert Parked(record, Tries(3, 1), 50_060, "retry_after", 49_990, 49_980) == travelling
    assert Tries(3, 1, hinted_since=7 - 30) == travelling.tries_at(there)
    assert (7 - 40, 7 + 40) == (travelling.started_at(there), travelling.until_at(there))


def test_at_once_stays_at_once() -> None:
    """A request that is due at once, and was never called or told to wait, has no times to convert."""
    here = Instant(mono=1000, wall=50_000)
    travelling = parked(REQUEST.record, Tries(), 0, "queued", here)
    assert Parked(REQUEST.record, Tries(), 0, "queued") == travelling
    assert (Tries(), None, 0) == (travelling.tries_at(here), travelling.started_at(here), travelling.until_at(here))
    assert 0 == until_at(0, here)


def test_a_clock_that_is_behind_gives_no_time_in_the_future() -> None:
    """On a machine whose clock is behind the writer's, a hint that was given counts as given just now, never later."""
    travelling = parked(REQUEST.record, Tries(1, 0, hinted_since=1000), 1060, "retry_after", Instant(1000, 50_000), started=1000)
    behind = Instant(mono=5, wall=49_000)
    assert (5, 5) == (travelling.tries_at(behind).hinted_since, travelling.started_at(behind))


def test_a_time_that_is_none_is_no_number() -> None:
    """JSON has no infinity; one that a float's text could hold is refused as any other."""
    text = orjson.dumps(FACTS).replace(b'"due":1000000000.0', b'"due":1e999')
    assert text != orjson.dumps(FACTS)
    assert read_parked(replace(GOOD, headers=((KEY_HEADER, b"k"), (PARKED_HEADER, text))), ID, TOPIC) is None
    assert math.isfinite(FACTS["due"])
