"""What a replay will do, decided to the last offset before anything is done, and its text form.

The text names offsets and never times, so that it means the same set tomorrow and on another machine. It carries the id of the replay:
doing one plan twice replays nothing twice, since what was replayed under that id is found in the log (`core/operations/replay.py`).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from dispatcher.core.messages.record_json import raw_of, shown
from dispatcher.core.messages.request_id import time_ms_of
from dispatcher.core.operations.plan_text import OFFSET_MAX, PARTITIONS_MAX, TOPIC_ID_BYTES, count, packed, unpacked
from dispatcher.core.operations.positions import Anchor, Position
from dispatcher.errors import ConfigError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """The requests to replay of one partition: `requests` of them from offset `start` up to, not including, `stop`.

    `end` is where the partition ended when this was planned: what is replayed stands there or behind.
    """

    partition: int
    start: int
    stop: int
    requests: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One replay. `topic_id` (16 bytes) and `partitions` are those of the topic that it was planned for."""

    replay_id: str  # UUIDv7: begins with the time of the plan
    topic_id: bytes
    partitions: int
    parts: tuple[Part, ...]
    key: bytes | None = None
    include_replays: bool = False

    @property
    def requests(self) -> int:
        """How many requests it replays."""
        return sum(part.requests for part in self.parts)

    @property
    def time_ms(self) -> int:
        """When it was planned, milliseconds since 1970."""
        return time_ms_of(self.replay_id) or 0

    def encode(self) -> str:
        """The text form: one word."""
        parts = [[part.partition, part.start, part.stop, part.requests, part.end] for part in self.parts]
        topic = base64.b64encode(self.topic_id).decode("ascii")
        return packed([_VERSION, self.replay_id, topic, self.partitions, parts, shown(self.key), self.include_replays])


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a range that are no longer there, from `start` up to `stop`. Not `certain`: they may have been older than the range."""

    partition: int
    start: int
    stop: int
    certain: bool


def gap(since: Position, partition: int, start: int, stop: int, first: int) -> Gap | None:
    """Tell what a range lacks: one that begins `since` was found to reach from `start` to `stop`, and the partition begins at `first`.

    An offset says what it wants. A time finds the first record that is left, and the ones before it may have been of that time, too.
    """
    if since.anchor is Anchor.OFFSET and start < min(first, stop):
        return Gap(partition, start, min(first, stop), certain=True)
    if since.anchor is Anchor.TIME and start == first > 0:
        return Gap(partition, 0, first, certain=False)
    return None


def decode(text: str) -> Plan:
    """Read what `encode` gave. Raises ConfigError for anything else, also for a text that lost its end, and for what no survey finds."""
    try:
        version, replay_id, topic, partitions, parts, key, include_replays = unpacked(text)
        if version != _VERSION or time_ms_of(replay_id) is None or type(include_replays) is not bool:
            raise _fault()
        plan = Plan(
            replay_id,
            base64.b64decode(topic, validate=True),
            count(partitions),
            tuple(Part(*(count(number) for number in part)) for part in parts),
            raw_of(key, "the plan's key"),
            include_replays,
        )
    except (binascii.Error, ValueError, TypeError, AttributeError):
        raise _fault() from None
    if not _is_possible(plan):
        raise _fault()
    return plan


def _is_possible(plan: Plan) -> bool:
    """Whether a survey may have found this: each partition once, and in it a range that holds as many requests, before its end."""
    numbers = {part.partition for part in plan.parts}
    return (
        len(plan.topic_id) == TOPIC_ID_BYTES
        and plan.partitions <= PARTITIONS_MAX
        and len(numbers) == len(plan.parts)
        and all(number < plan.partitions for number in numbers)
        and all(0 < part.requests <= part.stop - part.start and part.stop <= part.end <= OFFSET_MAX for part in plan.parts)
    )


def _fault() -> ConfigError:
    return ConfigError("this is not a plan of a replay, or not all of it", "`dispatcher replay -o FROM:TO` prints one")
