"""Where a request stands: queued, running, terminal or not to be found. Facts in, standing out.

What is known is what is committed: a worker publishes what it has finished some milliseconds later, so a request that is said to run may
have been answered since, and one that is said to be the second may be the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.internal.parked import Entry
from dispatcher.core.progress.headway import Headway

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found. `headway` is the group's in the request's partition, `parked` the request's entry in the parked topic.

    `before` counts what is unsettled before the request in its lane, what is parked included; `is_owned` says whether a worker has the
    partition now, `is_near` whether the request stands near enough to the group's position for a worker to have read it. `held`: its lane
    is to start nothing: `paused` or `halted`.
    """

    request: Place | None = None
    headway: Headway = field(default_factory=Headway)
    is_owned: bool = False
    before: int = 0
    before_is_exact: bool = True
    reply: Place | None = None
    status: str | None = None  # as the reply says it
    reason: str | None = None
    dead_letter: Place | None = None
    parked: Entry | None = None
    is_near: bool = True
    held: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits in its lane. Without `is_owned` no worker has the lane, and nothing moves. `parked`: it was moved aside, and why.

    `held`: the lane is `paused` or `halted`, and what is not in a call waits until somebody lets it go on.
    """

    request: Place
    before: int
    before_is_exact: bool
    is_owned: bool
    parked: Entry | None = None
    held: str = ""

    @property
    def place(self) -> int:
        """Its place in the lane; the first one is the one that is called."""
        return self.before + 1


@dataclass(frozen=True, slots=True)
class Running:
    """It is the first of a lane that a worker has: it is called, waits for its next try, or has just been answered."""

    request: Place


@dataclass(frozen=True, slots=True)
class Terminal:
    """It has ended. Without `reply` that is known from the committed position or the dead letter: the reply is not there any more."""

    request: Place | None
    reply: Place | None
    status: str | None
    reason: str | None
    dead_letter: Place | None


@dataclass(frozen=True, slots=True)
class NotFound:
    """Nothing of this id is there."""


Standing = Queued | Running | Terminal | NotFound


def standing(facts: Facts) -> Standing:
    """Decide where a request stands."""
    settled = facts.request is not None and facts.headway.is_settled(facts.request[2])
    if facts.reply is not None or facts.dead_letter is not None or (settled and facts.parked is None):
        status = facts.status or ("dead" if facts.dead_letter is not None else None)
        return Terminal(facts.request, facts.reply, status, facts.reason, facts.dead_letter)
    if facts.request is None:
        return NotFound()
    is_first = facts.before_is_exact and facts.before == 0 and facts.parked is None and not facts.held
    if is_first and facts.is_owned and facts.is_near and facts.headway.position is not None:
        return Running(facts.request)
    return Queued(facts.request, facts.before, facts.before_is_exact, facts.is_owned, facts.parked, facts.held)
