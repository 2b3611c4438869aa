"""Taking requests in: a record that has its turn is decoded, and given what earlier owners have noted of it; or it ends at once."""

from __future__ import annotations

from collections.abc import MutableMapping

from dispatcher.core.instant import Instant
from dispatcher.core.internal.tried import Tried
from dispatcher.core.lanes.ending import Early, Endings
from dispatcher.core.lanes.lane_queue import Waiting
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.envelope import Envelope, Refusal
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason


class Intake:
    """Owned by one Lane. `tried`: what earlier owners have noted of requests, by offset."""

    __slots__ = ("_decoder", "_endings", "_tried")

    def __init__(self, endings: Endings, decoder: Decoder, tried: MutableMapping[int, Tried]) -> None:
        self._endings = endings
        self._decoder = decoder
        self._tried = tried

    def take(self, waiting: Waiting, instant: Instant) -> Request | Outcome:
        """The request that has its turn; its end, where it cannot be executed, or may have been."""
        if (unknown := self._recalled(waiting, instant)) is not None:
            return unknown
        decoded = self._decoded(waiting.record)
        if isinstance(decoded, Request):
            return decoded
        return self._endings.refused(waiting.record, *decoded, instant, calls=waiting.tries.calls).billed(waiting.used)

    def refused(self, waiting: Waiting, instant: Instant) -> Outcome:
        """The end of a request that is known to be too large; it is not called, so that it need not wait for its turn."""
        taken = self.take(waiting, instant)
        assert isinstance(taken, Outcome)
        return taken

    def end(self, waiting: Waiting, early: Early, instant: Instant) -> Outcome:
        """The end of a request before its turn; one that could not have been executed ends as it would have."""
        if (unknown := self._recalled(waiting, instant)) is not None:
            return unknown
        decoded, calls = self._decoded(waiting.record), waiting.tries.calls
        if isinstance(decoded, Request):
            return self._endings.early(decoded, early, calls, instant).billed(waiting.used)
        return self._endings.refused(waiting.record, *decoded, instant, calls=calls).billed(waiting.used)

    def overflown(self, record: Record, instant: Instant) -> Outcome:
        """The end of a request of which there are too many."""
        if (unknown := self._recalled(Waiting(record, instant.mono), instant)) is not None:
            return unknown
        decoded = self._decoded(record)
        if not isinstance(decoded, Request):
            return self._endings.refused(record, *decoded, instant)
        most = self._decoder.settings.worker.halted_max_records
        refusal = Refusal(Reason.HALTED_KEY, f"its key is halted after a failure, and {most} requests wait behind that already")
        return self._endings.refused(record, decoded.envelope, refusal, "", instant)

    def is_begun(self, offset: int) -> bool:
        """Whether an earlier owner may have called it, and said nothing more."""
        return (known := self._tried.get(offset)) is not None and known.begun

    def _recalled(self, waiting: Waiting, instant: Instant) -> Outcome | None:
        """Take in what an earlier owner noted of its tries; its end, where a call may have been made that must not be made twice."""
        if not waiting.recall(self._tried, instant):
            return None
        unknown = self._endings.unknown(waiting.record, self._decoded(waiting.record), waiting.tries.calls, instant)
        return None if unknown is None else unknown.billed(waiting.used)

    def _decoded(self, record: Record) -> Request | tuple[Envelope, Refusal, str]:
        """The request; or the envelope, why it is refused, and the class of an error of ours."""
        try:
            decoded = self._decoder.decode(record)
        except Exception as error:  # noqa: BLE001 - a bug of ours, met on one record, must not end worker after worker
            return (*self._decoder.unreadable(record), type(error).__name__)
        return decoded if isinstance(decoded, Request) else (*decoded, "")
