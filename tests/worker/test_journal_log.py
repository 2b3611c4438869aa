"""What the restorer reads of the journal before the first call, and how it finds a recorded reply. On a real broker: `tests/e2e`."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import Asked, Journal, Known
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Message
from dispatcher.core.messages.recorded import Recorded
from dispatcher.core.messages.status import Status
from dispatcher.errors import BrokerAway, BrokerDenied
from dispatcher.settings import Settings
from dispatcher.worker.letters import Forget, Recall, Restore
from dispatcher.worker.restorer import RECALLS_MAX
from tests.core.internal.test_finished import finished
from tests.worker.test_restorer import AWAY, ID, SETTINGS, Set

TOPIC_ID = ID[:8]
OWNER = Owner(0, 7)
# The wall clock of `Time` when a test begins.
NOW = 1e9 + 100
REMEMBERS = {"dedup_window_s": 100.0}
JOURNAL, REPLIES = "dispatcher.journal", "dispatcher.replies"


def made(**worker: Any) -> Set:
    """A restorer that remembers; it has read the control topic."""
    of = Set(Settings.model_validate({"worker": REMEMBERS | worker}))
    of.turn()
    return of


def end(name: str = "r-1", ago_s: float = 10, **changed: Any) -> Finished:
    """A request of partition 0 that ended so long ago."""
    return finished(**{"partition": 0, "topic_id": TOPIC_ID, "request_id": name, "at": NOW - ago_s, "reply_partition": 0} | changed)


def note(of: Set, *ends: Finished) -> None:
    """These stand in the journal."""
    for one in ends:
        of.topics.write(one.message(), at_ms=round(one.at * 1000))


def restored(of: Set) -> Journal:
    """What is told of partition 0."""
    ((what, owner, entries, journal),) = of.turn(Restore(OWNER))
    assert ("restored", OWNER, []) == (what, owner, entries)
    assert isinstance(journal, Journal)
    return journal


def known(journal: Journal, name: str = "r-1", offset: int = 50) -> object:
    """What is said of a request with that id that comes now."""
    return journal.find(Asked(name, b"doc:42", offset, finished().fingerprint), NOW)


def test_what_ended_within_the_window_is_known_before_the_first_call() -> None:
    """What is older is not even read; what is foreign, or of a former request topic of this name, says nothing."""
    of = made()
    note(of, *(end(f"old-{n}", ago_s=500) for n in range(5)), end(), end("r-2", topic_id="anotherT"))
    of.topics.write(Message(JOURNAL, 0, b"doc:42", b"{", ()), at_ms=round(NOW * 1000))
    journal = restored(of)
    assert Known(40, Status.OK, NOW - 10, REPLIES, 0) == known(journal)
    assert known(journal, "r-2") is None
    assert 1 == len(journal)
    assert {0: (5, 8)} in of.topics.begun


def test_no_more_is_read_than_can_be_kept() -> None:
    """Each entry may have a marker behind it: so many offsets from the end, however long the window is."""
    of = made(dedup_max_entries=10)
    note(of, *(end(f"r-{n}") for n in range(50)))
    journal = restored(of)
    assert {0: (30, 50)} in of.topics.begun
    assert ([f"r-{n}" for n in range(40, 50)], 10) == ([f"r-{n}" for n in range(50) if known(journal, f"r-{n}")], len(journal))
    assert 1 == of.log.events["journal_read"]


def test_where_nothing_is_remembered_nothing_is_read() -> None:
    """A window of 0."""
    of = made(dedup_window_s=0)
    note(of, end())
    assert [("restored", OWNER, [])] == of.turn(Restore(OWNER))
    assert 2 == of.topics.readings["begun"], "the parked topic and the one of tries"


def test_kafka_goes_away_in_the_middle() -> None:
    """It is read again from the beginning; nothing is told half, and calls wait for it."""
    of = made()
    note(of, *(end(f"r-{n}") for n in range(5)))
    of.topics.failures.extend([None, None, None, None, None, BrokerAway("cannot reach Kafka")])
    assert [] == of.turn(Restore(OWNER), turns=2)
    of.time.pause(1)
    ((_, _, _, journal),) = of.turn()
    assert 5 == len(journal)
    assert 1 == of.log.events["restorer_failed"]


def test_an_assignment_that_is_over_is_told_nothing() -> None:
    """Nobody waits for it."""
    of = made()
    note(of, end())
    assert [] == of.turn(Restore(OWNER), Forget(OWNER))


# --- recorded replies ---------------------------------------------------------------------------------------------------


def reply(of: Set, request_offset: int, ago_s: float, partition: int = 0, *, topic: str = REPLIES, place: int = 0) -> None:
    """A reply stands in its topic since so long ago: to the request at that offset of partition `place`."""
    name = f"dispatcher.requests/{place}/{request_offset}@{TOPIC_ID}/reply".encode()
    headers = (("ce_id", name), ("dispatcher-duration-ms", b"20"), ("dispatcher-http-status", b"200"))
    value = b'{"status":"ok","attempts":%d,"http":{"status":200}}' % request_offset
    of.topics.write(Message(topic, partition, b"doc:42", value, headers), at_ms=round((NOW - ago_s) * 1000))


def recall(offset: int = 50, original: int = 40, ago_s: float = 10, topic: str = REPLIES, partition: int = 0) -> Recall:
    """The wish for the reply to the request at `original`."""
    return Recall(OWNER, b"doc:42", offset, Known(original, Status.OK, NOW - ago_s, topic, partition))


def attempts(told: list[tuple[Any, ...]]) -> dict[int, int | None]:
    """By duplicate, which reply was read (the specimens say it in their attempts), None for one that is gone."""
    assert {"recalled"} >= {what for what, *_ in told}
    return {of.offset: recorded.attempts if isinstance(recorded, Recorded) else None for _, of, recorded in told}


def test_a_reply_is_found_by_its_time() -> None:
    """From a little before its request ended on: not what is older, and nothing behind it is read either."""
    of = made()
    for n, ago_s in enumerate((50, 40, 30, 9.9, 9.8, 9.7)):
        reply(of, 37 + n, ago_s)
    assert {50: 40} == attempts(of.turn(recall()))
    assert {0: (3, 6)} == of.topics.begun[-1]


def test_one_that_waited_long_for_its_transaction_is_found() -> None:
    """Kafka was away when the request had ended: its reply is younger by that."""
    of = made()
    reply(of, 39, 11)
    reply(of, 40, 1)
    assert {50: 40} == attempts(of.turn(recall()))


def test_clocks_of_brokers_may_differ() -> None:
    """A topic whose records have the broker's time, which is a quarter of an hour behind: it is looked for once more, from well before."""
    of = made()
    reply(of, 40, 900)
    reply(of, 41, 899)
    assert {50: 40} == attempts(of.turn(recall()))


def test_those_that_lie_together_are_read_together() -> None:
    """A client that sends everything again costs a few readings, not one for each."""
    of = made()
    for n in range(20):
        reply(of, n, 20 - n / 10)
    before = of.topics.readings["begun"]
    told = of.turn(*(recall(50 + n, n, 20 - n / 10) for n in range(20)))
    assert {50 + n: n for n in range(20)} == attempts(told)
    assert 2 >= of.topics.readings["begun"] - before


def test_each_reply_topic_and_time_is_read_where_it_is() -> None:
    """Another topic, another partition, a quarter of an hour later: each is a reading of its own."""
    of = made(dedup_window_s=2000)
    reply(of, 1, 1000)
    reply(of, 2, 10)
    reply(of, 3, 10, 1)
    reply(of, 4, 10, 0, topic="team.replies")
    wishes = recall(51, 1, 1000), recall(52, 2), recall(53, 3, partition=1), recall(54, 4, topic="team.replies")
    assert {51: 1, 52: 2, 53: 3, 54: 4} == attempts(of.turn(*wishes))


def test_a_reply_that_is_gone_is_told_as_gone() -> None:
    """Retention has it, or it cannot be read; the others are told what they want."""
    of = made()
    reply(of, 41, 9)
    of.topics.write(
        Message(REPLIES, 0, b"k", b"{", (("ce_id", f"dispatcher.requests/0/42@{TOPIC_ID}/reply".encode()),)), at_ms=round(NOW * 1000)
    )
    assert {50: None, 51: 41, 52: None} == attempts(of.turn(recall(50, 40), recall(51, 41), recall(52, 42)))
    assert 1 == of.log.events["reply_gone"]


def test_a_reply_topic_of_a_sender_that_was_deleted_holds_nothing_up() -> None:
    """Its replies are gone; our own topic is waited for."""
    of = made()
    reply(of, 40, 10)
    of.topics.gone = {"team.replies", REPLIES}
    assert {50: None} == attempts(of.turn(recall(topic="team.replies"), recall(51)))
    of.topics.gone.clear()
    of.time.pause(5)
    assert {51: 40} == attempts(of.turn())


@pytest.mark.parametrize("topic", ["team.replies", REPLIES])
def test_a_reply_topic_with_fewer_partitions_has_lost_them(topic: str) -> None:
    """Made anew, by somebody: what stood in the partitions that it does not have any more is gone."""
    of = made()
    reply(of, 40, 10, topic=topic)
    of.topics.counts[topic] = 1
    assert {50: None, 51: 40} == attempts(of.turn(recall(topic=topic, partition=1), recall(51, topic=topic)))


def test_a_reply_topic_of_a_sender_that_may_not_be_read_holds_nothing_up() -> None:
    """The right to write there is all that answering takes. Our own must be readable: that is said, and the worker ends."""
    of = made()
    denied = BrokerDenied("this user may not use the topic")
    of.topics.faults = {"team.replies": denied, REPLIES: denied}
    assert {50: None} == attempts(of.turn(recall(topic="team.replies")))
    with pytest.raises(BrokerDenied):
        of.turn(recall())


def test_what_cannot_be_answered_now_holds_up_no_other_reply() -> None:
    """A partition without a leader, say: those of other topics and partitions are told first, once, and it is asked for again."""
    of = made()
    reply(of, 40, 10)
    reply(of, 40, 10, topic="a.replies")
    of.topics.faults["a.replies"] = AWAY
    assert {51: 40} == attempts(of.turn(recall(50, topic="a.replies"), recall(51)))
    assert of.log.events["restorer_failed"]
    of.topics.faults.clear()
    of.time.pause(5)
    assert {50: 40} == attempts(of.turn())


def test_a_question_that_is_not_answered_holds_up_nothing_else() -> None:
    """Other assignments' replies and the news of the control topic come meanwhile, however many wait so."""
    of = made()
    reply(of, 40, 10)
    of.topics.slow.add("team.replies")
    owners = [Owner(n, 1) for n in range(1, 4)]
    wishes = [Recall(owner, b"doc:42", 50, Known(40, Status.OK, NOW - 10, "team.replies", 0)) for owner in owners]
    assert {50: 40} == attempts(of.turn(*wishes, recall()))
    of.topics.write(Message(SETTINGS.topics.control, 0, b"key:doc:1", b"{}", ()))
    assert [("commanded", [b"key:doc:1"])] == of.turn(turns=5)
    assert of.topics.questions["team.replies"] > len(owners)


def test_assignments_that_kafka_does_not_answer_take_nobodys_place() -> None:
    """As many as may read at once ask in vain, again and again; one more is answered."""
    of = made()
    reply(of, 40, 10)
    owners = [Owner(n, 1) for n in range(1, 1 + RECALLS_MAX)]
    wishes = [Recall(owner, b"doc:42", 50, Known(40, Status.OK, NOW - 10, "team.replies", 0)) for owner in owners]
    of.topics.faults["team.replies"] = AWAY
    assert [] == of.turn(*wishes)
    assert {50: 40} == attempts(of.turn(recall()))


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_where_kafka_is_away_it_is_asked_again(failures: int) -> None:
    """Nothing is taken for gone because nobody answered."""
    of = made()
    reply(of, 40, 10)
    of.topics.failures.extend([BrokerAway("cannot reach Kafka")] * failures)
    of.turn(recall(), turns=1)
    of.topics.failures.clear()
    of.time.pause(5)
    assert {50: 40} == attempts(of.turn())


def test_a_recall_of_an_assignment_that_is_over_is_dropped() -> None:
    """Nobody waits for it."""
    of = made()
    reply(of, 40, 10)
    assert [] == of.turn(recall(), Forget(OWNER))
