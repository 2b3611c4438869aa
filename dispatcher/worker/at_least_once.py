"""Publishing at least once: everything is acknowledged first, then the poller commits the positions.

A crash in between publishes a second reply; nothing is lost. Tombstones come last: who is parked is not lost before its reply is there, and
who is to be skipped is skipped by the next owner as well, if need be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Protocol

from dispatcher.adapters.kafka.sink import Undelivered
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import Insistence
from dispatcher.worker.letters import Command, Commit
from dispatcher.worker.ready import Ready, messages_of, outcome_index, parted, placed

# The poller answers within one poll; looking up this often shows that the thread lives.
ANSWER_S = 0.5


class PlainSink(Protocol):
    """What is needed of `dispatcher.adapters.kafka.sink.Sink`, which the simulator replaces."""

    def open(self) -> None: ...
    def forget(self) -> None: ...
    def produce(self, messages: list[Message]) -> None: ...
    def flush(self) -> bool: ...
    def limits(self) -> Mapping[str, int] | None: ...
    def take_places(self) -> dict[bytes, int]: ...
    @property
    def undelivered(self) -> list[Undelivered]: ...


class AtLeastOnce:
    """Owned by the publisher's thread."""

    def __init__(
        self,
        destinations: Destinations,
        frontier: Frontier,
        sink: PlainSink,
        insistence: Insistence,
        acknowledge: Callable[[list[Outcome]], None],
        poller: SimpleQueue[Command],
    ) -> None:
        self._destinations = destinations
        self._frontier = frontier
        self._sink = sink
        self._steps = insistence
        self._acknowledge = acknowledge
        self._poller = poller
        self._number = 0

    def open(self) -> None:
        """Make the producer."""
        self._steps.insist_on("open", self._sink.open)

    def publish(self, pending: list[Ready]) -> None:
        """Publish in order, until everything is committed or its assignment has ended."""
        pending = self._living(pending)
        first, last = parted(pending)
        self._deliver(first)
        places = self._sink.take_places()
        while pending := self._living(pending):
            self._number += 1
            refused = self._commit(self._frontier.positions(pending, self._number))
            done = [ready for ready in pending if ready.owner not in refused]
            pending = [ready for ready in pending if ready.owner in refused]
            self._frontier.acknowledge(done)
            self._deliver(self._living([ready for ready in last if ready.owner not in refused]))
            last = [ready for ready in last if ready.owner in refused]
            self._acknowledge(placed(done, places))
            if done:
                self._steps.ease()
            if pending:
                self._steps.observer.publish_failed("commit", next(iter(refused.values())))
                self._steps.back_off()

    def _living(self, pending: list[Ready]) -> list[Ready]:
        live = self._steps.snapshot().live
        return [ready for ready in pending if ready.owner in live]

    def _deliver(self, todo: list[Ready]) -> None:
        """Produce until every message of a living assignment is acknowledged; what the broker does not take is mended.

        Only that is produced again: a letter that has to wait for its topic must not double the reply beside it.
        """
        delivered: set[Message] = set()
        while todo:
            self._sink.forget()
            self._sink.produce(messages_of(todo))
            while not self._sink.flush():
                self._steps.tick()
            undelivered = self._sink.undelivered
            if not undelivered:
                return
            self._steps.observer.publish_failed("produce", undelivered[0].name)
            if any(failure.kind == "fatal" for failure in undelivered):
                self._steps.renew(undelivered[0].name)
                self.open()
            missed = {failure.index for failure in undelivered}
            failed = sorted({outcome_index(todo, index) for index in missed})
            delivered |= {message for index, message in enumerate(messages_of(todo)) if index not in missed}
            after = self._mended(todo, undelivered)
            if after == todo:
                self._steps.back_off()
            todo = self._living([after[i].without(delivered) for i in failed])

    def _mended(self, todo: list[Ready], undelivered: list[Undelivered]) -> list[Ready]:
        if self._destinations.learn(self._sink.limits()):
            # The producer's batches were made for what the topics took before.
            self.open()
            return [self._destinations.ready(ready.outcome) for ready in todo]
        return self._destinations.mended(todo, undelivered)

    def _commit(self, positions: Mapping[Owner, tuple[int, str]]) -> dict[Owner, str]:
        """Have the poller commit; returns the assignments whose commit was refused, with the error's name."""
        command = Commit(positions)
        self._poller.put(command)
        answer = None
        while answer is None:
            self._steps.tick()
            answer = self._steps.clock.take(command.answer, ANSWER_S)
            if answer is None and not positions.keys() & self._steps.snapshot().live:
                # The poller has given all of it up, and may have ended since: nobody is left to answer.
                return dict.fromkeys(positions, "not ours")
        return answer
