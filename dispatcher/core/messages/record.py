"""A record read from a log, and a message to be written to one. Bytes end to end: nothing is decoded here."""

from __future__ import annotations

from dataclasses import dataclass

Header = tuple[str, bytes | None]

# What a record costs in a batch beside its key, value and headers (varints, attributes), and what the batch costs; generous.
RECORD_OVERHEAD_BYTES = 128
HEADER_OVERHEAD_BYTES = 12


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record. `headers` is None where a header *name* is not UTF-8, since the client then shows none at all."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None = ()
    timestamp_ms: int | None = None  # since 1970; None where the producer gave none

    @property
    def next_offset(self) -> int:
        """The position to commit once this record is settled: the next offset to read, which need not exist."""
        return self.offset + 1

    @property
    def size_bytes(self) -> int:
        """What holding this record costs, about."""
        return size_bytes(self.key, self.value, self.headers or ())


@dataclass(frozen=True, slots=True)
class Message:
    """A record to be written, to a partition that has been decided."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def size_bytes(self) -> int:
        """Upper estimate of its size in a batch, to be held against the topic's `max.message.bytes`."""
        return size_bytes(self.key, self.value, self.headers)


def size_bytes(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """Upper estimate of a record's size on the wire, uncompressed."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + len(name) * 4 + len(content or b"")
    return size


def bounded(text: str, max_bytes: int) -> bytes:
    """`text` as UTF-8, its beginning where it is longer; halves of surrogate pairs become question marks."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore").encode()
