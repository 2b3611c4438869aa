"""One record written byte by byte through Kafka's Produce request, for what no client library lets a test send."""

from __future__ import annotations

import socket
import struct
import time

RawHeaders = tuple[tuple[bytes, bytes | None], ...]
_PRODUCE, _VERSION, _TIMEOUT_S = 0, 8, 10


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders,
    *,
    timestamp_ms: int | None = None,
) -> int:
    """Write one record through the only broker of a test run; returns its offset. `timestamp_ms`: since 1970, -1 for none; now if None."""
    batch = _batch(_record(key, value, headers), int(time.time() * 1000) if timestamp_ms is None else timestamp_ms)
    part = struct.pack(">ii", partition, len(batch)) + batch
    body = struct.pack(">hhi", -1, -1, _TIMEOUT_S * 1000) + struct.pack(">i", 1) + _text(topic) + struct.pack(">i", 1) + part
    head = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("raw")
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = _read(connection, *struct.unpack(">i", _read(connection, 4)))
    # Correlation id, one topic with its name, one partition: its number, error code and base offset.
    start = 4 + 4 + 2 + len(topic.encode()) + 4
    number, error, offset = struct.unpack_from(">ihq", answer, start)
    assert (number, error) == (partition, 0), f"the broker refused the raw record: error {error}"
    return int(offset)


def _record(key: bytes | None, value: bytes | None, headers: RawHeaders) -> bytes:
    parts = [b"\0", _varint(0), _varint(0), _bytes(key), _bytes(value), _varint(len(headers))]
    parts += [_bytes(name) + _bytes(content) for name, content in headers]
    record = b"".join(parts)
    return _varint(len(record)) + record


def _batch(record: bytes, now_ms: int) -> bytes:
    """Make a batch of magic 2 that holds one record of no producer id, without compression."""
    signed = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    after_length = struct.pack(">ibI", -1, 2, _crc32c(signed)) + signed
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _crc32c(content: bytes) -> int:
    """Give the Castagnoli checksum, bit by bit: the records are small."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _read(connection: socket.socket, count: int) -> bytes:
    out = b""
    while len(out) < count:
        more = connection.recv(count - len(out))
        assert more, "the broker closed the connection: it did not like the request"
        out += more
    return out
