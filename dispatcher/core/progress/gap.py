"""A gap: the log of a partition does not hold what its group would read next, and nothing tells by itself where to go on.

To read on anyway would skip requests in silence, or call some twice. So the partition stands, for everybody to see, while others go on;
where retention took the records, and where the position is of a former topic, the settings may say that it goes on behind the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from dispatcher.core.progress.commit_note import CommitNote, decode_any


class Cause(StrEnum):
    """Why a position is none."""

    RETENTION = "retention"  # records were removed before they were executed
    BEYOND_END = "beyond_end"  # somebody set a position that the log has not reached
    NO_POSITION = "no_position"  # other partitions of the group have one
    LOG_CUT = "log_cut"  # records are settled that the log does not hold any more: it has lost its end
    FORMER_TOPIC = "former_topic"  # the topic was deleted and made anew since it was committed


_SEEK = "stop the workers and move the position with `dispatcher lanes seek`"
_HINTS = {
    Cause.RETENTION: f'{_SEEK}, or set worker.on_gap = "continue": it goes on at the first record that is there',
    Cause.BEYOND_END: f"another tool may have moved it: {_SEEK}",
    Cause.NO_POSITION: "stop the workers and run `dispatcher topics init --fill-gaps earliest` (or latest)",
    Cause.LOG_CUT: "the broker has lost records that it had acknowledged (unclean election, power loss) and gives their offsets to others: "
    f'{_SEEK}, or set worker.on_gap = "continue": what has ended beyond the end is forgotten',
    Cause.FORMER_TOPIC: f'{_SEEK}, or set worker.on_gap = "continue": it begins at the start of the new topic',
}


@dataclass(frozen=True, slots=True)
class Gap:
    """One partition's. `position` is what would be read next (None: unknown), `start` and `end` what the log holds, where it was asked.

    `metadata` is what counts of the text that was committed beside the position, where something of it does.
    """

    partition: int
    cause: Cause
    position: int | None
    start: int | None = None
    end: int | None = None
    metadata: str | None = None

    @property
    def lost(self) -> int:
        """Offsets that retention removed before they were read: at most so many requests; what had ended before is among them."""
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
        if self.cause is Cause.LOG_CUT and self.position is not None:
            return self.position
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


def cut_off(partition: int, position: int, note: CommitNote, start: int, end: int) -> Gap | None:
    """The gap where what `note` tells to be settled above the position reaches beyond the end of the log; None where it does not.

    New requests get those offsets, and would be dropped as settled. Once the log has grown beyond them again nothing tells of it.
    """
    settled = note.settled_at(position)
    if not settled or settled[-1][1] <= end:
        return None
    left = tuple((first, min(stop, end)) for first, stop in settled if first < end)
    return Gap(partition, Cause.LOG_CUT, position, start, end, replace(note, settled=left).encode())


def former(partition: int, position: int, metadata: str | None, topic_id: bytes) -> Gap | None:
    """The gap of a position that was committed for a former topic of this name; None where nothing says so.

    Kafka drops a group's positions with their topic; what restored or mirrored them, or committed late, does not know.
    """
    note = decode_any(metadata)
    if position == 0 or note is None or note.topic_id == topic_id:
        return None
    return Gap(partition, Cause.FORMER_TOPIC, position)
