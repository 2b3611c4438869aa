"""What a look at the request topic finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.errors import BrokerError
from dispatcher.worker.topic_watch import SAME_LOOKS, TopicWatch

BEGUN = TopicFacts("requests", bytes(16), 3, 1_000_000)


@pytest.mark.parametrize(
    ("found", "words"),
    [(None, "was deleted"), (replace(BEGUN, topic_id=b"1" * 16), "was made anew"), (replace(BEGUN, partitions=4), "has grown")],
)
def test_what_is_not_as_it_was_is_told_once_it_is_certain(found: TopicFacts | None, words: str) -> None:
    """One look may have met a broker that had just started."""
    answers = [found, BEGUN, *[found] * SAME_LOOKS]
    watch = TopicWatch(BEGUN, lambda: answers.pop(0))
    for _ in range(len(answers) - 1):
        watch.look()
        assert watch.fault is None
    watch.look()
    assert words in str(watch.fault)


def test_a_broker_that_does_not_answer_says_nothing() -> None:
    """It is waited for, as everywhere in a worker."""

    def silent() -> TopicFacts | None:
        raise BrokerError("no answer")

    watch = TopicWatch(BEGUN, silent)
    for _ in range(3 * SAME_LOOKS):
        watch.look()
    assert watch.fault is None
