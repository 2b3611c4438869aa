"""Whether the request whose turn it is in a lane is a duplicate, and what is recorded for its original."""

from __future__ import annotations

from dispatcher.core.instant import Instant
from dispatcher.core.internal.journal import Ahead, Asked, Coming, Conflict, Find, Known
from dispatcher.core.lanes.ending import Endings
from dispatcher.core.lanes.lane_queue import Waiting
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.steps import BUSY, READY, Busy, Ready, Recall
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.request import Request


class Recalling:
    """Owned by one Lane. `find` says whether a request is a duplicate, and of what (`Journal.find`)."""

    __slots__ = ("_endings", "_find", "_is_fenced", "_is_new", "_recalls", "awaits_reply")

    def __init__(self, endings: Endings, find: Find) -> None:
        self._endings = endings
        self._find = find
        self._is_fenced = endings.decoder.settings.worker.publishing == "exactly_once"
        self._is_new = False  # not known yet to be no duplicate
        self._recalls: Known | None = None  # its recorded reply is on its way
        self.awaits_reply = False  # stands until the reply to its original is published

    def begin(self, request: Request, waiting: Waiting) -> None:
        """This request has its turn. One that was called before, by an earlier owner, is in the middle of its own execution.

        At least once it may be at the end of that: what is noted of its tries is taken away behind its reply.
        """
        self._is_new = bool(request.fingerprint) and not (waiting.tries.calls and self._is_fenced)
        self._recalls = None

    def ask(self, request: Request, instant: Instant, *, may_call: bool) -> Busy | Ready | Recall | Outcome | None:
        """What is to be done instead of a call, or how it ends, where another request had its id; None where it is to be called."""
        if not self._is_new:
            return None
        if self._recalls is not None:
            return BUSY
        record = request.record
        self.awaits_reply = False
        asked = Asked(request.envelope.request_id, record.key or b"", record.offset, request.fingerprint, request.envelope.redrive_id)
        match self._find(asked, instant.wall):
            case None:
                self._is_new = False
                return None
            case Coming():
                self.awaits_reply = True
                return BUSY
            case Ahead(known, recorded):
                return self._endings.again(request, known, recorded, instant)
            case Conflict():
                return self._endings.conflict(request, instant)
            case Known() as known if may_call:
                self._recalls = known
                return Recall(request, known)
            case Known():
                return READY

    def recalled(self, request: Request, recorded: Recorded | None, instant: Instant) -> Outcome | None:
        """What is recorded for the original of this duplicate, None where that is not there any more; how it ends, if it does by that."""
        known, self._recalls = self._recalls, None
        if known is None:
            return None
        if recorded is None and known.offset == request.record.offset:
            # Its own end of an earlier time, of which nobody has heard.
            self._is_new = False
            return None
        return self._endings.again(request, known, recorded, instant)
