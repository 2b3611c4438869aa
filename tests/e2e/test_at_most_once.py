"""Workers are killed in their calls: what must not be called twice is not, and attempts outlive the worker that made them."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.core.internal.tried import place_of, read_tried
from dispatcher.core.messages.record import Record
from dispatcher.settings import Settings
from tests.e2e import keyed
from tests.e2e.history import assert_guarantees, judged_stage, whole
from tests.e2e.kinds import key_on
from tests.e2e.stage import Stage, by_request, header, kill, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = pytest.mark.faults

# Longer than it takes to look, kill and take over; a wait that began anew with its owner would last as long again.
WAIT_S = 25


def noted(settings: Settings, topic_id_text: str) -> dict[int, int]:
    """How many requests of each partition something is known of in the state topic, which should be over."""
    left: dict[tuple[int, int], bool] = {}
    for record in whole(settings, settings.topics.state):
        offset = place_of(record, topic_id_text)
        assert offset is not None
        left[record.partition, offset] = read_tried(record, topic_id_text) is not None
    return Counter(partition for (partition, _), is_there in left.items() if is_there)


def topic_id_of(set_up: Stage) -> str:
    """Kafka's id of the request topic."""
    topic = set_up.settings.topics.requests
    return facts_of(connect(set_up.settings, 30), [topic])[topic].topic_id_text


def test_a_killed_worker_leaves_no_second_call_and_no_further_attempts(settings: SettingsFactory, tmp_path: Path) -> None:
    """One was in a call that must not be made twice: `outcome_unknown`, one call in all, and the next one of its lane runs.

    The other had failed once of twice and waits, as its callee asked for: its successor makes the second attempt when it is due, no other.
    """
    with stage(settings, tmp_path, partitions=2) as set_up:
        replies = set_up.replies()
        doomed = set_up.worker().ready()
        once, failing = (key_on(n, 2).decode() for n in range(2))
        set_up.submit([once], "/echo?fault=hang", prefix="once", repeat="never")
        set_up.submit([once], prefix="next", repeat="never")
        set_up.submit([failing], f"/echo?fault=500&retry_after={WAIT_S}", prefix="failing", attempts_max=2)
        eventually(lambda: set_up.calls(id="failing-0") and set_up.calls(id="once-0"), what="one is in its call, the other has failed")
        topic_id = topic_id_of(set_up)
        eventually(lambda: {0: 1, 1: 1} == noted(set_up.settings, topic_id), what="both are noted")
        kill(doomed)
        set_up.worker()
        found = by_request(replies.await_count(3, 120))
        unknown, exhausted = value(found["once-0"]), value(found["failing-0"])
        assert ("dead", "outcome_unknown", 1) == (unknown["status"], unknown["reason"], unknown["attempts"])
        assert ("dead", "attempts_exhausted", 2) == (exhausted["status"], exhausted["reason"], exhausted["attempts"])
        assert "ok" == value(found["next-0"])["status"]
        assert [1, 1, 2] == [len(set_up.calls(id=name)) for name in ("once-0", "next-0", "failing-0")]
        first, second = set_up.calls(id="failing-0")
        assert second["t_s"] - first["t_s"] >= WAIT_S
        letters = {header(record, "ce_id"): header(record, "__dispatcher.errors.reason") for record in letters_of(set_up)}
        assert {"once-0": "outcome_unknown", "failing-0": "attempts_exhausted"} == letters
        assert {} == noted(set_up.settings, topic_id)


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_whatever_is_killed_nothing_is_called_twice(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """Workers are killed one after another under a load of which nothing may be called twice: a reply each, no call again.

    What was in a call is unknown, and no more of it than was in hand.
    """
    worker = keyed.WORKER if ordering == "key" else {}
    latency_ms = {"partition": 20, "key": 150}[ordering]
    with judged_stage(settings, tmp_path, latency_ms=latency_ms, partitions=4, worker=worker) as set_up:
        replies = set_up.replies()
        workers = [set_up.worker(), set_up.worker()]
        eventually(lambda: all(each.live() for each in workers), what="both have partitions")
        names = set_up.submit([f"doc:{n % 40}" for n in range(600)], repeat="never")
        victims = []
        for count in (60, 200, 340):
            replies.await_count(count, 120)
            victims.append(workers.pop(0))
            kill(victims[-1])
            assert -signal.SIGKILL == victims[-1].wait()
            workers.append(set_up.worker())
        found = by_request(replies.await_count(len(names), 180))
        assert set(names) == set(found)
        ends = Counter(value(record).get("reason", value(record)["status"]) for record in found.values())
        assert {"ok", "outcome_unknown"} >= set(ends), ends
        assert 0 < ends["outcome_unknown"] < 3 * set_up.settings.topics.partitions * (1 if ordering == "partition" else 10) + 1
        calls = Counter(call["id"] for call in set_up.calls())
        assert {1} == set(calls.values())
        assert all(calls[name] for name, record in found.items() if value(record)["status"] == "ok")
        eventually(lambda: {} == noted(set_up.settings, topic_id_of(set_up)), what="nothing is left in the state topic")
        assert_guarantees(set_up, *victims, *workers)


@pytest.mark.soak
def test_a_worker_that_ends_in_order_leaves_nothing_unknown(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGTERM under load, again and again: each call ends or is never begun, so that all are answered `ok` after one call."""
    with judged_stage(settings, tmp_path, latency_ms=20, partitions=4) as set_up:
        replies = set_up.replies()
        workers = [set_up.worker(), set_up.worker()]
        eventually(lambda: all(each.live() for each in workers), what="both have partitions")
        names = set_up.submit([f"doc:{n % 40}" for n in range(600)], repeat="never")
        ended = []
        for count in (60, 200, 340):
            replies.await_count(count, 120)
            ended.append(workers.pop(0))
            ended[-1].signal(signal.SIGTERM)
            assert 0 == ended[-1].wait()
            workers.append(set_up.worker())
        found = by_request(replies.await_count(len(names), 180))
        assert {"ok": len(names)} == Counter(value(record)["status"] for record in found.values())
        assert {1} == set(Counter(call["id"] for call in set_up.calls()).values())
        assert_guarantees(set_up, *ended, *workers)


def letters_of(set_up: Stage) -> list[Record]:
    """All dead letters."""
    return list(whole(set_up.settings, set_up.settings.topics.dead_letters))
