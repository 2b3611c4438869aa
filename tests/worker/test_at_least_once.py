"""Publishing at least once: in which order things are done, so that a crash in between costs a repetition and never a request."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread

from dispatcher.adapters.kafka.sink import Undelivered
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message
from dispatcher.worker.at_least_once import AtLeastOnce
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import Insistence
from dispatcher.worker.letters import Command, Commit, Snapshot
from dispatcher.worker.ready import Ready
from tests.specimens import alone, settings

OWNER, LOST = Owner(0, 1), Owner(1, 1)
REPLY = Message("replies", 0, b"doc:1", b"{}", ())
PARKED, OTHER = Message("parked", 0, b"t/0/1", None, ()), Message("parked", 1, b"t/1/1", None, ())
NO_SKIP = Message("control", 0, b"request:1", None, ())


class Sink:
    """Writes down what is done, and takes everything."""

    def __init__(self, done: list[object]) -> None:
        self.done = done

    def open(self) -> None: ...
    def forget(self) -> None: ...

    def produce(self, messages: list[Message]) -> None:
        self.done += [(message.topic, message.value is None) for message in messages]

    def flush(self) -> bool:
        self.done.append("acknowledged")
        return True

    def limits(self) -> Mapping[str, int] | None:
        return None

    def take_places(self) -> dict[bytes, int]:
        return {}

    @property
    def undelivered(self) -> list[Undelivered]:
        return []


class Observer:
    """Hears of what failed."""

    def publish_failed(self, what: str, name: str) -> None: ...


def test_tombstones_come_behind_the_commit() -> None:
    """A parked request leaves its topic, and a skip the control topic, once what they were about can be lost no more.

    Of an assignment whose commit is refused since it is over they are left alone: its next owner does what is left.
    """
    done: list[object] = []
    mailbox: SimpleQueue[Command] = SimpleQueue()
    snapshots = [Snapshot(live=frozenset({OWNER, LOST}))]

    def poll() -> None:
        command = mailbox.get()
        assert isinstance(command, Commit)
        snapshots[0] = Snapshot(live=frozenset({OWNER}))
        done.append("committed")
        command.answer.put({LOST: "not ours"})

    frontier = Frontier(alone(bytes(16), 1))
    for owner in (OWNER, LOST):
        frontier.begin(owner, ())
    insistence = Insistence(lambda: snapshots[0], Observer(), SystemClock())
    way = AtLeastOnce(Destinations(settings(), {}), frontier, Sink(done), insistence, lambda _: done.append("told"), mailbox)
    pending = [
        Ready(Outcome(owner, None, None, position=2, span=(0, 2), extra=extra), (REPLY, *extra))
        for owner, extra in ((OWNER, (PARKED, NO_SKIP)), (LOST, (OTHER,)))
    ]
    poller = Thread(target=poll)
    poller.start()
    way.publish(pending)
    poller.join()
    replies = [("replies", False)] * 2
    assert [*replies, "acknowledged", "committed", ("parked", True), ("control", True), "acknowledged", "told"] == done
