"""What happens to requests, as whoever watches a world tells it: a simulated one, or a real broker and callee.

`key` is the lane key of a request; whether it makes a lane of its own is the judges' business. A `target` is what somebody may
hold, named as on the control topic: `key:<lane key>` or `partition:<number>`; or a request that shall end without a further call,
`request:<position id>`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson

from dispatcher.core.lanes.ending import CUT_OFF


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request stands in the log for good (committed, if its producer is transactional). `deadline` on the clock of `CallStarted.at`.

    `name` is the id that its sender gave it, if any; `asks` tells what is asked for from something else. `once`: it must not be called
    twice. `attempts_max`: calls that it may cost. `agent`: who asks.
    """

    partition: int
    offset: int
    key: str = ""
    deadline: float = math.inf
    name: str = ""
    asks: str = ""
    once: bool = False
    attempts_max: float = math.inf
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """Retention has removed all requests of the partition before that offset: those that nobody had read are executed by nobody."""

    partition: int
    before: int


@dataclass(frozen=True, slots=True)
class Queued:
    """The request has been read by the owner of that epoch: from now on its lane knows of it."""

    partition: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decided:
    """The owner of that epoch knows how the request ends, or moves it aside; nothing of it is published yet."""

    partition: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A worker begins call number `call` for the request at that position, under that epoch."""

    call: int
    partition: int
    offset: int
    epoch: int
    worker: str = ""
    attempt: int = 1
    key: str = ""
    at: float = 0.0  # seconds, on whichever clock those who tell it have
    timeout_s: float | None = None  # how long it may take, where that is known
    price: int = 0  # what it will cost if it is done, in cents


@dataclass(frozen=True, slots=True)
class CallEnded:
    """Call number `call` has ended for the worker: answered, failed or cut off. `at` on the clock of `CallStarted.at`.

    `says` of the callee: `ok`, `failed`, or nothing, also where that is not known. `undone`: it cannot have done it. `spent`: it has cost
    an attempt; `may_be_spared`: but for a failure that the worker counts as an outage's. `unsent`: it never left. `charged`: what it has
    cost, in cents.
    """

    call: int
    at: float = 0.0
    says: str = ""
    undone: bool = False
    spent: bool = False
    may_be_spared: bool = False
    unsent: bool = False
    charged: int = 0


@dataclass(frozen=True, slots=True)
class WentDown:
    """From now on every call that begins fails, and it is the callee's fault.

    A worker that has seen `failures` of them in a row makes no more calls but one in `open_s` seconds.
    """

    failures: int
    open_s: float


@dataclass(frozen=True, slots=True)
class CameBack:
    """The callee is well again."""


@dataclass(frozen=True, slots=True)
class ReplyVisible:
    """A terminal reply to the request stands in its topic for good.

    `place` is its partition and offset there; `dead`: it says that there is a letter; `called`: calls were made for it; `skipped`:
    somebody ended it, or its deadline passed, so that it was answered out of turn. `says`: how it ended, and what the callee answered;
    `duplicate`: as another request of its key and id did.
    """

    partition: int
    offset: int
    place: tuple[int, int] = (0, 0)
    dead: bool = False
    called: bool = True
    skipped: bool = False
    says: str = ""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """The journal says for good that the request has ended."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LetterVisible:
    """A dead letter for the request stands in its topic for good."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's position in the partition is now `position`, the next offset to read.

    `settled`: half-open ranges of offsets above it that the words beside it call settled. `epoch`: of the assignment that made the
    commit, -1 where it is not known.
    """

    partition: int
    position: int
    settled: tuple[tuple[int, int], ...] = ()
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Parked:
    """The request stands on the parked topic for good, to be executed from there."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unparked:
    """The parked request is no more: its tombstone stands for good. Told behind the reply that was published with it."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Attempted:
    """How the request was tried stands on the state topic for good; `failures`: attempts that it has cost."""

    partition: int
    offset: int
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing is noted of the request any more. Told behind the reply that was published with it."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Held:
    """The worker has read that `target` is to start nothing. Without a worker: so it stands on the control topic, for all to read.

    `at` on the clock of `CallStarted.at`, where that is known.
    """

    target: str
    worker: str = ""
    at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Released:
    """The worker has read that `target` may start again. Without a worker: so it stands on the control topic, for all to read."""

    target: str
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The worker has read that the request is to end, and a call of it to be cut off. `at` on the clock of `CallStarted.at`."""

    partition: int
    offset: int
    worker: str
    at: float


@dataclass(frozen=True, slots=True)
class Halted:
    """The request has ended in a dead letter that holds its key, from the end of its last call on, until somebody resumes it."""

    partition: int
    offset: int
    key: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The group took the partition from `worker` without waiting for it: what it has in hand may overlap its successor's.

    `epoch`: the highest under which it had that partition. Told again for what it takes before it hears of the loss.
    """

    worker: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A worker that nothing slowed down took so long to give partitions back when it was asked to."""

    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Withheld:
    """The cluster did not take a reply or a commit of this worker's in time, though nothing was wrong with it, or did not say so."""

    worker: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The worker is no more, and so are its calls. `orderly`: it had time to end what it was doing."""

    worker: str
    orderly: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The world has had all the time that the promise allows; the log of the partition ends at `end`."""

    partition: int
    end: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A topic that still hides records from committed readers at the end."""

    topic: str


Event = (
    Submitted
    | Removed
    | Queued
    | Decided
    | CallStarted
    | CallEnded
    | WentDown
    | CameBack
    | ReplyVisible
    | Noted
    | LetterVisible
    | Committed
    | Parked
    | Unparked
    | Attempted
    | Forgotten
    | Held
    | Released
    | Cancelled
    | Halted
    | Lost
    | HandedOver
    | Withheld
    | Crashed
    | Ended
    | Unreadable
)


def reply_visible(partition: int, offset: int, place: tuple[int, int], value: bytes | None) -> ReplyVisible:
    """The event of a reply with that value. The answer to a duplicate speaks of calls, letters and skips of its original."""
    told = orjson.loads(value or b"{}")
    error = told.get("error") or {"kind": ""}
    says = f"{told['status']} {error['kind']} {told.get('http')}"
    if told.get("duplicate"):
        return ReplyVisible(partition, offset, place, called=False, says=says, duplicate=True)
    is_early = error["kind"] in {"cancelled", CUT_OFF, "expired"}
    return ReplyVisible(partition, offset, place, told["status"] == "dead", told["attempts"] > 0, is_early, says)
