"""What headers say: identity, where the reply goes, what is echoed; and every way in which they can be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.envelope import KNOWN, Envelope, Refusal, position_id, read_envelope
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.status import Reason
from tests.specimens import REPLIES, REPLY_TOPICS, TOPIC_ID, record

POSITION = "dispatcher.requests/0/5@pX3kQ9aZ"
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
FOUR = {n: n.to_bytes(4, "big", signed=True) for n in (-1, 0, 1, 2, 3, 4, 2**31 - 1)}


def read(*headers: Header, partition: int = 0) -> tuple[Envelope, Refusal | None]:
    """The envelope of a record with these headers."""
    return read_envelope(record(headers=headers, partition=partition), TOPIC_ID, REPLIES, REPLY_TOPICS)


def test_without_headers_the_position_is_the_name() -> None:
    """A bare record is named by its place and the beginning of its topic's id, and answered on its own partition number."""
    envelope, refused = read(partition=3)
    assert refused is None
    assert envelope == Envelope(
        "dispatcher.requests/3/5@pX3kQ9aZ", "dispatcher.requests/3/5@pX3kQ9aZ", reply_topic=REPLIES, reply_partition=3
    )
    assert position_id(record(), TOPIC_ID) == POSITION


def test_a_reply_partition_always_exists() -> None:
    """Where the reply topic has fewer partitions than the requests', the number wraps."""
    assert read(partition=6)[0].reply_partition == 6 % REPLY_TOPICS[REPLIES]


def test_the_producers_id_names_the_request() -> None:
    """`ce_id` is the request id; the position keeps its own name beside it."""
    envelope, refused = read(("ce_id", b"0193-abc"))
    assert refused is None
    assert (envelope.request_id, envelope.position_id) == ("0193-abc", POSITION)


@pytest.mark.parametrize("content", [b"", b"a b", b"a\r\nHost: x", b"\xff", "ü".encode(), b"x" * 201, b"a\x00", b"a\x7f", b"a\n"])
def test_an_id_that_no_header_can_carry_is_refused(content: bytes) -> None:
    """It would travel as Idempotency-Key: spaces, line ends and other bytes would change or split the call. The position names it."""
    envelope, refused = read(("ce_id", content))
    assert refused is not None
    assert refused.reason is Reason.MALFORMED
    assert envelope.request_id == POSITION


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_known_header_stands_once_and_has_a_value(name: str) -> None:
    """Two values of one name, or none, leave open what is meant: malformed, with the header named."""
    for headers in [((name, None),), ((name, b"1"), (name, b"1"))]:
        refused = read(*headers)[1]
        assert refused is not None
        assert refused.reason is Reason.MALFORMED
        assert f"header {name} " in refused.message


def test_other_headers_may_be_anything() -> None:
    """What we do not read is not ours to judge: None, duplicates, bytes."""
    assert read(("x", None), ("x", b"\xff"), ("x", b""), ("", b"1"))[1] is None


def test_unreadable_header_names_are_malformed() -> None:
    """The client shows no headers at all then; the record can still be named and answered."""
    envelope, refused = read_envelope(record(headers=None), TOPIC_ID, REPLIES, REPLY_TOPICS)
    assert refused is not None
    assert refused.reason is Reason.MALFORMED
    assert (envelope.request_id, envelope.reply_topic) == (POSITION, REPLIES)


def test_correlation_ids_are_echoed_byte_for_byte_in_kind() -> None:
    """Spring's 16 raw bytes and another's text both come back, each under its own name."""
    raw = bytes(range(240, 256))
    envelope, refused = read(("correlation_id", b"text"), ("kafka_correlationId", raw))
    assert refused is None
    assert set(envelope.echoed) == {("kafka_correlationId", raw), ("correlation_id", b"text")}


def test_a_huge_correlation_id_is_refused() -> None:
    """What is echoed is bounded: else a sender makes replies that fit no topic."""
    assert read(("kafka_correlationId", b"x" * 4096))[1] is None
    envelope, refused = read(("kafka_correlationId", b"x" * 4000), ("correlation_id", b"x" * 97))
    assert refused is not None
    assert refused.reason is Reason.MALFORMED
    assert envelope.echoed == ()


def test_trace_context_passes_or_is_dropped() -> None:
    """W3C: a broken trace context is never a reason to refuse."""
    assert read(TRACE, ("tracestate", b"a=1"))[0].trace == ((TRACE[0], TRACE[1].decode()), ("tracestate", "a=1"))
    for broken in (b"\xff", b"a\r\nX: y", b"x" * 1025, "ü".encode()):
        envelope, refused = read(("traceparent", broken))
        assert (envelope.trace, refused) == ((), None)


@pytest.mark.parametrize(
    "header",
    [
        ("ce_specversion", b"2.0"),
        ("ce_specversion", b""),
        ("ce_specversion", b"10"),
        ("ce_type", b"dispatcher.request.v2"),
        ("ce_type", b"com.example.other"),
        ("ce_type", b"\xff"),
        ("content-type", b"text/plain"),
        ("content-type", b"avro/binary"),
        ("content-type", b""),
    ],
)
def test_another_version_or_format_is_unsupported(header: Header) -> None:
    """An unknown major version is never read as version 1."""
    refused = read(header)[1]
    assert refused is not None
    assert refused.reason is Reason.UNSUPPORTED_SCHEMA


@pytest.mark.parametrize(
    "header",
    [
        ("ce_specversion", b"1.0"),
        ("ce_specversion", b"1.0.2"),
        ("ce_type", b"dispatcher.request.v1"),
        ("content-type", b"application/json"),
        ("content-type", b"Application/JSON; charset=utf-8"),
        ("content-type", b"application/cloudevents+json"),
        ("ce_source", b"\xff"),
        ("ce_time", b"yesterday"),
    ],
)
def test_this_version_is_read(header: Header) -> None:
    """Version 1 in its spellings; headers that decide nothing may say anything."""
    assert read(header)[1] is None


@pytest.mark.parametrize("name", ["kafka_replyTopic", "reply_to"])
def test_a_listed_reply_topic_is_used(name: str) -> None:
    """With the record's partition number, wrapped into that topic's."""
    envelope, refused = read((name, b"team.replies"), partition=3)
    assert refused is None
    assert (envelope.reply_topic, envelope.reply_partition) == ("team.replies", 1)


@pytest.mark.parametrize("topic", [b"other", b"", b"\xff", b"dispatcher.requests", b"TEAM.replies", b"team.replies\x00", b"team.replies "])
def test_another_reply_topic_is_forbidden(topic: bytes) -> None:
    """The sender chooses it: only listed ones are written, and the refusal is answered on the default one."""
    envelope, refused = read(("kafka_replyTopic", topic))
    assert refused is not None
    assert refused.reason is Reason.REPLY_TOPIC_FORBIDDEN
    assert envelope.reply_topic == REPLIES


def test_spring_s_header_is_read_before_the_other() -> None:
    """Both present: `kafka_replyTopic` decides."""
    assert read(("reply_to", b"other"), ("kafka_replyTopic", b"team.replies"))[0].reply_topic == "team.replies"


@pytest.mark.parametrize(("number", "exists"), [(-1, False), (0, True), (1, True), (2, False), (2**31 - 1, False)])
def test_a_reply_partition_must_exist(number: int, exists: bool) -> None:  # noqa: FBT001 - a column of the table
    """A partition that does not exist would abort everybody's transaction: refused before, and answered where one can."""
    envelope, refused = read(("kafka_replyTopic", b"team.replies"), ("kafka_replyPartition", FOUR[number]))
    if exists:
        assert refused is None
        assert (envelope.reply_topic, envelope.reply_partition) == ("team.replies", number)
    else:
        assert refused is not None
        assert refused.reason is Reason.REPLY_TOPIC_FORBIDDEN
        assert envelope.reply_partition in range(REPLY_TOPICS[envelope.reply_topic])


@pytest.mark.parametrize("raw", [b"", b"1", b"\0\0\0", b"\0\0\0\0\0", b"0001x"])
def test_a_reply_partition_is_four_bytes(raw: bytes) -> None:
    """Anything else is malformed, never guessed at."""
    refused = read(("kafka_replyPartition", raw))[1]
    assert refused is not None
    assert refused.reason is Reason.MALFORMED


NAMES = st.sampled_from(sorted(KNOWN)) | st.text(max_size=20)
CONTENTS = st.none() | st.binary(max_size=300) | st.sampled_from([b"team.replies", b"1.0", b"application/json", FOUR[1], FOUR[4], TRACE[1]])


@given(st.none() | st.lists(st.tuples(NAMES, CONTENTS), max_size=8).map(tuple), st.integers(0, 99))
def test_any_headers_give_an_envelope_that_can_be_answered(headers: tuple[Header, ...] | None, partition: int) -> None:
    """Never an exception; the reply goes to a listed topic and an existing partition, under an id that headers can carry."""
    envelope, refused = read_envelope(record(headers=headers, partition=partition), TOPIC_ID, REPLIES, REPLY_TOPICS)
    assert envelope.reply_partition in range(REPLY_TOPICS[envelope.reply_topic])
    assert envelope.request_id.isascii()
    assert envelope.request_id.isprintable()
    assert " " not in envelope.request_id
    assert len(envelope.request_id) <= 200
    assert all(text.isascii() and text.isprintable() for _, text in envelope.trace)
    assert sum(len(content or b"") for _, content in envelope.echoed) <= 4096
    assert refused is None or len(refused.message) < 200
