"""The note in a commit's metadata: read back as written, and nothing foreign taken for ours."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.commit_note import CommitNote, decode, next_epoch

TOPIC = bytes(range(16))
COUNTERS = st.integers(0, 2**64 - 1)


@given(st.binary(min_size=16, max_size=16), COUNTERS, COUNTERS)
def test_a_note_is_read_back(topic: bytes, epoch: int, transaction: int) -> None:
    """Any epoch and number of 64 bits; the text is ASCII of a fixed length far below Kafka's 4,096 bytes."""
    note = CommitNote(topic, epoch, transaction)
    text = note.encode()
    assert len(text.encode("ascii")) == 48
    assert note == decode(text, topic)


def test_a_topic_made_anew_has_no_note() -> None:
    """A note of the deleted topic's id says nothing about the new one."""
    assert decode(CommitNote(TOPIC, 3, 4).encode(), bytes(16)) is None


@given(st.none() | st.text(max_size=100) | st.binary(max_size=100).map(lambda raw: base64.b64encode(raw).decode()))
def test_foreign_metadata_is_ignored(text: str | None) -> None:
    """Another tool's text, random bytes or nothing: no note, no crash."""
    assert decode(text, TOPIC) is None


@pytest.mark.parametrize("text", ["hello", "", "é", "\udcff", "A" * 4096, CommitNote(TOPIC, 1, 2).encode() + "\n", "{}"])
def test_known_foreign_texts_are_ignored(text: str) -> None:
    """What tools and hands leave there."""
    assert decode(text, TOPIC) is None


@pytest.mark.parametrize(("place", "byte"), [(0, b"x"), (3, b"\x02")])
def test_another_magic_or_version_is_ignored(place: int, byte: bytes) -> None:
    """A later version's note is not misread as this one's."""
    raw = bytearray(base64.b64decode(CommitNote(TOPIC, 1, 2).encode()))
    raw[place : place + 1] = byte
    assert decode(base64.b64encode(raw).decode(), TOPIC) is None


def test_epochs_only_rise() -> None:
    """One more than the last; where the note was wiped, the wall clock in seconds, which no counter of assignments reaches."""
    assert next_epoch(CommitNote(TOPIC, 41, 9), wall_s=1.8e9) == 42
    assert next_epoch(None, wall_s=1_795_946_400.9) == 1_795_946_400
    first = next_epoch(None, wall_s=1_795_946_400.9)
    assert next_epoch(CommitNote(TOPIC, first, 0), wall_s=1_795_946_401.0) == first + 1
