"""How one record ended: its terminal reply, its dead letter if there is one, and the position that may be committed with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dispatcher.core.internal.control import Command
from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.tried import Note
from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.reply import Fault, Reply
from dispatcher.core.messages.status import Reason, Status
from dispatcher.core.messages.usage import Usage
from dispatcher.core.progress.commit_note import Range
from dispatcher.core.progress.strand import number_of, source_of, strand_of


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of one assignment: results of another epoch never count."""

    partition: int
    epoch: int
    source: int = 0  # where the topic of that partition stands among those that the worker reads

    @property
    def strand(self) -> int:
        """Which partition of which topic it is."""
        return strand_of(self.source, self.partition)


def owner_of(strand: int, epoch: int) -> Owner:
    """The assignment of a strand."""
    return Owner(number_of(strand), epoch, source_of(strand))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Made by a lane, given `position` and what follows it by the partition, published by the publisher.

    Without a reply it moves its record to the parked topic (`parks`), notes how a request was tried (`note`), or only moves the position.
    `extra` is published with it: the parked request or its tombstone, the record that halts its key, the note or its tombstone.
    `finished` is what the journal is to know of it, if it is to know.
    """

    owner: Owner
    record: Record | None
    reply: Reply | None
    letter: DeadLetter | None = None
    position: int = -1
    span: Range | None = None  # what of the log it settles; None for what had left the log before
    number: int = -1  # tells it from other outcomes of its assignment
    extra: tuple[Message, ...] = ()
    parks: bool = False
    place: int = -1  # where a parked request stands in its topic, once it is published
    halt: Command | None = None
    extra_bytes: int = 0
    finished: Finished | None = None
    note: Note | None = None

    @property
    def size_bytes(self) -> int:
        """What publishing this takes, at most about: key, metadata and answer, and the record once more if there is a dead letter."""
        size = self.extra_bytes + (0 if self.letter is None else self.letter.record.size_bytes)
        if self.reply is not None:
            size += len(self.reply.record.key or b"") + len(self.reply.metadata or b"")
            # A body that is no JSON grows by a third in base64.
            size += len(self.reply.answer.body) * 4 // 3 if self.reply.answer is not None else 0
            size += self.reply.recorded.size_bytes if self.reply.recorded is not None else 0
        return size

    def billed(self, used: Usage | None) -> Outcome:
        """This outcome, where its reply says what the request's answers were billed for."""
        if used is None or self.reply is None:
            return self
        return replace(self, reply=replace(self.reply, usage=used))

    def messages(self) -> tuple[Message, ...]:
        """What is to be published, the letter first: in at-least-once mode a crash may then repeat, but never hide it."""
        letter = () if self.letter is None else (self.letter.letter(),)
        reply = () if self.reply is None else (self.reply.message(),)
        journal = () if self.finished is None else (self.finished.message(),)
        return (*letter, *reply, *journal, *self.extra)

    def fitted(self, limits: Mapping[str, int]) -> Outcome:
        """This outcome with every message within its topic's limit in bytes: one bad record aborts everybody's transaction."""
        outcome = self
        for _ in range(4):
            over = [message for message in outcome.messages() if message.size_bytes > limits.get(message.topic, 1 << 62)]
            if not over:
                break
            for message in over:
                outcome = outcome.cut(message.topic)
        return outcome

    def cut(self, topic: str) -> Outcome:
        """This outcome with its messages for `topic` in less space."""
        letter, reply = self.letter, self.reply
        if letter is not None and letter.topic == topic:
            letter = letter.cut()
        if reply is not None and reply.envelope.reply_topic == topic:
            reply = reply.cut()
        return self._answered(reply, letter)

    def readdressed(self, default_topic: str, letter_topic: str, group: str) -> Outcome:
        """This outcome where the reply topic that was asked for cannot be written: answered on the default one, as a dead letter."""
        reply, record = self.reply, self.record
        if reply is None or record is None:
            return self
        message = "the reply topic or partition that was asked for cannot be written"
        envelope = replace(reply.envelope, reply_topic=default_topic, reply_partition=record.partition)
        letter = DeadLetter(record, letter_topic, record.partition, group, Reason.REPLY_TOPIC_FORBIDDEN, message, "publish", "reply_topic")
        letter = replace(letter, attempts=reply.attempts, http_status=reply.answer.status if reply.answer is not None else None)
        fault = Fault(Reason.REPLY_TOPIC_FORBIDDEN.value, message)
        reply = replace(reply, envelope=envelope, status=Status.DEAD, reason=Reason.REPLY_TOPIC_FORBIDDEN, fault=fault)
        return self._answered(reply, self.letter or letter)

    def _answered(self, reply: Reply | None, letter: DeadLetter | None) -> Outcome:
        """This outcome with another reply and letter; the journal has to know of the reply as it is published."""
        finished = self.finished
        if finished is not None and reply is not None:
            finished = finished.answered(reply.status, reply.envelope.reply_topic, reply.envelope.reply_partition)
        return replace(self, reply=reply, letter=letter, finished=finished)
