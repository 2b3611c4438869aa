"""What a lane says is to be done next."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.internal.journal import Known
from dispatcher.core.internal.parked import Entry
from dispatcher.core.internal.tried import Note
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.call import Call
from dispatcher.core.messages.claim import Claim
from dispatcher.core.messages.request import Request


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is queued."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The one call of this lane is in flight, or parked requests of it or a recorded reply are on their way back."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A call could start, if the lane may make one: its driver said that it may not now."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing starts any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The head waits until `until` (monotonic seconds); `why` is shown to people: backoff, retry_after, breaker."""

    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Gated:
    """The head's call may not begin now, as far as its callee is concerned: the lane stands in the gate's line until it is its turn."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Held:
    """The head waits until somebody lets its key go on; `why`: paused, halted. There is no time at which that ends."""

    why: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read these parked requests again, in this order; the lane is Busy until `fetched`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class CutOff:
    """Cancel the call that is in flight: its request is to end now. The lane is Busy until that has ended, `answered` or `cut_off`."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Read the reply that is recorded for the original of this duplicate; the lane is Busy until `recalled`."""

    request: Request
    known: Known


@dataclass(frozen=True, slots=True)
class Start:
    """Make this call, number `attempt` of its request. The two times, in seconds, are set on the first one.

    `waited_s` since the record came to this worker; `behind_others_s`: the part of it spent behind records of *other* keys, which is
    what `ordering = "key"` would save. `limited_s`: how long the call waited for limits, None where it is under none.
    """

    call: Call
    request: Request
    attempt: int
    waited_s: float
    behind_others_s: float
    is_fitted: bool = False  # its time is what calls like it take, less than it might have
    limited_s: float | None = None

    @property
    def first(self) -> bool:
        """Whether it is the first call of its request."""
        return self.attempt == 1


@dataclass(frozen=True, slots=True)
class Tell:
    """Publish this: how the head was tried, or that its call is not made after all. The lane goes on meanwhile, as far as it may."""

    note: Note


@dataclass(frozen=True, slots=True)
class Intend:
    """Publish this: a call may begin that must not be made twice. The lane is Busy until it is acknowledged, or nothing comes of it.

    `upstream`: whom it is to call.
    """

    note: Note
    upstream: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Publish this outcome."""

    outcome: Outcome


Step = Idle | Busy | Ready | Closed | Wait | Gated | Held | Fetch | Recall | Intend | Start | Tell | Settle
IDLE, BUSY, READY, CLOSED, CUT_OFF = Idle(), Busy(), Ready(), Closed(), CutOff()
