"""The publisher: owns the producer. Whatever is ready goes out together, in the order it came, paced by our own timer.

How it goes out is `ExactlyOnce` or `AtLeastOnce`; this is the thread that gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Protocol

from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.progress.strand import RequestTopics
from dispatcher.settings import Settings
from dispatcher.worker.at_least_once import AtLeastOnce, PlainSink
from dispatcher.worker.clock import Clock
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.exactly_once import ExactlyOnce, TransactionalSink
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import Abandoned, Insistence, Observer
from dispatcher.worker.letters import Barrier, Began, Command, Post, Snapshot, Stop

# Outcomes in one publication: enough for every rate that one process reaches, few enough to fit the producer's queue.
BATCH_MAX = 2000
BATCH_MAX_BYTES = 32 * 1024 * 1024
# An idle publisher looks up this often, so that its tick shows that it lives.
IDLE_S = 0.5


class Sink(TransactionalSink, PlainSink, Protocol):
    """What the publisher needs of a sink, in either mode."""

    def serve(self) -> None: ...
    def close(self) -> None: ...


class EngineDoor(Protocol):
    """The engine's method that the publisher posts."""

    def acknowledged(self, outcomes: list[Outcome]) -> None: ...


class Publisher:
    """Runs in its own thread (`run`). `tick`, `is_open` and `publishing_since` (monotonic; None while nothing waits) are read by others."""

    def __init__(
        self,
        settings: Settings,
        topics: RequestTopics,
        limits: Mapping[str, int],
        sink: Sink,
        engine: EngineDoor,
        post: Post,
        inbox: SimpleQueue[object],
        poller: SimpleQueue[Command],
        snapshot: Callable[[], Snapshot],
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._destinations = Destinations(settings, limits)
        self._sink = sink
        self._inbox = inbox
        self._clock = clock
        self._interval_s = settings.worker.commit_interval_ms / 1000
        self._next_start = 0.0
        self._stopped = False
        self._insistence = Insistence(snapshot, observer, clock)
        self.is_open = False
        self.publishing_since: float | None = None

        self._frontier = Frontier(topics)

        def acknowledge(outcomes: list[Outcome]) -> None:
            post(engine.acknowledged, outcomes)

        self._way: ExactlyOnce | AtLeastOnce
        if settings.worker.publishing == "exactly_once":
            self._way = ExactlyOnce(settings, self._destinations, self._frontier, sink, self._insistence, acknowledge)
        else:
            self._way = AtLeastOnce(self._destinations, self._frontier, sink, self._insistence, acknowledge, poller)

    @property
    def tick(self) -> float:
        """When this thread was last seen alive, monotonic seconds."""
        return self._insistence.tick_at

    def abandon(self) -> None:
        """From another thread: end at once; what is not published is left to the next owner."""
        self._insistence.is_abandoned = True

    def run(self) -> None:
        """Publish until told to stop. Raises BrokerError where going on is senseless."""
        try:
            self._way.open()
            self.is_open = True
            while not self._stopped:
                self.step()
        except Abandoned:
            pass
        finally:
            self._sink.close()

    def step(self) -> None:
        """One publication of whatever is ready."""
        self._insistence.tick()
        first = self._clock.take(self._inbox, IDLE_S)
        if first is None:
            self._sink.serve()
            return
        outcomes, barrier = self._gather(first)
        self._next_start = self._clock.now().mono + self._interval_s
        if outcomes:
            self.publishing_since = self._clock.now().mono
            self._way.publish([self._destinations.ready(outcome) for outcome in outcomes])
            if self._frontier.cuts:
                self._frontier.cuts = 0
                self._insistence.observer.publish_failed("commit_map", "TOO_LARGE")
        self.publishing_since = None
        if barrier is not None:
            barrier.answer.put("past")

    def _gather(self, first: object) -> tuple[list[Outcome], Barrier | None]:
        """Everything that is ready when the next publication may start; a barrier or a stop ends the gathering."""
        outcomes: list[Outcome] = []
        size = 0
        item: object | None = first
        while item is not None:
            if isinstance(item, Barrier):
                return outcomes, item
            if isinstance(item, Stop):
                self._stopped = True
                return outcomes, None
            if isinstance(item, Began):
                self._frontier.begin(item.owner, item.settled)
            else:
                assert isinstance(item, Outcome)
                outcomes.append(item)
                size += item.size_bytes
            if len(outcomes) >= BATCH_MAX or size >= BATCH_MAX_BYTES:
                break
            try:
                item = self._inbox.get_nowait()
            except Empty:
                item = self._clock.take(self._inbox, max(0.0, self._next_start - self._clock.now().mono))
        return outcomes, None
