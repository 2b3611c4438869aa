"""Lanes of one key, driven step by step in tests: what a step must be, and what it was about."""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.steps import Fetch, Idle, Settle, Start
from dispatcher.core.messages.call import CallResult
from dispatcher.core.messages.record import Record
from tests.core.aside import Aside
from tests.specimens import MONO, OWNER, answer, decoder, noted, now, record, settings

KEY = b"doc:42"
DECODER = decoder(settings(worker={"ordering": "key"}))
BOUNDS = Bounds(1 << 20)


class Hold:
    """What somebody wants of the lane's key: `why` is empty while it may run."""

    def __init__(self) -> None:
        self.why = ""

    def of(self, _: bytes | None) -> str:
        """As a lane asks."""
        return self.why


def keyed(*offsets: int, hold: Hold | None = None) -> Lane:
    """A lane of one key with records at these offsets, all come at the test's time."""
    lane = Lane(OWNER, DECODER, KEY, (hold or Hold()).of)
    for offset in offsets:
        lane.add(record(offset=offset), MONO)
    return lane


def start(lane: Lane, later_s: float = 0) -> int:
    """Start the next call; which request it is for."""
    step = noted(lane, now(later_s))
    assert isinstance(step, Start), step
    return step.request.record.offset


def settle(lane: Lane, later_s: float = 0) -> Outcome:
    """The outcome that the lane hands out now."""
    step = noted(lane, now(later_s))
    assert isinstance(step, Settle), step
    return step.outcome


def finish(lane: Lane, later_s: float = 0, result: CallResult | None = None) -> int:
    """Start the next call, answer it and take the outcome; which request it was for."""
    offset = start(lane, later_s)
    lane.answered(result or answer(), now(later_s), 0.5)
    outcome = settle(lane, later_s)
    assert outcome.record is not None
    assert offset == outcome.record.offset
    return offset


def fail(lane: Lane, later_s: float = 0, wait_s: int = 100) -> int:
    """Start the next call, which is told to come again in `wait_s` seconds; which request it is for."""
    offset = start(lane, later_s)
    lane.answered(answer(503, headers=(("retry-after", str(wait_s)),)), now(later_s), 0.5)
    return offset


def park(lane: Lane, aside: Aside, keep: int = 0, later_s: float = 0) -> tuple[list[int], list[int]]:
    """Move what waits out of memory, and have it placed; the offsets that were written, and those that only left memory."""
    outcomes, released = lane.park(keep, BOUNDS, now(later_s))
    place(lane, aside, outcomes)
    return offsets(outcomes), [one.offset for one in released]


def place(lane: Lane, aside: Aside, outcomes: Iterable[Outcome]) -> None:
    """These are published and acknowledged."""
    for outcome in outcomes:
        assert outcome.parks
        published = aside.publish(outcome)
        assert published.record is not None
        assert lane.placed(published.record.offset, published.place) is None


def ask(lane: Lane, later_s: float = 0) -> Fetch:
    """What the lane wants to have read again."""
    step = noted(lane, now(later_s))
    assert isinstance(step, Fetch), step
    return step


def fetch(lane: Lane, aside: Aside, later_s: float = 0) -> list[int]:
    """Have read again what the lane asks for; which ones those were."""
    asked = ask(lane, later_s)
    lane.fetched(*aside.read(asked.entries), now(later_s))
    return [entry.offset for entry in asked.entries]


def run(lane: Lane, aside: Aside, later_s: float = 0) -> list[int]:
    """Run the lane with good answers until it has nothing left; the order of its calls."""
    called = []
    while not isinstance(step := noted(lane, now(later_s)), Idle):
        match step:
            case Start():
                called.append(step.request.record.offset)
                lane.answered(answer(), now(later_s), 0.5)
            case Fetch(entries):
                lane.fetched(*aside.read(entries), now(later_s))
            case _:
                assert isinstance(step, Settle), step
    return called


def offsets(outcomes: Iterable[Outcome]) -> list[int]:
    """Where the records of these outcomes stood."""
    return [outcome.record.offset for outcome in outcomes if outcome.record is not None]


def content(size_bytes: int, offset: int = 5) -> Record:
    """A record of at least so many bytes."""
    return record(b'{"upstream":"openai"}' + b" " * size_bytes, offset)
