"""A circuit breaker: who fails again and again is left alone for a while, and then asked by one call whether it is well.

    closed ── failures in a row, or too many of a window ──▶ open ── open_s, and a call that wants to begin ──▶ half-open
    half-open ── the one call, the probe, goes well ──▶ closed          ── it fails ──▶ open          ── it says nothing ──▶ half-open

What counts is told as a `Bearing`: a failure is the callee's alone. An answer that is the caller's own doing (4xx, 429 among them) says
nothing of how the callee is, and neither does a call that was cut off: such calls change nothing, and where it was the probe another one
may be sent at once. Gateways answer 401 and 429 for callees that are down.

Each state, and each probe, is a generation of its own; what comes of a call that began in an earlier one changes nothing either. Names as
in sony/gobreaker (generation), Polly and resilience4j (the window). A pure machine: every time is an argument, monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, IntEnum

# A window is counted in so many slices: what is older than it leaves it a slice at a time.
SLICES = 10


class State(IntEnum):
    """The numbers are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2

    @property
    def text(self) -> str:
        """As people read it."""
        return self.name.lower()


class Bearing(Enum):
    """What the end of a call says of the callee."""

    SUCCESS = "success"
    FAILURE = "failure"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Policy:
    """When it opens, and for how long.

    `failures` in a row, 0: not by that. A share `rate` of at least `min_calls` calls in `window_s`, None: not by that.
    """

    failures: int = 5
    open_s: float = 30.0
    rate: float | None = None
    window_s: float = 60.0
    min_calls: int = 20


class Breaker:
    """Owned by the gate; one per upstream, and only for this worker: what others see of the callee is not known here."""

    __slots__ = ("_in_row", "_is_probing", "_policy", "_slices", "generation", "opens", "reopens_at", "state")

    def __init__(self, policy: Policy) -> None:
        self.state = State.CLOSED
        self.generation = 0
        self.opens = 0  # how often it has opened
        self.reopens_at = 0.0  # when a probe may be sent, once it is open
        self._policy = policy
        self._in_row = 0
        self._is_probing = False
        self._slices: deque[list[float]] = deque()  # of the window: number of the slice, calls, failures

    def free_at(self, now: float) -> float | None:
        """When a call may begin: `now` where it may; None: when the probe has ended."""
        match self.state:
            case State.CLOSED:
                return now
            case State.OPEN:
                return max(now, self.reopens_at)
            case State.HALF_OPEN:
                return None if self._is_probing else now

    def begin(self, now: float) -> int:
        """A call begins, which may; returns its generation. Where the breaker is not closed it is the probe."""
        if self.state is not State.CLOSED:
            if self.free_at(now) != now:
                raise AssertionError("a call that may not begin")
            self._turn(State.HALF_OPEN)
            self._is_probing = True
        return self.generation

    def end(self, generation: int, bearing: Bearing, now: float) -> bool:
        """A call of that generation has ended so; returns whether its failure is the outage's, and not one of its request's own.

        That is: it opened the breaker, was the probe's, or came too late to count.
        """
        is_failure = bearing is Bearing.FAILURE
        if generation != self.generation:
            return is_failure
        if self.state is State.CLOSED:
            self._count(bearing, now)
            if is_failure and self._is_over():
                self._open(now)
                return True
            return False
        match bearing:
            case Bearing.SUCCESS:
                self._turn(State.CLOSED)
            case Bearing.FAILURE:
                self._open(now)
            case Bearing.NOTHING:
                self._turn(State.HALF_OPEN)
        return is_failure

    def _open(self, now: float) -> None:
        self._turn(State.OPEN)
        self.opens += 1
        self.reopens_at = now + self._policy.open_s

    def _turn(self, state: State) -> None:
        self.state = state
        self.generation += 1
        self._is_probing = False
        self._in_row = 0
        self._slices.clear()

    def _count(self, bearing: Bearing, now: float) -> None:
        if bearing is Bearing.NOTHING:
            return
        is_failure = bearing is Bearing.FAILURE
        self._in_row = self._in_row + 1 if is_failure else 0
        if self._policy.rate is None:
            return
        number = now * SLICES // self._policy.window_s
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append([number, 0, 0])
        self._slices[-1][1] += 1
        self._slices[-1][2] += is_failure
        while self._slices[0][0] <= number - SLICES:
            self._slices.popleft()

    def _is_over(self) -> bool:
        policy = self._policy
        if policy.failures and self._in_row >= policy.failures:
            return True
        if policy.rate is None:
            return False
        calls = sum(calls for _, calls, _ in self._slices)
        return calls >= policy.min_calls and sum(failed for *_, failed in self._slices) >= policy.rate * calls
