"""Outcomes with the messages that they are published as, and how they are mended where the broker does not take one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dispatcher.adapters.kafka.sink import Undelivered
from dispatcher.core.commit_note import CommitNote
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.record import Message
from dispatcher.settings import Settings


@dataclass(frozen=True, slots=True)
class Ready:
    """An outcome, rendered once: its messages fit their topics."""

    outcome: Outcome
    messages: tuple[Message, ...]

    @property
    def owner(self) -> Owner:
        """The assignment that it belongs to."""
        return self.outcome.owner


def make_ready(outcome: Outcome, limits: Mapping[str, int]) -> Ready:
    """Render `outcome`, cut where a message is over its topic's limit in bytes: one bad record aborts everybody's transaction."""
    messages = outcome.messages()
    if any(message.size_bytes > limits.get(message.topic, message.size_bytes) for message in messages):
        outcome = outcome.fitted(limits)
        messages = outcome.messages()
    return Ready(outcome, messages)


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


def mended(pending: list[Ready], undelivered: Sequence[Undelivered], settings: Settings, limits: Mapping[str, int]) -> list[Ready]:
    """`pending` with what the broker does not take in a form that it can take; the same list where nothing can be mended here.

    For size one at a time, the largest: a batch of messages fails as a whole.
    """
    messages = messages_of(pending)
    topics = settings.topics
    result = list(pending)
    large = [failure.index for failure in undelivered if failure.kind == "too_large"]
    if large:
        worst = max(large, key=lambda index: messages[index].size_bytes)
        i = outcome_index(pending, worst)
        result[i] = make_ready(pending[i].outcome.cut(messages[worst].topic), limits)
    for failure in undelivered:
        # Our own topics are only waited for: the lane stands, visibly, until they are there.
        if failure.kind == "unwritable" and messages[failure.index].topic not in {topics.replies, topics.dead_letters}:
            i = outcome_index(pending, failure.index)
            moved = pending[i].outcome.readdressed(topics.replies, topics.dead_letters, settings.worker.group)
            result[i] = make_ready(moved, limits)
    return result
