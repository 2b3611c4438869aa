"""Strands: partitions of several topics as numbers."""

from __future__ import annotations

import pytest

from dispatcher.core.messages.record import Record
from dispatcher.core.progress.strand import RequestTopic, RequestTopics, number_of, source_of
from tests.specimens import alone

ONE = alone(bytes(16), 3)
TWO = RequestTopics([RequestTopic("r.fast", b"a" * 16, "fast"), RequestTopic("r.slow", b"b" * 16, "slow")], 3)


def test_of_one_topic_a_strand_is_the_number_of_its_partition() -> None:
    """So that nothing is to be translated where there are no classes; the topic of a record does not matter then."""
    record = Record("whatever", 2, 7, b"k", None)
    assert (2, 2, (2,)) == (ONE.strand(record), ONE.label(2), ONE.siblings(2))
    assert [0, 1, 2] == list(ONE.strands(0)) == ONE.labels({2, 0, 1})


def test_of_several_topics_each_partition_has_its_own() -> None:
    """It tells topic and number again, and those that have its number beside it."""
    slow, fast = (TWO.strand(Record(topic, 2, 7, b"k", None)) for topic in ("r.slow", "r.fast"))
    assert (0, 2, 1, 2) == (source_of(fast), number_of(fast), source_of(slow), number_of(slow))
    assert (fast, slow) == TWO.siblings(fast) == TWO.siblings(slow)
    assert (b"b" * 16, "slow/2", ["fast/2", "slow/2"]) == (TWO.topic_id(slow), TWO.label(slow), TWO.labels({slow, fast}))


def test_a_record_of_another_topic_has_none() -> None:
    """It would be an error of ours to have read it."""
    with pytest.raises(KeyError):
        TWO.strand(Record("r.other", 0, 0, b"k", None))
