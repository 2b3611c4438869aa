"""The reporter tells the latest of this worker's lanes, asks for it one at a time, says goodbye, and costs nobody a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue

import pytest

from dispatcher.core.internal.lane_report import WorkerReport, decode
from dispatcher.core.messages.record import Message
from dispatcher.worker import reporter as module
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.reporter import Grumble, Report, Reporter

TOPIC = "dispatcher.workers"
WAIT_S = 60


class Board:
    """Notes what is told."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.told: SimpleQueue[Message] = SimpleQueue()
        self.last: SimpleQueue[Message] = SimpleQueue()
        self._breaks = breaks

    def tell(self, message: Message) -> bool:
        """Take a message."""
        if self._breaks:
            raise RuntimeError("a bug")
        self.told.put(message)
        return True

    def close(self, last: Message, timeout_s: float) -> None:
        """Take the last one."""
        assert timeout_s > 0
        self.last.put(last)


class Loop:
    """An event loop that is turned by hand."""

    def __init__(self) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Take what is to be run."""
        self.posted.put(partial(function, *arguments))

    def turn(self, times: int = 2) -> None:
        """Wait for calls, and make them."""
        for _ in range(times):
            self.posted.get(timeout=WAIT_S)()


class Lines:
    """A log that keeps what went wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def warning(self, event: str, *, error_type: str, hint: str) -> None:
        """Take a line."""
        assert event == "report_failed"
        assert hint
        self.errors.append(error_type)


def reports() -> Report:
    """Give a new report each time, in two steps; `control` counts them."""
    number = iter(range(1000))

    def report() -> Iterator[WorkerReport | None]:
        yield None
        yield WorkerReport("0", "2026-11-29T10:00:00.000Z", "key", 2.0, next(number), ())

    return report


def reporter(board: Board, loop: Loop, report: Report, interval_s: float = 0.01) -> Reporter:
    """Start a reporter."""
    made = Reporter("0", TOPIC, interval_s, board, loop.post, report, SystemClock())
    made.start()
    return made


def told(board: Board) -> int:
    """Which report was told next."""
    found = decode(board.told.get(timeout=WAIT_S).value)
    assert found is not None
    return found.control


def test_it_tells_report_after_report_and_then_its_end() -> None:
    """Each is put together on the event loop, and asked for only once the one before has come: a loop that is stuck is asked once."""
    board, loop = Board(), Loop()
    running = reporter(board, loop, reports())
    for number in range(3):
        loop.turn()
        assert number == told(board)
    running.close()
    last = board.last.get(timeout=WAIT_S)
    assert (TOPIC, b"0", None) == (last.topic, last.key, last.value)
    assert loop.posted.qsize() <= 1


def test_a_report_that_cannot_be_put_together_is_left_out() -> None:
    """A bug in it does not reach the event loop's handler, which would end the worker; the next one is told."""
    board, loop, good = Board(), Loop(), reports()
    tries = iter([False, True])

    def report() -> Iterator[WorkerReport | None]:
        if not next(tries):
            raise RuntimeError("a bug")
        return good()

    running = reporter(board, loop, report)
    loop.turn(1)
    loop.turn()
    assert told(board) == 0
    running.close()


def test_a_broken_board_ends_the_telling_alone() -> None:
    """The thread ends with a line in the log, and closing does not wait for it."""
    board, loop = Board(breaks=True), Loop()
    running = reporter(board, loop, reports())
    loop.turn()
    running.close()
    assert board.told.empty()


def test_what_keeps_reports_away_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is over, or is something else."""
    lines = Lines()
    monkeypatch.setattr(module, "logger", lambda: lines)
    grumble = Grumble()
    for name in ("_MSG_TIMED_OUT", "_MSG_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED", None, "_MSG_TIMED_OUT", "_MSG_TIMED_OUT"):
        grumble(name)
    assert ["_MSG_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED", "_MSG_TIMED_OUT"] == lines.errors
