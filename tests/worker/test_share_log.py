"""The log of shared limits in its thread: what stands there comes first, then what is new; Kafka may be away, the last word is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any

from dispatcher.adapters.kafka.compacted import Ended, Items, Question
from dispatcher.core.messages.record import Message, Record
from dispatcher.errors import BrokerAway
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.letters import Stop
from dispatcher.worker.share_log import ShareLog
from tests.waiting import eventually

TOPIC = "dispatcher.workers"


def record(offset: int) -> Record:
    """One of the topic."""
    return Record(TOPIC, 0, offset, b"limits/w/1", b"%d" % offset)


def message(text: bytes) -> Message:
    """One that is to be written."""
    return Message(TOPIC, 0, b"limits/w/1", text, ())


class Log:
    """A topic of three records, to which more may come; it is away as often as the test says."""

    def __init__(self, away: int = 0, away_later: int = 0) -> None:
        self.away, self.away_later = away, away_later
        self.coming: SimpleQueue[Record] = SimpleQueue()
        self.followed: list[int] = []
        self.is_closed = False

    def ends(self, _: str, partitions: Collection[int]) -> Question:
        """As `Reader.ends`."""
        yield True
        if self.away:
            self.away -= 1
            raise BrokerAway("it is away")
        return dict.fromkeys(partitions, 3)

    def since(self, topic: str, times_ms: Mapping[int, int]) -> Question:
        """Nobody asks."""
        raise NotImplementedError

    def read(self, _: str, ranges: Mapping[int, tuple[int, int]]) -> Items:
        """As `Reader.read`."""
        assert {0: (0, 3)} == ranges
        for offset in range(3):
            yield record(offset)
            yield None
        yield Ended(0)

    def follow(self, _: str, offset: int) -> None:
        """As `Reader.follow`."""
        self.followed.append(offset)

    def news(self, _: float) -> list[Record]:
        """As `Reader.news`."""
        if self.away_later:
            self.away_later -= 1
            raise BrokerAway("it is away")
        return [] if self.coming.empty() else [self.coming.get()]

    def close(self) -> None:
        """As `Reader.close`."""
        self.is_closed = True


class Board:
    """Where it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | None] = []
        self.last: list[bytes | None] = []

    def tell(self, message: Message) -> bool:
        """See Bulletin."""
        self.told.append(message.value)
        return True

    def close(self, last: Message, _: float) -> None:
        """See Bulletin."""
        self.last.append(last.value)


class Hear:
    """A logger."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def info(self, event: str, **_: Any) -> None:
        """See Log."""
        self.heard.append(event)

    warning = info


class Scene:
    """The log in its thread."""

    def __init__(self, **away: int) -> None:
        self.log, self.board, self.hear = Log(**away), Board(), Hear()
        self.batches: list[list[int]] = []
        self.inbox: SimpleQueue[Message | Stop] = SimpleQueue()
        self.shares = ShareLog(
            TOPIC, self.log, self.board, self._told, lambda told, records: told(records), self.inbox, SystemClock(), self.hear
        )
        self.thread = Thread(target=self.shares.run, daemon=True)
        self.thread.start()

    def _told(self, records: list[Record]) -> None:
        self.batches.append([one.offset for one in records])

    def end(self) -> None:
        """Write the last word."""
        self.shares.farewell(message(b"last"))
        self.thread.join(10)
        assert not self.thread.is_alive()


def test_all_that_stands_there_comes_first() -> None:
    """As one batch, then what is new; what is to be told is written meanwhile, and the last word behind it."""
    scene = Scene()
    eventually(lambda: [[0, 1, 2]] == scene.batches, 10, "what stands there")
    scene.log.coming.put(record(3))
    scene.inbox.put(message(b"ours"))
    eventually(lambda: [[0, 1, 2], [3]] == scene.batches and [b"ours"] == scene.board.told, 10, "what is new")
    scene.end()
    assert ([3], [b"last"], True) == (scene.log.followed, scene.board.last, scene.log.is_closed)


def test_while_kafka_is_away_it_is_tried_again() -> None:
    """Nothing is told half, and what was followed is followed on."""
    scene = Scene(away=1, away_later=1)
    scene.log.coming.put(record(3))
    eventually(lambda: [[0, 1, 2], [3]] == scene.batches, 20, "all in the end")
    assert ["sharing_failed", "sharing_failed"] == scene.hear.heard
    scene.end()


def test_who_ends_before_anything_was_read_ends_at_once() -> None:
    """Kafka is away for good; the last word is tried all the same."""
    scene = Scene(away=10**9)
    eventually(lambda: "sharing_failed" in scene.hear.heard, 10, "it is away")
    scene.end()
    assert ([], [b"last"]) == (scene.batches, scene.board.last)
