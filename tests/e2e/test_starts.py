"""Starting a worker where it could not keep its promises: exit 3, or 2 without topics, one sentence and what to do."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from dispatcher.adapters.kafka import admin, starts
from dispatcher.adapters.kafka.admin import Cluster, TopicFacts, connect, create_missing, facts_of
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.errors import BrokerError, ConfigError, RefusedError
from dispatcher.settings import Settings
from dispatcher.worker import surroundings
from dispatcher.worker.surroundings import survey
from tests.e2e import operator
from tests.e2e.stage import Worker, assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CANNOT = 3
MISSING = 2


def _refused(worker: Worker, code: int = CANNOT) -> str:
    """Wait until it has given up; give its last words, which are a sentence and a hint."""
    assert worker.wait() == code, worker.text()
    assert "Traceback" not in worker.text()
    words = [line for line in worker.text().splitlines() if not line.startswith("{")]
    assert ["error", "hint"] == [line.partition(":")[0] for line in words], words
    return "\n".join(words)


def test_without_topics(settings: SettingsFactory, tmp_path: Path) -> None:
    """It names what is missing, and the command that makes it."""
    with stage(settings, tmp_path, init=False) as set_up:
        words = _refused(set_up.worker(), MISSING)
        assert set_up.settings.topics.requests in words
        assert "dispatcher topics init" in words


@pytest.mark.parametrize("wrong", ["parked", "control"])
def test_with_topics_that_do_not_fit_together(settings: SettingsFactory, prefix: str, wrong: str) -> None:
    """Parked requests lie beside their partition; commands have one order: a worker does not start on anything else, and names it."""
    made = settings(partitions=1)
    operator.grow(operator.connected(made), f"{prefix}.{wrong}", 2)
    eventually(lambda: facts_of(connect(made, 30), [f"{prefix}.{wrong}"])[f"{prefix}.{wrong}"].partitions == 2)
    with pytest.raises(ConfigError, match=rf"{prefix}\.{wrong} has 2 partitions"):
        survey(made)


def test_with_a_request_topic_that_was_given_more_partitions(settings: SettingsFactory, prefix: str) -> None:
    """The others do not fit to it any more, and to give them as many is not enough: keys have moved."""
    made = settings(partitions=1)
    operator.grow(operator.connected(made), f"{prefix}.requests", 2)
    eventually(lambda: facts_of(connect(made, 30), [f"{prefix}.requests"])[f"{prefix}.requests"].partitions == 2)
    with pytest.raises(ConfigError, match=rf"{prefix}\.replies has 1 partitions") as caught:
        survey(made)
    assert "until nothing is queued" in caught.value.hint


def test_without_positions(settings: SettingsFactory, tmp_path: Path) -> None:
    """Topics that nobody gave start positions: neither end of the log is a safe guess."""
    with stage(settings, tmp_path, init=False) as set_up:
        create_missing(connect(set_up.settings, 30), set_up.settings)
        assert "dispatcher topics init" in _refused(set_up.worker())


def test_a_node_that_has_not_heard_of_a_new_topic_is_asked_again(
    settings: SettingsFactory, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passed for a topic without partitions: none of them got a position, and no worker could start. Chaos met it."""
    made, asked = settings(init=False, partitions=2), list[str]()

    def deaf(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicFacts]:
        found = facts_of(cluster, names)
        if list(names) == [made.topics.requests]:
            asked.append(made.topics.requests)
            return {} if len(asked) < 3 else found
        return found

    monkeypatch.setattr(admin, "facts_of", deaf)
    monkeypatch.setattr(starts, "facts_of", deaf)
    assert {0: 0, 1: 0} == init_topics(made).started
    assert len(asked) >= 3


def test_a_group_that_has_lost_its_positions_calls_nothing_again_by_itself(settings: SettingsFactory, tmp_path: Path) -> None:
    """Kafka forgets a group that has had no worker for a week: the worker ends, and what it says to run asks where to go on."""
    with stage(settings, tmp_path, partitions=2) as set_up:
        replies, names = set_up.replies(), set_up.submit([f"doc:{n}" for n in range(6)])
        first = set_up.worker().ready()
        replies.await_count(len(names))
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        operator.forget(set_up.settings)
        assert "dispatcher topics init" in _refused(set_up.worker())
        with pytest.raises(RefusedError, match="was answered: its positions are lost") as caught:
            init_topics(set_up.settings)
        assert "--fill-gaps latest" in caught.value.hint
        assert set_up.positions()[1] == init_topics(set_up.settings, fill_gaps="latest").started
        names += set_up.submit(["doc:1"], prefix="later")
        set_up.worker().ready()
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        assert len(names) == set_up.witness()["calls"]


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that a start waits (here 1 s): a sentence, for exit code 3."""
    monkeypatch.setattr(surroundings, "FACTS_TIMEOUT_S", 1.0)
    nobody = Settings.model_validate({"kafka": {"bootstrap_servers": f"127.0.0.1:{free_port()}"}})
    with pytest.raises(BrokerError, match="cannot reach Kafka") as caught:
        survey(nobody)
    assert (CANNOT, True) == (caught.value.exit_code, bool(caught.value.hint))


@pytest.mark.soak
def test_without_a_broker(settings: SettingsFactory, tmp_path: Path) -> None:
    """Nobody answers at the address: the whole program says so after the 30 s that it waits at a start."""
    with stage(settings, tmp_path) as set_up:
        worker = set_up.worker(broker=f"127.0.0.1:{free_port()}")
        assert "cannot reach Kafka" in _refused(worker)
