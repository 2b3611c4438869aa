"""How a request ends, as an outcome: from a verdict on its call, from a refusal, or early, since nobody wants it or its deadline passed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.core.callees.verdict import Dead, Settled, describe, kind_of
from dispatcher.core.instant import Instant
from dispatcher.core.internal.control import HALTED, Command, key_target, message
from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import Known
from dispatcher.core.lanes.ledger import Spent
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.call import Answered, CallResult
from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.envelope import TOPIC_ID_SHOWN, Envelope, Refusal
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.reply import Fault, Reply
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason, Status


@dataclass(frozen=True, slots=True)
class Skipped:
    """Somebody wants a request ended; `reason` says who, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody wants a request ended, and the call cut off that it is in; `reason` says who, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline of a request has passed while no call of it was in flight."""


# Why a request ends before its turn.
Early = Skipped | Cancelled | Expired
# What `error.kind` says of a request that was cancelled in a call: that one may have been done.
CUT_OFF = "cancelled_in_call"


@dataclass(frozen=True, slots=True)
class Endings:
    """Makes the outcomes of one assignment."""

    owner: Owner
    decoder: Decoder

    @property
    def source(self) -> str:
        """Who answers, as `ce_source`."""
        return f"dispatcher/{self.decoder.settings.worker.group}"

    def judged(
        self, request: Request, result: CallResult, verdict: Settled | Dead, calls: int, started: float | None, instant: Instant
    ) -> Outcome:
        """The end of a request after call number `calls`; `started`: when its first one began, monotonic seconds."""
        record = request.record
        answer = result if isinstance(result, Answered) else None
        letter: DeadLetter | None = None
        fault: Fault | None = None
        if isinstance(verdict, Dead):
            retry_at = None if verdict.retry_in_s is None else instant.rfc3339(verdict.retry_in_s)
            fault = Fault(kind_of(result), verdict.message, retry_at)
            letter = self._letter(record, verdict.reason, verdict.message, "call", kind_of(result))
            status = answer.status if answer is not None else None
            letter = replace(letter, attempts=calls, upstream=request.call.upstream, http_status=status)
        elif verdict.status is not Status.OK:
            fault = Fault("http", describe(result))
        reply = Reply(
            record=record,
            envelope=request.envelope,
            status=Status.DEAD if isinstance(verdict, Dead) else verdict.status,
            attempts=calls,
            time=instant.rfc3339(),
            source=self.source,
            duration_ms=0 if started is None else round((instant.mono - started) * 1000),
            reason=verdict.reason if isinstance(verdict, Dead) else None,
            fault=fault,
            answer=answer,
            shown_headers=self.decoder.settings.upstreams[request.call.upstream].response_headers,
            metadata=request.metadata,
            agent=request.agent,
        )
        if letter is None and answer is not None and answer.truncated:
            reply = reply.too_large()
        outcome = Outcome(self.owner, record, reply, letter, finished=self._finished(request, reply, instant))
        return self._halting(outcome, request, instant) if letter is not None and request.halts_key else outcome

    def refused(self, record: Record, envelope: Envelope, refusal: Refusal, kind: str, instant: Instant, calls: int = 0) -> Outcome:
        """The end of a record that is not executed; `kind`: the class of the error, where it is one of ours, else empty."""
        fault = Fault(refusal.reason.value, refusal.message)
        reply = Reply(record, envelope, Status.DEAD, calls, instant.rfc3339(), self.source, reason=refusal.reason, fault=fault)
        letter = self._letter(record, refusal.reason, refusal.message, "decode", kind or refusal.reason.value)
        return Outcome(self.owner, record, reply, replace(letter, attempts=calls))

    def unknown(self, record: Record, decoded: Request | tuple[Envelope, Refusal, str], calls: int, instant: Instant) -> Outcome | None:
        """The end of a request of which a call may have been made by an owner that said nothing more; None where it may be made again.

        One that cannot be decoded any more may have been one that must not: its sender gets to know what is known of it.
        """
        message = "a worker ended while a call may have been made: it may have been done, and must not be done twice"
        if not isinstance(decoded, Request):
            refusal = Refusal(Reason.OUTCOME_UNKNOWN, f"{message}; and now: {decoded[1].message}")
            return self.refused(record, decoded[0], refusal, "crashed", instant, calls)
        if decoded.repeats:
            return None
        reason, fault = Reason.OUTCOME_UNKNOWN, Fault("crashed", message)
        outcome = self._early(decoded, Status.DEAD, fault, calls, instant)
        letter = self._letter(record, reason, message, "call", fault.kind)
        letter = replace(letter, attempts=calls, upstream=decoded.call.upstream)
        assert outcome.reply is not None
        outcome = replace(outcome, reply=replace(outcome.reply, reason=reason), letter=letter)
        return self._halting(outcome, decoded, instant) if decoded.halts_key else outcome

    def early(self, request: Request, early: Early, calls: int, instant: Instant) -> Outcome:
        """The end of a request before it was done, after that many calls.

        One that expires is `expired` if it was never called. After a call its outcome may be needed: it is dead, with a letter.
        """
        match early:
            case Skipped(reason) | Cancelled(reason):
                return self._early(request, Status.CANCELLED, Fault(Status.CANCELLED.value, reason), calls, instant)
            case Expired() if calls == 0:
                fault = Fault(Status.EXPIRED.value, "the deadline passed before the first call")
                return self._early(request, Status.EXPIRED, fault, calls, instant)
            case Expired():
                return self._overdue(request, calls, instant)

    def cut_off(self, request: Request, cancelled: Cancelled, calls: int, started: float | None, instant: Instant) -> Outcome:
        """The end of a request whose call number `calls` was cut off; `started` as in `judged`. Nobody failed: no letter, no halt."""
        text = f"{cancelled.reason}; call number {calls} was cut off, and the callee may have done it"
        outcome = self._early(request, Status.CANCELLED, Fault(CUT_OFF, text), calls, instant)
        assert outcome.reply is not None
        duration_ms = 0 if started is None else round((instant.mono - started) * 1000)
        return replace(outcome, reply=replace(outcome.reply, duration_ms=duration_ms))

    def _early(self, request: Request, status: Status, fault: Fault, calls: int, instant: Instant) -> Outcome:
        envelope, time = request.envelope, instant.rfc3339()
        reply = Reply(
            request.record, envelope, status, calls, time, self.source, fault=fault, metadata=request.metadata, agent=request.agent
        )
        return Outcome(self.owner, request.record, reply, finished=self._finished(request, reply, instant))

    def again(self, request: Request, known: Known, recorded: Recorded | None, instant: Instant) -> Outcome:
        """The end of a duplicate: as its original ended, with the reply that is recorded for that, if it is still there.

        It is no execution: no dead letter, no halted key, nothing for the journal. Without the reply it is told how the original ended,
        and an answer that is gone is an error: a program that reads `ok` reads the answer next.
        """
        envelope, time = request.envelope, instant.rfc3339()
        if recorded is None:
            status = Status.ERROR if known.status is Status.OK else known.status
            message = (
                f"this request ended as {known.status.value} before, and the recorded reply cannot be read any more: nothing was called"
            )
            fault = Fault("reply_gone", message)
            reply = Reply(request.record, envelope, status, 0, time, self.source, fault=fault)
        else:
            given = recorded.error
            reply = Reply(
                record=request.record,
                envelope=envelope,
                status=recorded.status,
                attempts=recorded.attempts,
                time=time,
                source=self.source,
                duration_ms=recorded.duration_ms,
                reason=recorded.reason,
                fault=None if given is None else Fault(given["kind"], given["message"], given.get("retry_at")),
                recorded=recorded,
            )
        return Outcome(self.owner, request.record, replace(reply, metadata=request.metadata, agent=request.agent, is_duplicate=True))

    def spent(self, request: Request, spent: Spent, calls: int, instant: Instant) -> Outcome:
        """The end of a request whose key, credential or agent has spent its budget, after that many calls."""
        reason, retry_at = Reason.BUDGET_EXHAUSTED, instant.rfc3339(max(0.0, spent.until - instant.wall))
        message = f"its {spent.whose} has spent the budget {spent.budget!r} of the day, which does not pay for another call"
        outcome = self._early(request, Status.DEAD, Fault(reason.value, message, retry_at), calls, instant)
        letter = self._letter(request.record, reason, message, "wait", reason.value)
        letter = replace(letter, attempts=calls, upstream=request.call.upstream)
        assert outcome.reply is not None
        outcome = replace(outcome, reply=replace(outcome.reply, reason=reason), letter=letter)
        return self._halting(outcome, request, instant) if request.halts_key else outcome

    def conflict(self, request: Request, instant: Instant) -> Outcome:
        """The end of a request whose id another one had: nothing can be known of what its sender means by it."""
        refusal = Refusal(Reason.ID_CONFLICT, "another request of this key had this id within the dedup window: give each its own")
        return self.refused(request.record, request.envelope, refusal, "", instant)

    def _finished(self, request: Request, reply: Reply, instant: Instant) -> Finished | None:
        """What the journal is to know; nothing of requests that nobody can send again under the same id."""
        if not request.fingerprint:
            return None
        record, envelope, decoder = request.record, request.envelope, self.decoder
        return Finished(
            topic=decoder.settings.topics.journal,
            partition=record.partition,
            offset=record.offset,
            topic_id=decoder.topic_id[:TOPIC_ID_SHOWN],
            request_id=envelope.request_id,
            key=record.key or b"",
            fingerprint=request.fingerprint,
            status=reply.status,
            calls=reply.attempts,
            at=instant.wall,
            reply_topic=envelope.reply_topic,
            reply_partition=envelope.reply_partition,
            redrive_id=envelope.redrive_id,
        )

    def _overdue(self, request: Request, calls: int, instant: Instant) -> Outcome:
        reason, fault = Reason.DEADLINE_EXCEEDED, Fault(Status.EXPIRED.value, f"the deadline passed before call number {calls + 1}")
        outcome = self._early(request, Status.DEAD, fault, calls, instant)
        letter = self._letter(request.record, reason, fault.message, "wait", fault.kind)
        letter = replace(letter, attempts=calls, upstream=request.call.upstream)
        assert outcome.reply is not None
        outcome = replace(outcome, reply=replace(outcome.reply, reason=reason), letter=letter)
        return self._halting(outcome, request, instant) if request.halts_key else outcome

    def _halting(self, outcome: Outcome, request: Request, instant: Instant) -> Outcome:
        """The same outcome, with the halt of its key written beside it.

        The request's place and this assignment make the command's id: one halt for each time that it fails, however often it is read.
        One that was let go on and fails again, after a seek for one, halts its key again.
        """
        key = request.record.key or b""
        command = Command(
            id=f"halt/{request.envelope.position_id}/{self.owner.epoch}",
            target=key_target(key),
            state=HALTED,
            at=instant.rfc3339(),
            by=self.source,
            reason=f"request {request.envelope.request_id} ended as a dead letter",
        )
        written = message(command, self.decoder.settings.topics.control)
        return replace(outcome, extra=(*outcome.extra, written), halt=command)

    def _letter(self, record: Record, reason: Reason, message: str, stage: str, kind: str) -> DeadLetter:
        settings = self.decoder.settings
        return DeadLetter(record, settings.topics.dead_letters, record.partition, settings.worker.group, reason, message, stage, kind)
