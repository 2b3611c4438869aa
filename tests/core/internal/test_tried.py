"""What is known of tries comes back as it was, on whatever machine; what is foreign is left alone, what is corrupt taken for the worst."""

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
from dispatcher.core.internal.tried import Tried, forgotten, place_of, read_tried, tried
from dispatcher.core.messages.record import Message, Record

ID = "mZfX3kAZQ2y_-dUvVvTkPw"
STATE = "d.state"

times = st.floats(0, 4e9)
counts = st.integers(0, 1000)
offsets = st.integers(0, 2**63 - 1)
known = st.builds(
    Tried,
    offsets,
    st.builds(Tries, counts, counts),
    times,
    times,
    st.sampled_from(["", "backoff", "retry_after"]),
    st.none() | times,
    st.none() | times,
    st.booleans(),
)


def stored(message: Message, partition: int | None = None) -> Record:
    """Give what a reader of the state topic gets."""
    return Record(message.topic, message.partition if partition is None else partition, 9, message.key, message.value, message.headers, 1)


@given(known, st.integers(0, 2**31 - 1))
def test_what_is_known_comes_back_as_it_was(one: Tried, partition: int) -> None:
    """Counts, times and the intent, under a key that names the request; in few bytes, since every failed call writes one."""
    message = one.message(STATE, ID, partition)
    assert (STATE, partition, ()) == (message.topic, message.partition, message.headers)
    assert one == read_tried(stored(message), ID)
    assert one.offset == place_of(stored(message), ID)
    assert message.size_bytes < 500


@given(known)
def test_the_tombstone_has_the_same_key(one: Tried) -> None:
    """So that it ends what is known."""
    end = forgotten(STATE, ID, 3, one.offset)
    assert (one.message(STATE, ID, 3).key, None) == (end.key, end.value)
    assert (one.offset, None) == (place_of(stored(end), ID), read_tried(stored(end), ID))


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"doc:1", b"attempts/x/1", b"attempts/x/1/2/3", b"attempts/x/01/2", b"attempts/x/1/-2", b"\xff/x/1/2", b"saga/x/1/2"),
        *(f"attempts/{ID}/2/5".encode(), f"attempts/{ID}/1/5\n".encode(), f"attempts/{ID[:-1]}/1/5".encode()),
    ],
)
def test_what_is_not_of_this_partition_and_topic_is_not_ours(key: bytes | None) -> None:
    """Other records of the topic, other partitions, and requests of a topic that had this name."""
    record = replace(stored(Tried(5, Tries(1)).message(STATE, ID, 1)), key=key)
    assert (None, None) == (place_of(record, ID), read_tried(record, ID))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            ("v", 2),
            ("calls", -1),
            ("calls", 1.0),
            ("calls", True),
            ("failures", None),
            ("failures", 2**31),
            ("at", "1"),
            ("due", math.inf),
        ),
        *(("hinted", "x"), ("started", []), ("begun", 1), ("why", None), ("why", "Back off"), ("why", "x" * 33)),
    ],
)
def test_what_is_corrupt_may_have_been_called(name: str, content: Any) -> None:
    """With our key, and not to be read: what must not be called twice is not."""
    record = stored(Tried(5, Tries(3, 2), 1.0, 2.0, "backoff").message(STATE, ID, 1))
    facts = orjson.loads(record.value or b"")
    for value in (orjson.dumps(facts | {name: content}), b"", b"[]", b"{", b"\xff"):
        assert Tried(5, Tries(1), begun=True) == read_tried(replace(record, value=value), ID)


@given(st.floats(0, 1e6), st.floats(-100, 100), st.floats(0, 1e5), st.floats(0, 1e5))
def test_times_are_taken_over(began: float, ahead_s: float, wait_s: float, passed_s: float) -> None:
    """The wait goes on where it was, by the wall clock of another process; one whose clock is behind waits no longer than all of it."""
    then, start = Instant(1000.0, 2e9), Instant(began, 2e9 + ahead_s + passed_s)
    one = tried(5, Tries(2, 1, 990.0), then.mono + wait_s, "backoff", then, started=980.0)
    left_s = one.until_at(start) - start.mono
    assert left_s <= wait_s + 1e-6
    if ahead_s >= 0 or passed_s > -ahead_s:
        assert left_s == pytest.approx(wait_s - passed_s - ahead_s, abs=1e-5)
    since = one.tries_at(start).hinted_since
    assert since is not None
    assert since <= start.mono
    assert (one.started_at(start) or 0) <= start.mono
    assert Tries(2, 1) == replace(one.tries_at(start), hinted_since=None)


def test_what_is_due_at_once_stays_so() -> None:
    """Zero is no time of a clock."""
    assert 0 == tried(5, Tries(1, 1), 0, "", Instant(5.0, 2e9)).until_at(Instant(9.0, 2e9))
    assert None is tried(5, Tries(1, 1), 0, "", Instant(5.0, 2e9)).started_at(Instant(9.0, 2e9))
