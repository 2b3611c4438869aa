"""What travels in the metadata of a commit: which assignment made it, and which transaction.

Format: base64 of magic `dsp`, version 1, the topic's id (16 bytes), epoch and transaction number (unsigned 64-bit, big-endian). Kafka
takes at most 4,096 bytes (`offset.metadata.max.bytes`); this is 48. Anything else there is another tool's: it is ignored.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

_LAYOUT = struct.Struct(">3sB16sQQ")
_MAGIC, _VERSION = b"dsp", 1


@dataclass(frozen=True, slots=True)
class CommitNote:
    """`epoch` rises with every assignment of the partition; `transaction` with every commit under it."""

    topic_id: bytes
    epoch: int
    transaction: int

    def encode(self) -> str:
        """The text to commit."""
        return base64.b64encode(_LAYOUT.pack(_MAGIC, _VERSION, self.topic_id, self.epoch, self.transaction)).decode("ascii")


def decode(text: str | None, topic_id: bytes) -> CommitNote | None:
    """The note in `text`; None where there is none of ours, or one of a topic that was deleted and made anew."""
    try:
        magic, version, topic, epoch, transaction = _LAYOUT.unpack(base64.b64decode(text or "", validate=True))
    except (binascii.Error, struct.error, ValueError):
        return None
    if magic != _MAGIC or version != _VERSION or topic != topic_id:
        return None
    return CommitNote(topic, epoch, transaction)


def next_epoch(note: CommitNote | None, wall_s: float) -> int:
    """The epoch of a new assignment: one more than the last, or the seconds since 1970 where no note survived.

    A tool that resets offsets wipes the metadata; seconds are far above any counter, so epochs that callees saw never go back.
    """
    return int(wall_s) if note is None else note.epoch + 1
