"""Outcomes with the messages that they are published as."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dispatcher.core.commit_note import CommitNote
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


def positions_of(pending: Iterable[Ready], topic_id: bytes, transaction: int) -> dict[Owner, tuple[int, str]]:
    """Per assignment the position and metadata to commit: those of its last outcome, since they are in order."""
    last = {ready.owner: ready.outcome.position for ready in pending}
    return {owner: (position, CommitNote(topic_id, owner.epoch, transaction).encode()) for owner, position in last.items()}


def outcome_index(pending: Sequence[Ready], message: int) -> int:
    """Say which outcome message number `message` belongs to."""
    seen = 0
    for i, ready in enumerate(pending):
        seen += len(ready.messages)
        if message < seen:
            return i
    raise AssertionError(f"no message {message}")
