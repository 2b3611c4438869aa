"""A gap: the log of a partition does not hold what its group would read next, and nothing tells by itself where to go on.

To read on anyway would skip requests in silence, or call some twice. So the partition stands, for everybody to see, while others go on;
where retention took the records, and where the position is of a former topic, the settings may say that it goes on behind the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.core.progress.commit_note import decode_any


class Cause(StrEnum):
    """Why a position is none."""

    RETENTION = "retention"  # records were removed before they were executed
    BEYOND_END = "beyond_end"  # somebody set a position that the log has not reached
    NO_POSITION = "no_position"  # other partitions of the group have one
    FORMER_TOPIC = "former_topic"  # the topic was deleted and made anew since it was committed


_SEEK = "stop the workers and move the position with `dispatcher lanes seek`"
_HINTS = {
    Cause.RETENTION: f'{_SEEK}, or set worker.on_gap = "continue": it goes on at the first record that is there',
    Cause.BEYOND_END: f"another tool may have moved it: {_SEEK}",
    Cause.NO_POSITION: "stop the workers and run `dispatcher topics init --fill-gaps earliest` (or latest)",
    Cause.FORMER_TOPIC: f'{_SEEK}, or set worker.on_gap = "continue": it begins at the start of the new topic',
}


@dataclass(frozen=True, slots=True)
class Gap:
    """One partition's. `position` is what would be read next (None: unknown), `start` and `end` what the log holds, where it was asked."""

    partition: int
    cause: Cause
    position: int | None
    start: int | None = None
    end: int | None = None

    @property
    def lost(self) -> int:
        """Offsets that retention removed unexecuted: at most so many requests."""
        if self.cause is not Cause.RETENTION or self.position is None or self.start is None:
            return 0
        return self.start - self.position

    @property
    def may_be_passed(self) -> bool:
        """Whether there is one place to go on at, where nothing is lost or repeated beyond what is lost already."""
        return self.cause in {Cause.RETENTION, Cause.FORMER_TOPIC} and self.start is not None

    @property
    def goes_on_at(self) -> int:
        """The first offset that is there, of a gap that may be passed."""
        assert self.start is not None
        return self.start

    @property
    def hint(self) -> str:
        """What a person can do."""
        return _HINTS[self.cause]

    def fields(self) -> Mapping[str, object]:
        """What a log line says of it."""
        where = {"position": self.position, "log_start": self.start, "log_end": self.end}
        return {"partition": self.partition, "cause": self.cause.value} | {name: to for name, to in where.items() if to is not None}


def gap_at(partition: int, position: int, start: int, end: int) -> Gap | None:
    """The gap at a position that the broker refused, given what the log holds; None where it holds the position after all."""
    if start <= position <= end:
        return None
    return Gap(partition, Cause.RETENTION if position < start else Cause.BEYOND_END, position, start, end)


def former(partition: int, position: int, metadata: str | None, topic_id: bytes) -> Gap | None:
    """The gap of a position that was committed for a former topic of this name; None where nothing says so.

    Kafka drops a group's positions with their topic; what restored or mirrored them, or committed late, does not know.
    """
    note = decode_any(metadata)
    if position == 0 or note is None or note.topic_id == topic_id:
        return None
    return Gap(partition, Cause.FORMER_TOPIC, position)
