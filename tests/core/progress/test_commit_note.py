"""The note in a commit's metadata: read back as written, and nothing foreign taken for ours."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.bounds import EPOCH_MAX, OFFSET_MAX
from dispatcher.core.progress.commit_note import METADATA_MAX, CommitNote, decode, next_epoch

TOPIC = bytes(range(16))
COUNTERS = st.integers(0, EPOCH_MAX)


# Gaps and lengths of settled ranges, from some offset on.
RANGES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**12)), max_size=2000)


@given(st.binary(min_size=16, max_size=16), COUNTERS, COUNTERS, st.integers(0, OFFSET_MAX))
def test_a_note_is_read_back(topic: bytes, epoch: int, transaction: int, position: int) -> None:
    """Any epoch and number that counts; without ranges the text is ASCII of a fixed length far below Kafka's 4,096 bytes."""
    note = CommitNote(topic, epoch, transaction, position)
    text = note.encode()
    assert len(text.encode("ascii")) == 64
    assert note == decode(text, topic)


@given(st.integers(0, 2**40), RANGES)
def test_ranges_are_read_back_as_far_as_they_fit(position: int, drawn: list[tuple[int, int]]) -> None:
    """Never more than Kafka takes; what is left out is the highest."""
    ranges, at = [], position
    for gap, length in drawn:
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    text = CommitNote(TOPIC, 1, 2, position, tuple(ranges)).encode()
    assert len(text) <= METADATA_MAX
    note = decode(text, TOPIC)
    assert note is not None
    assert tuple(ranges[: len(note.settled)]) == note.settled
    assert len(ranges) == len(note.settled) or len(text) > METADATA_MAX - 20


def test_a_full_text_is_one_that_kafka_takes() -> None:
    """Of 4,096 bytes one is the zero that the client library sends behind it (tests/sim/contract/test_transactions.py shows it)."""
    text = CommitNote(TOPIC, 1, 2, 100, tuple((n, n + 1) for n in range(101, 9001, 2))).encode()
    assert 4092 == len(text)


def test_a_thousand_gaps_of_one_record_fit() -> None:
    """The bound at which a partition starts nothing above its mark (`Room.map_bytes`) is met by a text that is whole."""
    ranges = tuple((n, n + 1) for n in range(101, 3001, 2))
    note = decode(CommitNote(TOPIC, 1, 2, 100, ranges).encode(), TOPIC)
    assert note is not None
    assert len(note.settled) == 1450


def test_ranges_belong_to_their_position() -> None:
    """A tool that moves the position and keeps the text leaves a map of something else: it is not used."""
    note = CommitNote(TOPIC, 1, 2, 100, ((105, 110),))
    assert (note.settled_at(100), note.settled_at(50), note.settled_at(None)) == (((105, 110),), (), ())


def test_a_note_of_version_1_is_read() -> None:
    """What a worker of before there were lanes per key has committed: epoch and transaction count on, without a map."""
    old = base64.b64encode(b"dsp\x01" + TOPIC + (7).to_bytes(8, "big") + (9).to_bytes(8, "big")).decode()
    assert decode(old, TOPIC) == CommitNote(TOPIC, 7, 9)


@given(st.data())
def test_a_corrupt_note_is_no_note(data: st.DataObject) -> None:
    """A byte that is not as it was written: the check says so, wherever it is."""
    raw = bytearray(base64.b64decode(CommitNote(TOPIC, 5, 6, 100, ((105, 110), (120, 4000))).encode()))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    assert decode(base64.b64encode(raw).decode(), TOPIC) is None


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


@pytest.mark.parametrize(("place", "byte"), [(0, b"x"), (3, b"\x03")])
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
