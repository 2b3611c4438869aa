"""What workers tell each other of the limits that they share: what was written is read, and what is not ours is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.bounds import OFFSET_MAX
from dispatcher.core.callees.stakes import Stake, Stakes
from dispatcher.core.internal.stakes_record import ending, key_of, message, read
from dispatcher.core.messages.record import Message, Record

AMOUNTS = st.integers(0, OFFSET_MAX)
SECONDS = st.floats(0, 1e9)
STAKES = st.builds(
    Stakes,
    st.from_regex(r"[A-Za-z0-9._-]{1,20}/[0-9a-f]{1,8}", fullmatch=True),
    AMOUNTS,
    SECONDS,
    st.booleans(),
    SECONDS,
    st.dictionaries(st.text(max_size=9), st.builds(Stake, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, SECONDS), max_size=3),
)


def record(of: Message) -> Record:
    """As it comes out of the topic."""
    return Record(of.topic, of.partition, 7, of.key, of.value, of.headers)


@given(STAKES)
def test_what_is_written_is_read(stakes: Stakes) -> None:
    """Every number of it, and whose it is."""
    assert stakes == read(record(message(stakes, "workers")))


def test_an_end_names_who_it_is_of() -> None:
    """A tombstone of the same key."""
    assert "slot/1" == read(record(ending("slot/1", "workers")))


@pytest.mark.parametrize("key", [None, b"slot", b"\xff", b"limit/slot/1"])
def test_other_records_of_the_topic_are_left(key: bytes | None) -> None:
    """What workers tell of their lanes stands there as well."""
    assert read(Record("workers", 0, 0, key, b"{}")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"number":1,"lease_s":5,"has":true,"since_s":0,"of":{"l/requests":{"claim":-1,"wanted":0,"least":1,"spent":0,"lingers_s":1}}}',
        b'{"number":1,"lease_s":1e400,"has":true,"since_s":0,"of":{}}',
        b'{"number":1,"lease_s":5,"has":true,"since_s":0,"of":{},"v":2}',
    ],
)
def test_what_is_no_report_is_none(content: bytes) -> None:
    """Whoever may write to the topic may have written anything."""
    assert read(Record("workers", 0, 0, key_of("slot/1"), content)) is None
