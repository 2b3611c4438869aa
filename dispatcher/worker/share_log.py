"""The log of shared limits: owns the reader and the writer of what workers tell each other, in a thread of its own.

First all that stands there is read, whole; then what comes. Where Kafka does not answer it is tried again: leases end meanwhile, and calls
under limits wait. What could not be written for a while is out of date, and not written later.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from dispatcher.adapters.kafka.compacted import Ended
from dispatcher.core.messages.record import Message, Record
from dispatcher.errors import BrokerAway
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Post, Stop
from dispatcher.worker.whole import Log, Reader

# As for the restorer: a letter is taken at once, and news are looked for so often.
IDLE_S = 0.02
# After Kafka was away.
PAUSE_S = 0.5
# The last word is a courtesy: others wait for a lease without it.
FAREWELL_S = 2.0


class Bulletin(Protocol):
    """Where it is told; see `adapters.kafka.bulletin`."""

    def tell(self, message: Message) -> bool: ...
    def close(self, last: Message, timeout_s: float) -> None: ...


class ShareLog:
    """Runs in its own thread (`run`). `told` hears of records on the event loop; what comes in `inbox` is written."""

    def __init__(
        self,
        topic: str,
        reader: Reader,
        bulletin: Bulletin,
        told: Callable[[list[Record]], None],
        post: Post,
        inbox: SimpleQueue[Message | Stop],
        clock: Clock,
        log: Log,
    ) -> None:
        self._topic = topic
        self._reader = reader
        self._bulletin = bulletin
        self._told = told
        self._post = post
        self._inbox = inbox
        self._clock = clock
        self._log = log
        self._is_following = False
        self._last: Message | None = None
        self._stopped = False

    def run(self) -> None:
        """Read and write until told to stop. Raises BrokerDenied where going on is senseless."""
        try:
            while not self._stopped:
                try:
                    self._step()
                except BrokerAway as away:
                    self._log.warning("sharing_failed", reason=away.message, hint=away.hint)
                    self._serve(PAUSE_S)
            if self._last is not None:
                self._bulletin.close(self._last, FAREWELL_S)
        finally:
            self._reader.close()

    def _step(self) -> None:
        if not self._is_following:
            self._begin()
        records = self._reader.news(0) if self._is_following else []
        if records:
            self._post(self._told, records)
        self._serve(IDLE_S)

    def _begin(self) -> None:
        """Read what stands there."""
        question, end = self._reader.ends(self._topic, [0]), 0
        while not self._stopped:
            try:
                next(question)
            except StopIteration as answer:
                end = answer.value[0]
                break
            self._serve(0)
        records: list[Record] = []
        for item in self._reader.read(self._topic, {0: (0, end)}):
            if isinstance(item, Record):
                records.append(item)
            elif not isinstance(item, Ended):
                self._serve(0)
            if self._stopped:
                return
        self._reader.follow(self._topic, end)
        self._is_following = True
        self._post(self._told, records)

    def _serve(self, wait_s: float) -> None:
        """Write what there is to write."""
        letter = self._clock.take(self._inbox, wait_s)
        while letter is not None:
            if isinstance(letter, Stop):
                self._stopped = True
            elif self._last is None:
                self._bulletin.tell(letter)
            letter = self._clock.take(self._inbox, 0)

    def farewell(self, last: Message) -> None:
        """Write this as the last of all, and end; from the event loop."""
        self._last = last
        self._inbox.put(Stop())
