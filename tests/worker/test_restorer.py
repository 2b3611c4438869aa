"""The restorer: what it does first, what it does beside what, and what it does when Kafka is away. On a real broker: `tests/e2e`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from dispatcher.adapters.kafka.compacted import Ended, Items, Question
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry, Parked, tombstone
from dispatcher.core.internal.tried import Noted, tried
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.recorded import Recorded
from dispatcher.errors import BrokerAway, BrokerDenied, PartitionAway, TopicAway
from dispatcher.settings import Settings
from dispatcher.worker import restorer
from dispatcher.worker.letters import Drained, Fetch, Forget, Recall, Restore, Stop
from dispatcher.worker.restorer import Restorer
from tests.specimens import topics_of

ID = "mZfX3kAZQ2y_-dUvVvTkPw"
# Nothing is remembered of what has ended, but where a test is about that.
SETTINGS = Settings.model_validate({"worker": {"dedup_window_s": 0}})
CONTROL, PARKED = SETTINGS.topics.control, SETTINGS.topics.parked
AWAY = BrokerAway("cannot reach Kafka")


class Time:
    """A clock that goes on when somebody waits."""

    def __init__(self) -> None:
        self.mono = 100.0

    def now(self) -> Instant:
        return Instant(self.mono, 1e9 + self.mono)

    def take(self, queue: SimpleQueue[Any], wait_s: float) -> Any:
        if not queue.empty():
            return queue.get()
        self.pause(wait_s)
        return None

    def pause(self, wait_s: float) -> None:
        self.mono += wait_s


class Topics:
    """A reader of logs that a test fills. Each of `failures` is raised by the next question or reading, None lets one through."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], list[Record]] = {}
        self.failures: deque[Exception | None] = deque()
        self.open: set[int] = set()  # partitions of the parked topic in which a transaction is open
        self.faults: dict[str, Exception] = {}  # what each question about a topic is answered
        self.gone: set[str] = set()  # topics that there are not
        self.counts: dict[str, int] = {}  # partitions of topics that have few
        self.slow: set[str] = set()  # topics of which no question is answered now
        self.questions: Counter[str] = Counter()
        self.readings: Counter[str] = Counter()
        self.begun: list[Mapping[int, tuple[int, int]]] = []
        self.followed: int | None = None
        self.closed = False

    def write(self, *messages: Message, at_ms: int = 1) -> None:
        for message in messages:
            log = self.logs.setdefault((message.topic, message.partition), [])
            log.append(Record(message.topic, message.partition, len(log), message.key, message.value, message.headers, at_ms))

    def ends(self, topic: str, partitions: Collection[int]) -> Question:
        yield from self._asked(topic, partitions)
        return {n: len(self.logs.get((topic, n), ())) for n in partitions}

    def since(self, topic: str, times_ms: Mapping[int, int]) -> Question:
        yield from self._asked(topic, times_ms)
        return {
            n: next((r.offset for r in self.logs.get((topic, n), ()) if (r.timestamp_ms or 0) >= ms), len(self.logs.get((topic, n), ())))
            for n, ms in times_ms.items()
        }

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Items:
        self.readings["begun"] += 1
        self.begun.append(ranges)
        try:
            for n, (start, stop) in ranges.items():
                for record in self.logs.get((topic, n), ())[start:stop]:
                    while topic == PARKED and n in self.open:
                        yield None
                    self._fail()
                    yield record
                yield Ended(n)
        finally:
            self.readings["ended"] += 1

    def follow(self, topic: str, offset: int) -> None:
        assert topic == CONTROL
        self.followed = offset

    def news(self, timeout_s: float) -> list[Record]:
        assert (0, False) == (timeout_s, self.followed is None)
        self._fail()
        begin, self.followed = self.followed, len(self.logs.get((CONTROL, 0), ()))
        return self.logs.get((CONTROL, 0), [])[begin:]

    def close(self) -> None:
        self.closed = True

    def _asked(self, topic: str, partitions: Collection[int]) -> Generator[bool, None, None]:
        """As the real one (`tests/sim/contract`): what is not there is told as such, and a question that takes long takes steps."""
        while topic in self.slow:
            self.questions[topic] += 1
            yield True
        self._fail()
        if topic in self.faults:
            raise self.faults[topic]
        if topic in self.gone:
            raise TopicAway(f"topic {topic} does not exist")
        if self.counts.get(topic, 1 << 31) <= max(partitions):
            raise PartitionAway(f"topic {topic} has no partition {max(partitions)}")

    def _fail(self) -> None:
        if self.failures and (failure := self.failures.popleft()) is not None:
            raise failure


class Log:
    """Counts events."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def info(self, event: str, **_: object) -> None:
        self.events[event] += 1

    def warning(self, event: str, **_: object) -> None:
        self.events[event] += 1


class Set:
    """A restorer over such topics; `told` is what it posted."""

    def __init__(self, of: Settings = SETTINGS) -> None:
        self.topics, self.time, self.log = Topics(), Time(), Log()
        self.inbox: SimpleQueue[object] = SimpleQueue()
        self.told: list[tuple[Any, ...]] = []
        self.restorer = Restorer(of, topics_of(of.topics.requests, ID), self.topics, self, self._post, self.inbox, self.time, self.log)

    def commanded(self, records: list[Record]) -> None:
        self.told.append(("commanded", [record.key for record in records]))

    def restored(self, owner: Owner, entries: list[Entry], journal: Journal | None, noted: Noted) -> None:
        about = (*(() if journal is None else (journal,)), *((noted,) if noted.tried else ()))
        self.told.append(("restored", owner, entries, *about))

    def recalled(self, recall: Recall, recorded: Recorded | None) -> None:
        self.told.append(("recalled", recall, recorded))

    def fetched(self, owner: Owner, found: list[Parked], missing: list[Entry]) -> None:
        self.told.append(("fetched", owner, found, missing))

    def turn(self, *letters: object, turns: int = 20) -> list[tuple[Any, ...]]:
        """Hand letters in, give the restorer some turns, and take what it told."""
        for letter in letters:
            self.inbox.put(letter)
        for _ in range(turns):
            self.restorer.step()
        told, self.told = self.told, []
        return told

    @staticmethod
    def _post(function: Callable[..., None], *arguments: object) -> None:
        function(*arguments)


def request(offset: int, partition: int = 0, calls: int = 1) -> Parked:
    """Give a parked request."""
    return Parked(Record(SETTINGS.topics.requests, partition, offset, b"doc:1", b"{}", ()), Tries(calls), 5.0, "backoff")


def written(*requests: Parked) -> list[Message]:
    """Give their records."""
    return [each.message(PARKED, ID) for each in requests]


def command(key: bytes) -> Message:
    """Give a record of the control topic."""
    return Message(CONTROL, 0, key, b"{}", ())


def test_notes_are_told_with_the_end_of_the_log_that_was_asked_behind_them() -> None:
    """A note that is written meanwhile is not read: it may be of a request behind that end, which is not lost."""
    made = Set()
    notes = [tried(offset, Tries(2, 2), 0.0, "", Instant(5.0, 1e9)) for offset in (1, 2, 3)]
    state, requests = SETTINGS.topics.state, SETTINGS.topics.requests
    made.turn()
    made.topics.write(*(each.message(state, ID, 0) for each in notes[:2]))
    made.topics.write(*(Message(requests, 0, b"doc:1", b"{}", ()) for _ in range(2)))
    made.topics.slow.add(requests)
    assert [] == made.turn(Restore(Owner(0, 1)))
    made.topics.write(notes[2].message(state, ID, 0), *(Message(requests, 0, b"doc:1", b"{}", ()) for _ in range(2)))
    made.topics.slow.clear()
    assert [("restored", Owner(0, 1), [], Noted(notes[:2], 4))] == made.turn()
    assert 0 == made.log.events["state_beyond_end"]


def test_notes_of_requests_that_the_log_has_lost_are_told_of() -> None:
    """Whoever restarts a broker that has lost records reads how many of its tries are void."""
    made = Set()
    notes = [tried(offset, Tries(1, 1), 0.0, "", Instant(5.0, 1e9)) for offset in (1, 2)]
    made.topics.write(*(each.message(SETTINGS.topics.state, ID, 0) for each in notes))
    made.topics.write(*(Message(SETTINGS.topics.requests, 0, b"doc:1", b"{}", ()) for _ in range(2)))
    assert ("restored", Owner(0, 1), [], Noted(notes, 2)) == made.turn(Restore(Owner(0, 1)))[-1]
    assert 1 == made.log.events["state_beyond_end"]


def test_control_is_told_whole_before_anything_else() -> None:
    """All that is wanted is told in one piece, in order, also where it is nothing; letters wait for it, and news come behind it."""
    made = Set()
    made.topics.write(command(b"a"), command(b"b"), *written(request(7)))
    made.topics.failures.extend([AWAY, None, None, AWAY])
    assert not made.restorer.is_ready
    told = made.turn(Restore(Owner(0, 1)), turns=100)
    assert [("commanded", [b"a", b"b"]), ("restored", Owner(0, 1), [request(7).entry(0)])] == told
    assert made.restorer.is_ready
    made.topics.write(command(b"c"))
    assert [("commanded", [b"c"])] == made.turn()
    assert 2 == made.log.events["restorer_failed"]
    assert [("commanded", [])] == Set().turn()


def test_what_is_wanted_of_a_lane_is_known_before_it_is_restored() -> None:
    """A halt may be younger than the last news: its owner wrote it with its last transaction. It is told first, and told once."""
    made = Set()
    made.turn()
    made.topics.followed = 99  # news are late
    made.topics.write(command(b"a"), command(b"b"))
    assert [("commanded", [b"a", b"b"]), ("restored", Owner(0, 1), [])] == made.turn(Restore(Owner(0, 1)))
    made.topics.followed = 0
    assert [] == made.turn()
    made.topics.write(command(b"c"))
    assert [("commanded", [b"c"])] == made.turn()


def test_a_control_topic_that_was_made_anew_is_heard() -> None:
    """Its offsets begin again below those that were told: each command in it is told all the same, and once."""
    made = Set()
    made.topics.write(*map(command, (b"a", b"b", b"c")))
    made.turn()
    made.topics.logs[CONTROL, 0].clear()
    made.topics.followed = 0  # as the real one goes on, where its next record is gone
    made.topics.write(command(b"d"))
    assert [("commanded", [b"d"])] == made.turn()
    made.topics.write(command(b"e"))
    assert [("commanded", [b"e"])] == made.turn()
    assert 1 == made.log.events["control_anew"]


def test_what_is_wanted_in_a_control_topic_that_was_made_anew_is_known_before_a_lane_is_restored() -> None:
    """News of it may be late: it is read whole, and the news tell nothing twice."""
    made = Set()
    made.topics.write(*map(command, (b"a", b"b", b"c")))
    made.turn()
    made.topics.logs[CONTROL, 0].clear()
    made.topics.write(command(b"d"))  # news are late: they would go on behind the third record
    assert [("commanded", [b"d"]), ("restored", Owner(0, 1), [])] == made.turn(Restore(Owner(0, 1)))
    made.topics.followed = 0
    assert [] == made.turn()
    made.topics.write(command(b"e"))
    assert [("commanded", [b"e"])] == made.turn()


def test_kafka_away_is_waited_out() -> None:
    """What was asked is asked again, with pauses that grow to a bound, until it is answered whole; nothing is told twice."""
    made = Set()
    made.turn()
    made.topics.write(*written(request(1), request(2), request(3, 1)))
    for failures in ([AWAY] * 8, [None, AWAY], [None, None, AWAY, AWAY], [None] * 4 + [AWAY]):
        made.topics.failures.extend(failures)
        began = made.time.mono
        told = made.turn(Restore(Owner(0, 1)), Restore(Owner(1, 1)), turns=1000)
        assert [Owner(0, 1), Owner(1, 1)] == [owner for _, owner, _ in told]
        assert [2, 1] == [len(entries) for *_, entries in told]
        assert made.time.mono < began + 1000 * restorer.IDLE_S + 1
    assert made.topics.readings["begun"] == made.topics.readings["ended"]


def test_news_that_do_not_come_are_asked_for_again() -> None:
    """A control topic that cannot be read for a while costs a line in the log, and no news."""
    made = Set()
    made.turn()
    made.topics.write(command(b"a"))
    made.topics.failures.append(AWAY)
    assert [("commanded", [b"a"])] == made.turn(turns=200)
    assert 1 == made.log.events["restorer_failed"]


def test_a_missing_right_ends_it() -> None:
    """No repetition mends a right that is missing: the thread ends with the reason, and lets go of its reader."""
    made = Set()
    made.topics.failures.append(BrokerDenied("this user may not use the topic"))
    with pytest.raises(BrokerDenied):
        made.restorer.run()
    assert made.topics.closed


def test_it_ends_when_it_is_told_to() -> None:
    """Also in the middle of a reading, which is closed with everything else."""
    made = Set()
    made.topics.write(*written(request(1)))
    made.topics.open.add(0)
    made.turn(Restore(Owner(0, 1)))
    assert made.topics.readings["begun"] > made.topics.readings["ended"]
    made.inbox.put(Stop())
    made.restorer.run()
    assert made.topics.closed
    assert made.topics.readings["begun"] == made.topics.readings["ended"]


def test_what_waits_holds_up_nobody_else() -> None:
    """While a transaction is open in one partition, others are restored and fetched, news come, and it is said what is waited for."""
    made = Set()
    made.topics.write(*written(request(1), request(5, 1), request(6, 2)))
    made.turn(Restore(Owner(1, 1)), Restore(Owner(2, 1)))
    made.topics.open.add(0)
    assert [] == made.turn(Restore(Owner(0, 1)))
    told = made.turn(Fetch(Owner(1, 1), (request(5, 1).entry(0),)), Fetch(Owner(2, 1), (request(6, 2).entry(),)))
    assert [("fetched", Owner(1, 1), [request(5, 1)], []), ("fetched", Owner(2, 1), [request(6, 2)], [])] == told
    made.topics.write(command(b"a"))
    assert [("commanded", [b"a"])] == made.turn()
    made.time.pause(restorer.WAIT_LONG_S)
    assert [] == made.turn()
    assert 1 == made.log.events["restorer_waits"]
    made.topics.open.clear()
    assert [("restored", Owner(0, 1), [request(1).entry(0)])] == made.turn()


def test_answers_of_one_assignment_keep_their_order() -> None:
    """Each letter has one answer; what is asked for while another answer is under way comes behind it."""
    made = Set()
    made.topics.write(*written(*[request(n) for n in range(4)]))
    owner = Owner(0, 1)
    entries = made.turn(Restore(owner))[-1][2]
    letters = [Fetch(owner, (entries[1], entries[0])), Fetch(owner, ()), Fetch(owner, (entries[3], replace(entries[3], offset=9)))]
    told = made.turn(letters[0], turns=1) + made.turn(*letters[1:])
    assert [[1, 0], [], [3]] == [[each.record.offset for each in found] for _, _, found, _ in told]
    assert [[], [], [9]] == [[entry.offset for entry in missing] for _, _, _, missing in told]


def test_what_nobody_waits_for_any_more_is_left() -> None:
    """An assignment that is over is neither restored nor fetched for, whether it was begun or not; its successor is."""
    made = Set()
    made.topics.write(*written(request(1), request(2, 1)))
    made.turn()
    made.topics.open.update({0, 1})
    old, new = Owner(0, 1), Owner(0, 2)
    assert [] == made.turn(Restore(old))
    assert [] == made.turn(Restore(Owner(1, 1)), Fetch(old, (request(1).entry(0),)))
    assert [] == made.turn(Forget(old), Forget(Owner(1, 1)), Fetch(old, (request(1).entry(0),)), Forget(old))
    made.topics.open.clear()
    assert [("restored", new, [request(1).entry(0)])] == made.turn(Restore(new))
    assert [("fetched", new, [request(1)], [])] == made.turn(Forget(old), Fetch(new, (request(1).entry(),)))
    assert made.topics.readings["begun"] == made.topics.readings["ended"]


def test_what_is_not_at_its_place_is_searched() -> None:
    """By its place a request is read alone; one without, or whose key was written again, is looked for in the whole partition."""
    made = Set()
    owner = Owner(0, 1)
    made.topics.write(*written(request(1), request(2)))
    made.turn(Restore(owner))
    made.topics.write(*written(request(3), request(1, calls=2)), tombstone(PARKED, ID, 0, 2))
    made.topics.begun.clear()
    assert [("fetched", owner, [request(1)], [])] == made.turn(Fetch(owner, (request(1).entry(0),)))
    assert [{0: (0, 1)}] == made.topics.begun
    unknown = Fetch(owner, (request(1).entry(), request(2).entry(), request(3).entry(2)))
    assert [("fetched", owner, [request(1, calls=2), request(3)], [request(2).entry()])] == made.turn(unknown)
    assert [{0: (0, 1)}, {0: (2, 3)}, {0: (0, 5)}] == made.topics.begun


def test_what_waits_holds_up_no_other_restore() -> None:
    """A partition that comes while another one's transaction is open is restored beside it."""
    made = Set()
    made.topics.write(*written(request(1), request(2, 1)))
    made.topics.open.add(0)
    made.turn(Restore(Owner(0, 1)))
    assert [("restored", Owner(1, 1), [request(2, 1).entry(0)])] == made.turn(Restore(Owner(1, 1)))
    made.topics.open.clear()
    assert [("restored", Owner(0, 1), [request(1).entry(0)])] == made.turn()


def test_foreign_records_are_told_of() -> None:
    """What is not ours in a partition is passed over, and said once when it was read."""
    made = Set()
    made.topics.write(*written(request(1)), Message(PARKED, 0, b"k", b"v", ()), tombstone(PARKED, "another_topic_id", 0, 1))
    assert [("restored", Owner(0, 1), [request(1).entry(0)])] == made.turn(Restore(Owner(0, 1)))[1:]
    assert 1 == made.log.events["parked_ignored"]


def test_a_letter_of_others_is_a_bug() -> None:
    """What the restorer cannot answer is not lost in silence."""
    made = Set()
    with pytest.raises(AssertionError, match="Drained"):
        made.turn(Drained(Owner(0, 1)))
