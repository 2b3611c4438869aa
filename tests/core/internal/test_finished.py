"""Records of the journal: what was written is read again, and nothing else is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.internal.finished import Finished, read_finished
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.status import Status

JOURNAL, TOPIC_ID = "dispatcher.journal", "pX3kQ9aZ"


def finished(**changed: Any) -> Finished:
    """How a request ended, with some of it changed."""
    facts: dict[str, Any] = {
        "topic": JOURNAL,
        "partition": 2,
        "offset": 40,
        "topic_id": TOPIC_ID,
        "request_id": "r-1",
        "key": b"doc:42",
        "fingerprint": bytes(range(16)),
        "status": Status.OK,
        "calls": 1,
        "at": 1795946400.25,
        "reply_topic": "dispatcher.replies",
        "reply_partition": 2,
    }
    return Finished(**(facts | changed))


def written(of: Finished, offset: int = 7) -> Record:
    """The record as it stands in the journal."""
    message = of.message()
    return Record(message.topic, message.partition, offset, message.key, message.value, message.headers)


def test_a_record_is_small_and_says_it_all() -> None:
    """The value is JSON for people too; the key is the lane's."""
    message = finished(redrive_id="again-1").message()
    assert (JOURNAL, 2, b"doc:42", ()) == (message.topic, message.partition, message.key, message.headers)
    assert orjson.loads(message.value or b"") == {
        "v": 1,
        "id": "r-1",
        "of": "000102030405060708090a0b0c0d0e0f",
        "status": "ok",
        "calls": 1,
        "at": 1795946400.25,
        "offset": 40,
        "topic_id": TOPIC_ID,
        "reply": ["dispatcher.replies", 2],
        "redrive": "again-1",
    }
    assert 400 > message.size_bytes


@given(
    request_id=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200),
    key=st.binary(min_size=1, max_size=50),
    fingerprint=st.binary(min_size=16, max_size=16),
    status=st.sampled_from(Status),
    calls=st.integers(0, 1000),
    at=st.integers(0, 2**42).map(lambda ms: ms / 1000),
    offset=st.integers(0, 2**62),
    reply_partition=st.integers(0, 2**31 - 1),
    redrive_id=st.text(max_size=20),
)
def test_what_is_written_is_read_again(**changed: Any) -> None:
    """Whatever a request may be called."""
    of = finished(**changed)
    assert of == read_finished(written(of), TOPIC_ID)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v", 2),
        ("id", None),
        ("of", "00"),
        ("of", "zz" * 16),
        ("of", " 0" * 16),
        ("status", "fine"),
        ("status", ["ok"]),
        ("calls", -1),
        ("calls", True),
        ("at", "now"),
        ("offset", 1.5),
        ("offset", 2**63),
        ("topic_id", "anotherT"),
        ("reply", "dispatcher.replies"),
        ("reply", ["dispatcher.replies"]),
        ("reply", ["dispatcher.replies", 2**31]),
        ("redrive", 7),
    ],
)
def test_what_is_foreign_or_corrupt_says_nothing(name: str, content: object) -> None:
    """Nobody is answered because of it: also what was written for another topic of the requests' name."""
    value = orjson.loads(finished().message().value or b"") | {name: content}
    assert read_finished(Record(JOURNAL, 2, 7, b"doc:42", orjson.dumps(value)), TOPIC_ID) is None


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"7", b"{}", b"\xff"])
def test_what_is_no_json_object_says_nothing(value: bytes | None) -> None:
    """As above."""
    assert read_finished(Record(JOURNAL, 2, 7, b"doc:42", value), TOPIC_ID) is None
    assert read_finished(Record(JOURNAL, 2, 7, None, finished().message().value), TOPIC_ID) is None


def test_the_journal_tells_of_the_reply_as_it_is_published() -> None:
    """Another status or place, where that is what became of it; else it is the same object."""
    of = finished()
    assert of.answered(Status.OK, "dispatcher.replies", 2) is of
    assert finished(status=Status.DEAD, reply_partition=0) == of.answered(Status.DEAD, "dispatcher.replies", 0)
