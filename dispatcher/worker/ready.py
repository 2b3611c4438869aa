"""Outcomes with the messages that they are published as."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message


@dataclass(frozen=True, slots=True)
class Ready:
    """An outcome, rendered once: its messages fit their topics."""

    outcome: Outcome
    messages: tuple[Message, ...]

    @property
    def owner(self) -> Owner:
        """The assignment that it belongs to."""
        return self.outcome.owner

    def without(self, delivered: Collection[Message]) -> Ready:
        """Give what is left of it once some of its messages are delivered."""
        return Ready(self.outcome, tuple(message for message in self.messages if message not in delivered))


def messages_of(pending: Iterable[Ready]) -> list[Message]:
    """All messages, in the order of their outcomes."""
    return [message for ready in pending for message in ready.messages]


def parted(pending: Sequence[Ready]) -> tuple[list[Ready], list[Ready]]:
    """What may be published at once, and tombstones, in their order, that may be only when all of that is acknowledged.

    A tombstone takes a request away to whose end the reply beside it testifies: alone in a log it would be a loss. One whose key is
    written again behind it has no effect, and is left out.
    """
    first: list[Ready] = []
    last: list[Ready] = []
    written: set[tuple[str, int, bytes | None]] = set()
    for ready in reversed(pending):
        ends: list[Message] = []
        for message in reversed(ready.outcome.extra):
            where = message.topic, message.partition, message.key
            if message.value is None and where not in written:
                ends.insert(0, message)
            written.add(where)
        if any(message.value is None for message in ready.outcome.extra):
            left = replace(ready.outcome, extra=tuple(message for message in ready.outcome.extra if message.value is not None))
            first.append(Ready(left, ready.messages[: len(ready.messages) - len(ready.outcome.extra)] + left.extra))
        else:
            first.append(ready)
        if ends:
            outcome = Outcome(ready.owner, None, None, extra=tuple(ends))
            last.append(Ready(outcome, outcome.extra))
    return first[::-1], last[::-1]


def outcome_index(pending: Sequence[Ready], message: int) -> int:
    """Say which outcome message number `message` belongs to."""
    seen = 0
    for i, ready in enumerate(pending):
        seen += len(ready.messages)
        if message < seen:
            return i
    raise AssertionError(f"no message {message}")


def placed(pending: Iterable[Ready], places: Mapping[bytes, int]) -> list[Outcome]:
    """The outcomes that were published, each parked request with its place in its topic, by the key that it has there."""
    return [
        replace(ready.outcome, place=places.get(ready.outcome.extra[0].key or b"", -1)) if ready.outcome.parks else ready.outcome
        for ready in pending
    ]
