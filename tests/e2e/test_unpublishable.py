"""Topics that cannot take what must be written to them: refused at a start; under a running worker nothing is committed without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.errors import ConfigError
from dispatcher.worker.surroundings import RECORD_MIN_BYTES, survey
from tests.e2e import operator
from tests.e2e.stage import stage
from tests.e2e.test_sizes import KIB, Sender, assert_committed, assert_hashed, by_offset, ending, numbered, reason
from tests.topics import SettingsFactory
from tests.waiting import eventually


def test_topics_that_do_not_answer_to_the_requests_are_refused_at_a_start(settings: SettingsFactory) -> None:
    """Eight partitions of requests and two of replies or dead letters: named with both counts, before any request is read.

    So is a topic that takes less than the shortest of what is written there; of our own ones, too.
    """
    made = settings(partitions=8)
    cluster, topics = operator.connected(made), made.topics
    survey(made)
    for name in (topics.journal, topics.state, topics.control):
        operator.limit(made, name, 1 * KIB)
        with pytest.raises(ConfigError, match=rf"{name} takes records of 1024 bytes"):
            survey(made)
        operator.limit(made, name, RECORD_MIN_BYTES)
    for name in (topics.replies, topics.dead_letters):
        operator.limit(made, name, 1 * KIB)
        with pytest.raises(ConfigError, match=rf"{name} takes records of 1024 bytes"):
            survey(made)
        operator.limit(made, name, RECORD_MIN_BYTES)
        survey(made)
        operator.delete(cluster, name)
        operator.create(cluster, name, 2)
        with pytest.raises(ConfigError, match=rf"{name} has 2 partitions and {made.topics.requests} has 8"):
            survey(made)
        operator.delete(cluster, name)
        operator.create(cluster, name, 8)


@pytest.mark.parametrize("publishing", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.soak)])
def test_a_letter_that_its_topic_does_not_take_holds_the_position(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """The dlq is set to 1 KiB under a running worker, and a bad record of 10 KiB comes: nothing is committed past it, and it is told.

    Once the topic takes it, letter and reply are there, each once, and what stands behind it is executed.
    """
    bad = b"{" + bytes(10 * KIB)
    with stage(settings, tmp_path, partitions=1, worker={"publishing": publishing}) as set_up:
        letters = set_up.settings.topics.dead_letters
        sender, replies, worker = Sender(set_up.settings), set_up.replies(), set_up.worker().ready()
        operator.limit(set_up.settings, letters, 1 * KIB)
        sender.send(0, numbered(0), bad, numbered(2))
        eventually(lambda: len(worker.events("publish_failed")) >= 2, what="the worker says that it cannot publish")
        assert set_up.positions()[0][0] <= 1
        operator.limit(set_up.settings, letters, 1024 * KIB)
        found = by_offset(replies.await_count(3))
        assert_committed(set_up)
        assert ["ok", "dead", "ok"] == [ending(found[0, offset])[0] for offset in range(3)]
        (letter,) = set_up.replies(letters).await_count(1)
        if reason(letter) == "malformed":
            assert bad == letter.value
        else:
            assert_hashed(letter, bad)
        assert 2 == set_up.witness()["calls"]
