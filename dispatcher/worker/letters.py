"""What the owners of a worker say to each other. No owner reads another's state; all of it travels as these values.

poller ──records, rebalances──▶ engine ──outcomes──▶ publisher
   ▲ └──────────── Snapshot, read by ────────────────▲ │ │
   └─────────────── commands ◀───────────────────────┴─┘ acknowledged, back to the engine

restorer ──what is wanted, what is parked──▶ engine ──what to restore and fetch──▶ restorer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from dispatcher.core.internal.journal import Known
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.progress.commit_note import Range

Post = Callable[..., None]
"""Run a function with arguments on the event loop, from any thread."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the publisher may act on: this member's group metadata and the assignments that live, as they were together."""

    version: int = 0
    group: Any = None
    live: frozenset[Owner] = frozenset()


@dataclass(frozen=True, slots=True)
class Pause:
    """Engine to poller: fetch no more of this partition."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Resume:
    """Engine to poller: fetch again."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Taken:
    """Engine to poller: the records that were handed over last are in its partitions, and it has said what it thinks of that."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Engine to poller: nothing of this assignment is in flight any more."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Cut:
    """Engine to poller: no call of this assignment, which is over, runs any more."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Commit:
    """Publisher to poller (at least once): commit position and metadata; `answer` gets what was refused, with the error's name."""

    positions: Mapping[Owner, tuple[int, str]]
    answer: SimpleQueue[dict[Owner, str]] = field(default_factory=SimpleQueue)


@dataclass(frozen=True, slots=True)
class Stop:
    """To poller: drain (or cut off at once), leave the group, end. To publisher: end once what came before is published."""

    drain: bool = True


@dataclass(frozen=True, slots=True)
class PublisherEnded:
    """To poller: nothing can be published any more, and nothing is being published; cut off, leave the group, end."""


Command = Pause | Resume | Taken | Drained | Cut | Commit | Stop | PublisherEnded


@dataclass(frozen=True, slots=True)
class Began:
    """Engine to publisher, before any outcome of it: an assignment, and what is settled above its position already."""

    owner: Owner
    settled: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """Poller to publisher: answer once no publication names these assignments."""

    answer: SimpleQueue[str] = field(default_factory=SimpleQueue)


@dataclass(frozen=True, slots=True)
class Restore:
    """Engine to restorer: which requests of this partition are parked, and which have ended? Answered by `restored`, once."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Fetch:
    """Engine to restorer: the parked requests themselves, all of this partition. Answered by `fetched`, once, in this order."""

    owner: Owner
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Engine to restorer: the reply that is recorded for the original of the duplicate at `offset`. Answered by `recalled`, once."""

    owner: Owner
    key: bytes | None
    offset: int
    known: Known


@dataclass(frozen=True, slots=True)
class Forget:
    """Engine to restorer: this assignment is over. What it asked for is answered or not; nobody waits."""

    owner: Owner
