"""What a lane has the state topic say of the request whose turn it is: how it was tried, and that a call of it may begin (the intent)."""

from __future__ import annotations

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.tried import Note, forgotten, tried
from dispatcher.core.lanes.lane_queue import Waiting
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder, Request

# An intent is committed with the transaction after the one under way, and none lasts longer than it may.
TRANSACTIONS = 2


class Noting:
    """Owned by one Lane. Of `due`, `coming` and what is acknowledged each is newer than the next.

    `due` is to be handed out, `coming` is, and not acknowledged yet. `intent`: the newest of all says that a call may have begun.
    """

    __slots__ = ("_decoder", "_intended_at", "_ledger", "_partition", "coming", "due", "intent")

    def __init__(self, partition: int, decoder: Decoder, ledger: Ledger) -> None:
        self._partition = partition
        self._ledger = ledger
        self._decoder = decoder
        self.due: Note | None = None
        self.coming: Note | None = None
        self.intent = False
        self._intended_at = 0.0  # monotonic seconds

    def must_intend(self, request: Request) -> bool:
        """Whether something has to stand there before a call: that it may begin, or what budgets set aside for it."""
        return not self.intent and (not request.repeats or self._ledger.is_for(request))

    def is_late(self, record: Record, instant: Instant) -> bool:
        """Whether the intent is older than a commit takes: who was frozen or cut off meanwhile may have lost the partition since.

        Its next owner has then told that the outcome is unknown, and a call that begins only now would come behind that.
        Nor is it made with the money of a day that has ended.
        """
        limit_s = TRANSACTIONS * self._decoder.settings.worker.transaction_timeout_s
        return self.intent and (instant.mono - self._intended_at >= limit_s or self._ledger.is_over(record, instant.wall))

    def intend(self, request: Request, waiting: Waiting, instant: Instant) -> Note:
        """The next call is about to be made; what has to stand there before."""
        tries = Tries(waiting.tries.calls + 1, waiting.tries.failures, waiting.tries.hinted_since)
        self.coming = self._note(waiting, tries, instant, begun=True)
        self.intent = True
        self._intended_at = instant.mono
        self._ledger.reserve(request, instant.wall)
        return self.coming

    def attempted(self, waiting: Waiting, instant: Instant) -> None:
        """A call has ended, and is known not to have been done for good; or was not made: this is how often it was tried."""
        self.intent = False
        self._ledger.release(waiting.record)
        self.due = self._note(waiting, waiting.tries, instant)

    def withdraw(self, waiting: Waiting, instant: Instant) -> bool:
        """No call is made now; whether one was intended, so that this is due to be told."""
        is_intended = self.intent
        if is_intended:
            self.attempted(waiting, instant)
        return is_intended

    def take(self) -> Note:
        """What is due, to be handed out."""
        assert self.due is not None
        self.coming, self.due = self.due, None
        return self.coming

    def acknowledge(self, note: Note) -> bool:
        """This stands there; whether it is what the lane waits for."""
        if self.coming is not note:
            return False
        self.coming = None
        return True

    def forget(self) -> None:
        """The request has ended, or is parked: what ends it ends what is said of it here."""
        self.due = self.coming = None
        self.intent = False

    def _note(self, waiting: Waiting, tries: Tries, instant: Instant, *, begun: bool = False) -> Note:
        record, topic, topic_id = waiting.record, self._decoder.settings.topics.state, self._decoder.topic_id
        if tries.calls == 0:
            return Note(record.key, record.offset, forgotten(topic, topic_id, self._partition, record.offset))
        until, why = waiting.not_before, waiting.why
        known = tried(record.offset, tries, until, why, instant, waiting.started, begun=begun, used=waiting.used)
        return Note(record.key, record.offset, known.message(topic, topic_id, self._partition))
