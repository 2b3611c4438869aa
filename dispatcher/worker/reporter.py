"""Tells of this worker's lanes, every other second, in the workers topic; and that it is gone, when it ends in order.

A thread of its own, so that neither lanes nor outcomes ever wait for it. What it tells is put together on the event loop, which owns the
lanes, as one letter; it asks for the next only once it has that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from dispatcher.adapters.kafka import bulletin as bulletins
from dispatcher.adapters.logs import kafka_logger, logger
from dispatcher.core.internal.lane_report import WorkerReport, tombstone
from dispatcher.core.messages.record import Message
from dispatcher.core.progress.strand import RequestTopics
from dispatcher.settings import Settings
from dispatcher.worker.clock import Clock
from dispatcher.worker.engine import Engine
from dispatcher.worker.lane_view import LaneView
from dispatcher.worker.letters import Post

# The last word is a courtesy: the group knows who is gone.
FAREWELL_S = 2.0


Report = Callable[[], Iterator[WorkerReport | None]]


class Word(Enum):
    """What the thread is told beside reports."""

    NOTHING = "nothing"  # there is no report to be had now
    END = "end"


class Bulletin(Protocol):
    """Where it is told; see `adapters.kafka.bulletin`."""

    def tell(self, message: Message) -> bool: ...
    def close(self, last: Message, timeout_s: float) -> None: ...


class Reporter:
    """`start` and `close` belong to the event loop.

    `report` puts together what is told, there, by `post`, a step in a turn: it yields None after each, and the report in the end.
    """

    def __init__(self, slot: str, topic: str, interval_s: float, bulletin: Bulletin, post: Post, report: Report, clock: Clock) -> None:
        self._slot = slot
        self._topic = topic
        self._interval_s = interval_s
        self._bulletin = bulletin
        self._post = post
        self._report = report
        self._clock = clock
        self._letters: SimpleQueue[WorkerReport | Word] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._thread = Thread(target=self._guarded, name="reporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell that this worker is gone, and end; for at most some seconds."""
        if self._thread is not None:
            self._letters.put(Word.END)
            self._thread.join(FAREWELL_S + 1)

    def _guarded(self) -> None:
        """Whatever breaks in here costs nobody a lane."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - as said
            logger().warning("report_failed", error_type=type(error).__name__, hint="`lanes list` will know less of this worker")

    def _run(self) -> None:
        is_asked, due = False, self._clock.now().mono
        while True:
            now = self._clock.now().mono
            if not is_asked and now >= due:
                self._post(self._put_together)
                is_asked, due = True, now + self._interval_s
            letter = self._clock.take(self._letters, self._interval_s if is_asked else due - now)
            if letter is Word.END:
                self._bulletin.close(tombstone(self._slot, self._topic), FAREWELL_S)
                return
            is_asked = is_asked and letter is None
            if isinstance(letter, WorkerReport):
                self._bulletin.tell(letter.message(self._topic))

    def _put_together(self, steps: Iterator[WorkerReport | None] | None = None) -> None:
        """On the event loop."""
        try:
            steps = self._report() if steps is None else steps
            report = next(steps)
            if report is None:
                self._post(self._put_together, steps)
            else:
                self._letters.put(report)
        except Exception as error:  # noqa: BLE001 - as above
            logger().warning("report_failed", error_type=type(error).__name__, hint="`lanes list` will know less of this worker")
            self._letters.put(Word.NOTHING)


def reporter_of(settings: Settings, topics: RequestTopics, engine: Engine, post: Post, clock: Clock) -> Reporter:
    """The reporter of a worker, which tells of the engine's lanes."""
    view, worker, topic = LaneView(settings.worker, topics), settings.worker, settings.topics.workers
    bulletin = bulletins.Bulletin(settings, Grumble(), logger=kafka_logger())

    def report() -> Iterator[WorkerReport | None]:
        return view.report(engine.partitions, engine.gaps, engine.desired, clock)

    return Reporter(worker.slot, topic, worker.report_interval_s, bulletin, post, report, clock)


class Grumble:
    """Logs what keeps something from being told: once, until it is over. For a bulletin's `failed`."""

    def __init__(self, event: str = "report_failed", hint: str = "`lanes list` will know less of this worker") -> None:
        self._event = event
        self._hint = hint
        self._name: str | None = None

    def __call__(self, name: str | None) -> None:
        """Hear how a delivery went."""
        if name is not None and name != self._name:
            logger().warning(self._event, error_type=name, hint=self._hint)
        self._name = name
