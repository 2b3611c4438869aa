"""What a look at the request topic finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.errors import BrokerError
from dispatcher.worker.topic_watch import SAME_LOOKS, TopicWatch

BEGUN = TopicFacts("requests", bytes(16), 3, 1_000_000)
NONE: frozenset[str] = frozenset()


class Lines:
    """What was logged: event, and topics."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.told.append((event, fields.get("topics")))

    error = info


@pytest.mark.parametrize(
    ("found", "words"),
    [(None, "was deleted"), (replace(BEGUN, topic_id=b"1" * 16), "was made anew"), (replace(BEGUN, partitions=4), "has grown")],
)
def test_what_is_not_as_it_was_is_told_once_it_is_certain(found: TopicFacts | None, words: str) -> None:
    """One look may have met a broker that had just started."""
    answers = [() if one is None else (one,) for one in (found, BEGUN, *[found] * SAME_LOOKS)]
    watch = TopicWatch([BEGUN], lambda: {one.name: one for one in answers.pop(0)}, lambda: NONE, Lines())
    for _ in range(len(answers) - 1):
        watch.look()
        assert watch.fault is None
    watch.look()
    assert words in str(watch.fault)


def test_a_broker_that_does_not_answer_says_nothing() -> None:
    """It is waited for, as everywhere in a worker."""

    def silent() -> dict[str, TopicFacts]:
        raise BrokerError("no answer")

    watch = TopicWatch([BEGUN], silent, lambda: NONE, Lines())
    for _ in range(3 * SAME_LOOKS):
        watch.look()
    assert watch.fault is None


def test_another_topic_that_is_missing_is_told_and_ends_nobody() -> None:
    """Once two looks agree, and once; and so is that it is there again."""
    looks = [{"state"}, {"dlq"}, {"dlq", "state"}, {"dlq", "state"}, {"dlq", "state"}, NONE, NONE]
    lines, answers = Lines(), [frozenset(look) for look in looks]
    watch = TopicWatch([BEGUN], lambda: {BEGUN.name: BEGUN}, lambda: answers.pop(0), lines)
    seen = []
    for _ in looks:
        watch.look()
        seen.append(watch.missing)
    assert [(), (), ("dlq",), ("dlq", "state"), ("dlq", "state"), (), ()] == seen
    assert [("topics_missing", ("dlq",)), ("topics_missing", ("dlq", "state")), ("topics_are_back", None)] == lines.told
    assert watch.fault is None
