"""Outcomes with the messages that they are published as."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.record import Message


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
