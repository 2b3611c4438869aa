"""Records and messages: bytes end to end, and a size that is never less than what the broker counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.record import Message, Record, size_bytes

HEADERS = st.lists(st.tuples(st.text(max_size=40), st.none() | st.binary(max_size=40)), max_size=8).map(tuple)


def varint_bytes(number: int) -> int:
    """Length of a zig-zag varint of Kafka's record format."""
    return max(1, -(-(number * 2).bit_length() // 7))


def field_bytes(content: bytes | None) -> int:
    """A length (-1 for none: one byte) and what it counts."""
    return 1 if content is None else varint_bytes(len(content)) + len(content)


def wire_bytes(message: Message) -> int:
    """A batch of this one record as KIP-98 lays it out: 61 bytes of batch, then the record; deltas are 0."""
    body = 1 + 1 + 1 + field_bytes(message.key) + field_bytes(message.value) + varint_bytes(len(message.headers))
    for name, content in message.headers:
        body += field_bytes(name.encode("utf-8", "surrogatepass")) + field_bytes(content)
    return 61 + varint_bytes(body) + body


@given(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300), HEADERS)
def test_the_estimate_is_never_too_small(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """What the broker holds against `max.message.bytes` is at most `size_bytes`, so a message that fits by it fits."""
    message = Message("t", 0, key, value, headers)
    assert wire_bytes(message) <= message.size_bytes == size_bytes(key, value, headers)


def test_the_estimate_grows_with_each_part() -> None:
    """Key, value, header names and header values all count."""
    plain = size_bytes(None, None, ())
    assert plain + 10 == size_bytes(b"k" * 10, None, ())
    assert plain + 10 == size_bytes(None, b"v" * 10, ())
    assert plain + 30 <= size_bytes(None, None, (("n" * 10, b"c" * 20),))


def test_unreadable_headers_cost_nothing_known() -> None:
    """A record whose header names are not UTF-8 has a size all the same."""
    record = Record("t", 0, 9, b"k", b"v", headers=None)
    assert size_bytes(b"k", b"v", ()) == record.size_bytes


def test_the_position_after_a_record_is_the_next_offset() -> None:
    """Kafka commits the next offset to read (off by one repeats or loses a record)."""
    assert Record("t", 0, 9, None, None).next_offset == 10
