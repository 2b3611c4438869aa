"""A lane: requests that are executed one after another, in order, retries in place.

A pure machine. The driver asks `next(instant)` and does what it says:

    Idle     nothing is queued
    Busy     the one call is in flight; `answered` will move the lane
    Wait     the head waits until a time, and why
    Start    make this call now; the lane is Busy from here on
    Settle   the head has ended: publish this outcome, then ask again
    Closed   the partition is being given up: nothing starts any more

A closed lane lets the call in hand end and settles it, but starts no retry: what waits is the next owner's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from dispatcher.core.call import Answered, Call, CallResult
from dispatcher.core.dead_letter import DeadLetter
from dispatcher.core.envelope import Envelope, Refusal
from dispatcher.core.instant import Instant
from dispatcher.core.outcome import Outcome, Owner
from dispatcher.core.record import Record
from dispatcher.core.reply import Fault, Reply
from dispatcher.core.request import Decoder, Request
from dispatcher.core.status import Reason, Status
from dispatcher.core.verdict import Dead, Patience, Retry, Settled, Tries, describe, judge, kind_of


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is queued."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The one call of this lane is in flight."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing starts any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The head waits until `until` (monotonic seconds); `why` is shown to people: backoff, retry_after."""

    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Start:
    """Make this call, number `attempt` of its request. The two times, in seconds, are set on the first one.

    `waited_s` since the record came to this worker; `behind_others_s`: the part of it spent behind records of *other* keys, which is
    what `ordering = "key"` would save.
    """

    call: Call
    request: Request
    attempt: int
    waited_s: float
    behind_others_s: float

    @property
    def first(self) -> bool:
        """Whether it is the first call of its request."""
        return self.attempt == 1


@dataclass(frozen=True, slots=True)
class Settle:
    """Publish this outcome."""

    outcome: Outcome


Step = Idle | Busy | Closed | Wait | Start | Settle
IDLE, BUSY, CLOSED = Idle(), Busy(), Closed()


@dataclass(slots=True)
class _Head:
    """The request whose turn it is."""

    request: Request
    arrived: float
    tries: Tries = Tries()
    not_before: float = 0.0
    why: str = ""
    started: float | None = None  # first call, monotonic


class Lane:
    """Owned by one Partition, moved only by the engine. `owner` is the assignment it lives under."""

    __slots__ = ("_calling", "_closed", "_decoder", "_free_since", "_head", "_queue", "_queued_of", "_settled", "_source", "owner")

    def __init__(self, owner: Owner, decoder: Decoder) -> None:
        self.owner = owner
        self._decoder = decoder
        self._source = f"dispatcher/{decoder.settings.worker.group}"
        self._queue: deque[tuple[Record, float]] = deque()
        self._head: _Head | None = None
        self._settled: Outcome | None = None
        self._calling = False
        self._closed = False
        # Per key with queued records: how many, and since when no earlier record of that key was in its way.
        self._queued_of: dict[bytes | None, int] = {}
        self._free_since: dict[bytes | None, float] = {}

    def __len__(self) -> int:
        """Records that have not ended: queued, waiting or called."""
        return len(self._queue) + (self._head is not None)

    @property
    def is_calling(self) -> bool:
        """Whether the one call is in flight."""
        return self._calling

    @property
    def oldest_arrival(self) -> float | None:
        """When the oldest record that has not ended came, monotonic seconds."""
        if self._head is not None:
            return self._head.arrived
        return self._queue[0][1] if self._queue else None

    def add(self, record: Record, now: float) -> None:
        """Queue a record that came at `now`, monotonic seconds."""
        self._queue.append((record, now))
        self._queued_of[record.key] = self._queued_of.get(record.key, 0) + 1

    def close(self) -> None:
        """Start nothing more. What waits is dropped unsettled: the next owner gets it again."""
        self._closed = True
        self._queue.clear()
        self._queued_of.clear()
        self._free_since.clear()
        if not self._calling and self._settled is None:
            self._head = None

    def next(self, instant: Instant) -> Step:
        """What is to be done now. After Start the lane is Busy, after Settle its next record is the head."""
        if self._settled is not None:
            return self._settle(self._settled, instant)
        if self._calling:
            return BUSY
        if self._closed:
            return CLOSED
        if self._head is None:
            if not self._queue:
                return IDLE
            refused = self._take(instant)
            if refused is not None:
                return self._settle(refused, instant)
        head = self._head
        assert head is not None
        if head.not_before > instant.mono:
            return Wait(head.not_before, head.why)
        return self._start(head, instant)

    def answered(self, result: CallResult, instant: Instant, chance: float) -> Retry | Settled | Dead:
        """The call in flight ended with `result`; returns the verdict, which the lane has already taken in."""
        head = self._head
        if head is None or not self._calling:
            raise AssertionError("an answer without a call in flight")
        self._calling = False
        verdict = judge(result, head.tries, self._patience(head.request), instant.mono, chance)
        if isinstance(verdict, Retry):
            head.tries, head.not_before, head.why = verdict.tries, verdict.at, verdict.why
            if self._closed:
                self._head = None
        else:
            self._settled = self._ended(head, result, verdict, instant)
        return verdict

    def _take(self, instant: Instant) -> Outcome | None:
        record, arrived = self._queue.popleft()
        left = self._queued_of.get(record.key, 0) - 1
        if left > 0:
            self._queued_of[record.key] = left
        else:
            self._queued_of.pop(record.key, None)
        try:
            decoded = self._decoder.decode(record)
        except Exception as error:  # noqa: BLE001 - a bug of ours, met on one record, must not end worker after worker
            return self._refused(record, *self._decoder.unreadable(record), instant, type(error).__name__)
        if isinstance(decoded, Request):
            self._head = _Head(decoded, arrived)
            return None
        return self._refused(record, *decoded, instant)

    def _start(self, head: _Head, instant: Instant) -> Start:
        self._calling = True
        tries = head.tries = Tries(head.tries.calls + 1, head.tries.failures, head.tries.hinted_since)
        first = head.started is None
        if head.started is None:
            head.started = instant.mono
        record = head.request.record
        fences = (
            ("Dispatcher-Topic", record.topic),
            ("Dispatcher-Partition", str(record.partition)),
            ("Dispatcher-Offset", str(record.offset)),
            ("Dispatcher-Epoch", str(self.owner.epoch)),
            ("Dispatcher-Attempt", str(tries.calls)),
        )
        of = head.request.call
        # Written out, as everything that is done once per request: `dataclasses.replace` takes 5 us.
        call = Call(of.upstream, of.method, of.path, (*of.headers, *fences), of.body, of.credential, of.timeout_s)
        free = max(head.arrived, self._free_since.pop(record.key, head.arrived))
        return Start(call, head.request, head.tries.calls, instant.mono - head.arrived, instant.mono - free if first else 0.0)

    def _settle(self, outcome: Outcome, instant: Instant) -> Settle:
        self._settled = self._head = None
        key = outcome.record.key if outcome.record else None
        if key in self._queued_of:
            self._free_since[key] = instant.mono
        else:
            self._free_since.pop(key, None)
        return Settle(outcome)

    def _patience(self, request: Request) -> Patience:
        upstream = self._decoder.settings.upstreams[request.call.upstream]
        wait_max_s = self._decoder.settings.worker.wait_max_s
        return Patience(request.attempts_max, upstream.backoff_base_s, upstream.backoff_max_s, wait_max_s)

    def _ended(self, head: _Head, result: CallResult, verdict: Settled | Dead, instant: Instant) -> Outcome:
        request, record = head.request, head.request.record
        answer = result if isinstance(result, Answered) else None
        letter: DeadLetter | None = None
        fault: Fault | None = None
        if isinstance(verdict, Dead):
            retry_at = None if verdict.retry_in_s is None else instant.rfc3339(verdict.retry_in_s)
            fault = Fault(kind_of(result), verdict.message, retry_at)
            letter = self._letter(record, verdict.reason, verdict.message, "call", kind_of(result))
            status = answer.status if answer is not None else None
            letter = replace(letter, attempts=head.tries.calls, upstream=request.call.upstream, http_status=status)
        elif verdict.status is not Status.OK:
            fault = Fault("http", describe(result))
        reply = Reply(
            record=record,
            envelope=request.envelope,
            status=Status.DEAD if isinstance(verdict, Dead) else verdict.status,
            attempts=head.tries.calls,
            time=instant.rfc3339(),
            source=self._source,
            duration_ms=0 if head.started is None else round((instant.mono - head.started) * 1000),
            reason=verdict.reason if isinstance(verdict, Dead) else None,
            fault=fault,
            answer=answer,
            shown_headers=self._decoder.settings.upstreams[request.call.upstream].response_headers,
            metadata=request.metadata,
        )
        if letter is None and answer is not None and answer.truncated:
            reply = reply.too_large()
        return Outcome(self.owner, record, reply, letter)

    def _refused(self, record: Record, envelope: Envelope, refusal: Refusal, instant: Instant, kind: str = "") -> Outcome:
        fault = Fault(refusal.reason.value, refusal.message)
        reply = Reply(record, envelope, Status.DEAD, 0, instant.rfc3339(), self._source, reason=refusal.reason, fault=fault)
        return Outcome(
            self.owner, record, reply, self._letter(record, refusal.reason, refusal.message, "decode", kind or refusal.reason.value)
        )

    def _letter(self, record: Record, reason: Reason, message: str, stage: str, kind: str) -> DeadLetter:
        settings = self._decoder.settings
        return DeadLetter(record, settings.topics.dead_letters, record.partition, settings.worker.group, reason, message, stage, kind)
