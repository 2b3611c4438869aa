"""`show` on a real broker: the four states of a request, and what was searched for one that is nowhere."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.client import Submitter, stamp
from dispatcher.client.lanes import Lanes, lane
from dispatcher.client.standing import stands
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.submission import request
from dispatcher.core.operations.standing import Queued, Terminal
from dispatcher.settings import Settings
from tests.e2e.by_hand import worked
from tests.e2e.conftest import Run
from tests.e2e.stage import stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

LANE = partition_for(b"doc:1", 3)
Cli = Callable[..., subprocess.CompletedProcess[str]]


def cli_of(settings: Settings, run: Run) -> Cli:
    """Run the program on a test's topics and group."""
    own = {"DISPATCHER_TOPICS__PREFIX": settings.topics.prefix, "DISPATCHER_WORKER__GROUP": settings.worker.group}

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*arguments, "-b", settings.kafka.bootstrap_servers, env=own)

    return cli


def shown(cli: Cli, request_id: str) -> dict[str, Any]:
    """Show a request that is there."""
    done = cli("show", request_id, "--json")
    assert (0, "") == (done.returncode, done.stderr)
    row: dict[str, Any] = json.loads(done.stdout)
    assert request_id == row.pop("request_id")
    return row


def remove_before(settings: Settings, topic: str, offset: int) -> None:
    """Let retention take the lane of a topic up to an offset."""
    part = TopicPartition(topic, LANE, offset)
    admin = clients.admin(settings)  # by name: one that is collected takes its answers with it
    admin.delete_records([part])[part].result(30)


def test_a_request_is_queued_then_running_then_terminal(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Row 15: `queued` with lane, place and how many are before it, with and without a worker; `running`; `terminal` with its reply."""
    with stage(settings, tmp_path, partitions=3) as on:
        cli, topic = cli_of(on.settings, run), on.settings.topics.requests
        on.submit(["doc:1"] * 3, "/echo", prefix="done")
        on.submit(["doc:1"] * 4, "/echo?latency_ms=50000")
        place = {"topic": topic, "partition": LANE, "offset": 0}
        waits = {"state": "queued", "lane": LANE, "exact": True, "owned": False}
        assert waits | {"place": 1, "before": 0, "request": place} == shown(cli, "done-0")
        assert "no worker has this lane" in cli("show", "r-3").stdout
        on.worker().ready()
        on.replies().await_count(3)
        eventually(lambda: on.calls(id="r-0"), what="the call is made")
        eventually(lambda: 3 == on.positions()[0][LANE], what="what is done is committed")
        assert {"state": "running", "lane": LANE, "request": place | {"offset": 3}} == shown(cli, "r-0")
        row = waits | {"owned": True, "place": 4, "before": 3, "request": place | {"offset": 6}}
        assert row == shown(cli, "r-3") == shown(cli, f"{topic}/{LANE}/6") | {}
        assert f"queued: lane {LANE} of {topic}, place 4, 3 before it; the first one is being called\n" == cli("show", "r-3").stdout
        ended = shown(cli, "done-1")
        reply = {"topic": on.settings.topics.replies, "partition": LANE}
        assert {"state": "terminal", "status": "ok", "reason": None, "dead_letter": None}.items() <= ended.items()
        assert reply.items() <= ended["reply"].items()
        text = cli("show", f"{topic}/{LANE}/1").stdout
        assert f"terminal: ok, reply {reply['topic']}/{LANE}/{ended['reply']['offset']}\n" == text


def test_with_a_lane_for_each_key_a_place_counts_its_own_key_alone(settings: SettingsFactory) -> None:
    """What is settled above the position has ended. What is parked has not, and is before newer ones of its key; a void entry is none."""
    group = worked(settings(partitions=1, worker={"ordering": "key"}))

    def shows(number: int) -> object:
        found = stands(group.settings, f"r-{number}")
        assert found.by_key
        return found.standing

    for number, before in ((2, 0), (9, 0), (14, 1)):
        standing = shows(number)
        assert isinstance(standing, Queued)
        assert standing.parked is not None
        assert (before, True, False, number, "backoff") == (
            standing.before,
            standing.before_is_exact,
            standing.is_owned,
            standing.parked.offset,
            standing.parked.why,
        )
    for number, before in ((12, 1), (15, 2), (17, 2), (18, 3), (19, 0)):
        assert Queued((group.settings.topics.requests, 0, number), before, before_is_exact=True, is_owned=False) == shows(number)
    Lanes(group.settings).pause(lane("doc:1"))
    assert Queued((group.settings.topics.requests, 0, 19), 0, before_is_exact=True, is_owned=False, held="paused") == shows(19)
    for number in (0, 11, 13, 16):
        assert Terminal((group.settings.topics.requests, 0, number), None, None, None, None) == shows(number)


@pytest.mark.soak
def test_a_parked_request_is_shown_and_waited_for(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """A key that waits as long as its callee says: queued, parked, until when; and whoever waits gets the reply once it has ended."""
    worker = {"ordering": "key", "lane_buffer_max_records": 8}
    with stage(settings, tmp_path, partitions=1, worker=worker) as on:
        own = {"DISPATCHER_TOPICS__PREFIX": on.settings.topics.prefix, "DISPATCHER_WORKER__GROUP": on.settings.worker.group}

        def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run(*arguments, "-b", on.settings.kafka.bootstrap_servers, env=own | {"DISPATCHER_WORKER__ORDERING": "key"})

        on.worker().ready()
        on.submit(["doc:slow"], "/echo?fault=429&retry_after=20&times=1", prefix="first")
        on.submit(["doc:slow"] * 5, prefix="slow")
        on.submit([f"doc:{n}" for n in range(30)], prefix="other")
        on.replies().await_count(30)
        eventually(lambda: stands(on.settings, "slow-3").standing.parked, what="the key is parked")  # type: ignore[union-attr]
        row = shown(cli, "slow-3")
        assert {"state": "queued", "lane": 0, "key": "doc:slow", "place": 5, "before": 4, "owned": True}.items() <= row.items()
        assert re.fullmatch(
            r"queued: lane doc:slow in \S+/0, place 1, 0 before it; parked \(retry_after\), due \S+Z; a worker has this lane\n",
            cli("show", "first-0").stdout,
        )
        waited = cli("wait", f"{on.settings.topics.requests}/0/3", "--timeout", "2m")
        assert (0, 1) == (waited.returncode, len(on.calls(id="slow-2"))), waited.stderr


def test_what_ended_is_told_from_what_is_left(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """A dead one has its dead letter; where retention took request or reply, what is left still says that it ended."""
    with stage(settings, tmp_path, partitions=3) as on:
        cli, topics = cli_of(on.settings, run), on.settings.topics
        on.worker().ready()
        on.submit(["doc:1"], "/echo", prefix="good")
        on.submit(["doc:1"], "/status/400", prefix="refused", upstream="nobody")
        replies = on.replies().await_count(2)
        dead = shown(cli, "refused-0")
        letter = {"topic": topics.dead_letters, "partition": LANE}
        assert ("terminal", "dead", "unknown_upstream") == (dead["state"], dead["status"], dead["reason"])
        assert letter.items() <= dead["dead_letter"].items()
        assert re.fullmatch(
            rf"terminal: dead \(unknown_upstream\), reply \S+/{LANE}/\d+, dead letter \S+/{LANE}/\d+\n", cli("show", "refused-0").stdout
        )
        eventually(lambda: 2 == on.positions()[0][LANE], what="both are committed")
        remove_before(on.settings, topics.replies, replies[-1].offset + 1)
        assert {"state": "terminal", "status": None, "reply": None}.items() <= shown(cli, "good-0").items()
        assert {"state": "terminal", "status": "dead", "reply": None}.items() <= shown(cli, "refused-0").items()
        assert "terminal: settled, its reply is not there any more\n" == cli("show", "good-0").stdout
        remove_before(on.settings, topics.requests, 2)
        only = shown(cli, "refused-0")
        assert (None, None, "dead", "unknown_upstream") == (only["request"], only["reply"], only["status"], only["reason"])
        assert 1 == cli("show", "good-0").returncode


def test_what_is_nowhere_is_not_found(settings: SettingsFactory, run: Run) -> None:
    """Row 15: an unknown id is `not_found` with exit code 1, and where was looked, in all topics and partitions, from where to where."""
    made = settings(partitions=3)
    cli, topic = cli_of(made, run), made.topics.requests
    with Submitter(made) as submitter:
        for number in range(3):
            submitter.submit(request(f"doc:{number}", b'{"upstream": "up"}', stamp()))
    for name in "nobody", "01a22853-6bf7-7353-8577-854f6ec8a1c0", "other.topic/0/0", f"{topic}/0/99", f"{topic}/{LANE}/0@otherid0":
        done = cli("show", name, "--json")
        assert (1, "not_found") == (done.returncode, json.loads(done.stdout)["state"])
        assert "error: there is no request " in done.stderr
        searched = json.loads(done.stdout)["searched"]
        assert {"0": [0, 0], "1": [0, 0], "2": [0, 0]} == searched[made.topics.replies] == searched[made.topics.dead_letters]
        if "/" not in name:
            assert 3 == sum(stop - start for start, stop in searched[topic].values())
    text = cli("show", "nobody").stdout
    assert re.match(rf"not_found: searched {re.escape(topic)} 0/0\.\.\d, 1/0\.\.\d, 2/0\.\.\d; ", text)


def test_without_kafka_it_ends_in_time(run: Run) -> None:
    """Row 3: a broker that is not there is exit code 3 within --timeout."""
    done = run("show", "r-0", "-b", "127.0.0.1:1", "--timeout", "1s")
    assert (3, "") == (done.returncode, done.stdout)
