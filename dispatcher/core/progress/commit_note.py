"""What travels in the metadata of a commit: which assignment made it, which transaction, and what is settled above the position.

Format, version 2: base64 of magic `dsp`, the version (1 byte), the topic's id (16 bytes), epoch, transaction number and position (unsigned
64-bit, big-endian), a CRC-32 of all the rest, then for each settled range, in order, two LEB128 numbers: how far it begins behind the
stop of the one before (the first: behind the position), and its length. Offsets below the position and in the ranges are never executed
again. Version 1, of before there were lanes per key, ends after the transaction number.

Kafka takes at most 4,096 bytes (`offset.metadata.max.bytes`), of which the client library sends one behind the text, and a larger one
would abort the transaction: ranges that do not fit are left out, the highest first, and what is in them may be called again after a
crash. Anything else that is found there is another tool's.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dispatcher.core.bounds import EPOCH_MAX, OFFSET_MAX

METADATA_MAX = 4095
_HEAD = struct.Struct(">3sB16sQQ")
_BODY = struct.Struct(">QI")
_MAGIC, _VERSION = b"dsp", 2
# Four characters of base64 carry three bytes.
RANGES_MAX_BYTES = METADATA_MAX // 4 * 3 - _HEAD.size - _BODY.size

# How a worker tells of a position without a note, and what follows: what had ended above it is not known any more. A group that has just
# been given its first positions has none either.
FOREIGN, MISSING = "commit_metadata_ignored", "commit_note_missing"
WITHOUT_NOTE = "unless the group is new, another tool committed: what had ended above this position is called, and answered, again"

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CommitNote:
    """`epoch` rises with every assignment of the partition; `transaction` with every commit under it. `settled` belongs to `position`."""

    topic_id: bytes
    epoch: int
    transaction: int
    position: int = 0
    settled: tuple[Range, ...] = ()

    def encode(self) -> str:
        """The text to commit."""
        head = _HEAD.pack(_MAGIC, _VERSION, self.topic_id, self.epoch, self.transaction)
        ranges = _packed(self.position, self.settled)
        check = zlib.crc32(ranges, zlib.crc32(head + self.position.to_bytes(8, "big")))
        return base64.b64encode(head + _BODY.pack(self.position, check) + ranges).decode("ascii")

    def settled_at(self, position: int | None) -> tuple[Range, ...]:
        """What is settled above a committed position; nothing where the note was written for another one, which somebody moved."""
        return self.settled if position == self.position else ()


def decode(text: str | None, topic_id: bytes) -> CommitNote | None:
    """The note in `text`; None where there is none of ours, or one of a topic that was deleted and made anew."""
    note = decode_any(text)
    return note if note is not None and note.topic_id == topic_id else None


def decode_any(text: str | None) -> CommitNote | None:
    """The note in `text`, whatever topic it is about; None where it is not ours, or corrupt.

    One that says what none of ours can say is not ours, whatever its check sum: its numbers are counted on, and written again.
    """
    note = _read(text)
    return note if note is not None and _can_be(note) else None


def _can_be(note: CommitNote) -> bool:
    reaches = max((stop for _, stop in note.settled), default=note.position)
    return max(note.epoch, note.transaction) <= EPOCH_MAX and max(note.position, reaches) <= OFFSET_MAX


def _read(text: str | None) -> CommitNote | None:
    try:
        raw = base64.b64decode(text or "", validate=True)
        magic, version, topic, epoch, transaction = _HEAD.unpack_from(raw)
        if magic != _MAGIC:
            return None
        if version == 1 and len(raw) == _HEAD.size:
            return CommitNote(topic, epoch, transaction)
        position, check = _BODY.unpack_from(raw, _HEAD.size)
        ranges = raw[_HEAD.size + _BODY.size :]
        if version != _VERSION or check != zlib.crc32(ranges, zlib.crc32(raw[: _HEAD.size] + position.to_bytes(8, "big"))):
            return None
        return CommitNote(topic, epoch, transaction, position, tuple(_unpacked(position, ranges)))
    except (binascii.Error, struct.error, ValueError, RuntimeError):  # RuntimeError: a start without its length
        return None


def next_epoch(note: CommitNote | None, wall_s: float) -> int:
    """The epoch of a new assignment: one more than the last, or the seconds since 1970 where no note survived.

    A tool that resets offsets wipes the metadata; seconds are far above any counter, so epochs that callees saw never go back.
    """
    return int(wall_s) if note is None else note.epoch + 1


def _packed(position: int, settled: Iterable[Range]) -> bytes:
    """The ranges, as many as fit."""
    packed = bytearray()
    at = position
    for start, stop in settled:
        before = len(packed)
        for number in (start - at, stop - start):
            while number > 0x7F:
                packed.append(number & 0x7F | 0x80)
                number >>= 7  # noqa: PLW2901 - the number is used up digit by digit
            packed.append(number)
        if len(packed) > RANGES_MAX_BYTES:
            del packed[before:]
            break
        at = stop
    return bytes(packed)


def _unpacked(position: int, packed: bytes) -> Iterator[Range]:
    at, numbers = position, _numbers(packed)
    for gap in numbers:
        start = at + gap
        at = start + next(numbers)
        yield start, at


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
