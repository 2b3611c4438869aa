"""Classes of requests on a real broker: topics of their own, one owner for all of a number, one call of a key at a time."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.kafka.unread import check_unread
from dispatcher.client import Submitter, SyncDispatcher, stamp
from dispatcher.client.call import Call
from dispatcher.client.standing import stands
from dispatcher.core.messages.submission import Submission, request
from dispatcher.core.operations.standing import Terminal
from dispatcher.errors import ConfigError
from tests.e2e import operator
from tests.e2e.conftest import Run
from tests.e2e.stage import Stage, header, ids, kill, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CLASSES: dict[str, Any] = {"generation": {"weight": 3}, "analysis": {"weight": 2}, "monitoring": {"weight": 1, "concurrency": 50}}
KEYS = [f"doc:{n}" for n in range(8)]


def submit(set_up: Stage, name: str, keys: list[str], prefix: str) -> list[str]:
    """Submit requests of a class, one for each of these keys."""
    made = []
    for number, key in enumerate(keys):
        value = orjson.dumps({"upstream": "sample", "path": f"/echo?key={key}", "body": {"n": number}})
        made.append(request(key, value, stamp(request_id=f"{prefix}-{name}-{number}")))
    with Submitter(set_up.settings.of_class(name)) as submitter:
        for outcome in submitter.submit_many(made):
            assert not isinstance(outcome, Exception), outcome
    return [str(one.request_id) for one in made]


def assert_one_at_a_time(set_up: Stage) -> None:
    """No two calls of a key were open at once, whatever their classes; but for what a killed worker left open."""
    by_key = defaultdict[str, list[dict[str, Any]]](list)
    for call in set_up.calls():
        by_key[call["key"]].append(call)
    assert by_key.keys() == set(KEYS)
    for calls in by_key.values():
        ended = sorted((call for call in calls if call.get("outcome") == "answered"), key=lambda call: call["t_s"])
        assert all(one["end_s"] <= other["t_s"] for one, other in pairwise(ended))


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.parametrize(("protocol", "ordering"), [("consumer", "key"), ("eager", "partition")])
def test_workers_come_go_and_crash_with_classes(settings: SettingsFactory, tmp_path: Path, protocol: str, ordering: str) -> None:
    """One works, another joins and is killed, the first one leaves a third: one reply each, in the order of each key and class."""
    worker = {"protocol": protocol, "ordering": ordering}
    with stage(settings, tmp_path, latency_ms=15, partitions=4, classes=CLASSES, worker=worker) as set_up:
        replies = set_up.replies()
        names = [one for name in CLASSES for one in submit(set_up, name, KEYS * 12, "a")]
        first = set_up.worker().ready()
        doomed = set_up.worker()
        eventually(lambda: doomed.live() and first.live(), what="both have partitions")
        for live in (doomed.live(), first.live()):
            assert all({f"{name}/{str(one).rpartition('/')[2]}" for name in CLASSES} <= live for one in live), "siblings have one owner"
        names += [one for name in CLASSES for one in submit(set_up, name, KEYS * 12, "b")]
        replies.await_count(len(replies.read()) + 20)
        kill(doomed)
        last = set_up.worker()
        eventually(last.live, what="the last one has partitions")
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        replies.await_count(len(names), 120)
        assert set(names) == set(ids(replies.records))
        assert {1} == set(ids(replies.records).values())
        assert {"ok": len(names)} == Counter(header(record, "dispatcher-status") for record in replies.records)
        offsets = defaultdict[tuple[str, bytes | None], list[int]](list)
        for record in replies.records:
            offsets[header(record, "dispatcher-request-topic"), record.key].append(int(header(record, "dispatcher-request-offset")))
        assert all(sorted(found) == found for found in offsets.values())
        assert len(CLASSES) * len(KEYS) == len(offsets)
        assert_one_at_a_time(set_up)


def test_a_client_is_of_one_class_and_a_lane_is_shared_as_the_weights_say(settings: SettingsFactory, tmp_path: Path) -> None:
    """It asks and waits as ever; with a backlog of all classes 3 : 2 : 1 of the calls are theirs."""
    with stage(settings, tmp_path, latency_ms=5, partitions=2, classes=CLASSES, worker={"ordering": "key"}) as set_up:
        with pytest.raises(ConfigError, match="no class"):
            SyncDispatcher(set_up.settings, class_="other")
        backlog = 120
        for name in CLASSES:
            submit(set_up, name, ["doc:1"] * backlog, "w")
        worker = set_up.worker(report_interval_s=0.2, topic_check_s=1).ready()
        with SyncDispatcher(set_up.settings, class_="monitoring") as client:
            receipt = client.submit(Call("sample", "POST", "/echo?key=doc:2"), key="doc:2")
            assert receipt.topic.endswith(".requests.monitoring")
            assert "ok" == client.wait(receipt, timeout=60).status
            assert "ok" == client.ask(Call("sample", "POST", "/echo?key=doc:1"), key="doc:1", timeout=90).status
        order = [call["id"].split("-")[1] for call in set_up.calls(key="doc:1") if call["id"].startswith("w-")]
        assert 3 * backlog == len(order)
        had = Counter(order[6:186])
        shares = {name: had[name] / 180 for name in CLASSES}
        assert {"generation": 3 / 6, "analysis": 2 / 6, "monitoring": 1 / 6} == pytest.approx(shares, rel=0.05)
        operator.delete(operator.connected(set_up.settings), f"{set_up.settings.topics.prefix}.requests.analysis")
        assert 3 == worker.wait(90)


def test_each_request_of_a_client_may_be_of_another_class(settings: SettingsFactory, tmp_path: Path) -> None:
    """It says which; receipts, ids and positions are waited for, cancelled and shown whatever their class. A wrong one is a dead letter."""
    with stage(settings, tmp_path, partitions=2, classes=CLASSES, worker={"ordering": "key"}) as set_up:
        set_up.worker().ready()
        with SyncDispatcher(set_up.settings) as client, pytest.raises(ConfigError, match="generation, analysis, monitoring"):
            client.submit(Call("sample", "POST", "/echo"), key="doc:1")
        with SyncDispatcher(set_up.settings, class_="monitoring") as client:
            call = Call("sample", "POST", "/echo?key=doc:1")
            receipts = {name: client.submit(call, key="doc:1", class_=name) for name in CLASSES}
            for name, receipt in receipts.items():
                assert receipt.topic.endswith(f".requests.{name}")
                assert "ok" == client.wait(receipt, timeout=60).status
                assert "ok" == client.wait(f"{receipt.topic}/{receipt.partition}/{receipt.offset}", timeout=60).status
                found = stands(set_up.settings, receipt).standing
                assert isinstance(found, Terminal)
                assert (receipt.topic, receipt.partition, receipt.offset) == found.request
            asked = client.ask(call, key="doc:1", class_="analysis", timeout=60)
            assert ("ok", receipts["analysis"].topic) == (asked.status, asked.source[0])
            hung = client.submit(Call("sample", "POST", "/fault/hang"), key="doc:1", class_="generation")
            held = client.submit(call, key="doc:1", class_="analysis", request_id="held")
            assert not isinstance(stands(set_up.settings, "held").standing, Terminal)
            assert "cancelled" == client.cancel(held).status
            assert "cancelled" == client.cancel(hung).status
            value = orjson.dumps({"upstream": "sample", "class": "analysis"})
            with Submitter(set_up.settings.of_class("generation")) as submitter:
                wrong = submitter.submit(Submission(b"doc:1", value, (), None))
            reply = client.wait(wrong, timeout=60)
            assert ("dead", "malformed") == (reply.status, reply.reason)
            assert reply.error is not None
            assert "write it to <prefix>.requests.analysis" in reply.error.message


def test_a_command_is_about_one_class(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Requests, lanes, cancels, replays and seeks of a class are its own; replies and pauses are common; who says nothing is asked."""
    with stage(settings, tmp_path, partitions=2, classes=CLASSES, worker={"ordering": "key"}) as set_up:
        config = tmp_path / "cli.toml"
        config.write_text(set_up._config(None, {"slot": "cli"}))

        def called(*arguments: str, code: int = 0, given: str | None = None) -> tuple[str, str]:
            done = run(*arguments, "--config", str(config), text=given)
            assert code == done.returncode, done.stderr + done.stdout
            return done.stdout, done.stderr

        def cli(*arguments: str, code: int = 0) -> str:
            return called(*arguments, code=code)[code != 0]

        def rows(*arguments: str, code: int = 0, given: str | None = None) -> list[dict[str, Any]]:
            return [orjson.loads(line) for line in called(*arguments, "--json", code=code, given=given)[0].splitlines()]

        cli("topics", "check")
        for name in CLASSES:
            submit(set_up, name, ["doc:1"] * 3, "c")
        assert "generation, analysis, monitoring" in cli("requests", code=2)
        assert "leave it out" in cli("--class", "analysis", "replies", code=2)
        assert "no class" in cli("--class", "other", "lanes", "list", code=2)
        assert {"c-analysis-0", "c-analysis-1", "c-analysis-2"} == {
            dict(one["headers"])["ce_id"] for one in rows("--class", "analysis", "requests", "-o", "start", "-e")
        }
        assert "queued" == rows("--class", "analysis", "show", "c-analysis-2")[0]["state"]
        assert "not_found" == rows("--class", "generation", "show", "c-analysis-2", code=1)[0]["state"]
        cli("--class", "monitoring", "lanes", "pause", "doc:1")
        worker = set_up.worker(report_interval_s=0.2, topic_check_s=1).ready()
        seen = eventually(
            lambda: [row for row in rows("--class", "analysis", "lanes", "list") if row.get("key") == "doc:1" and row["queued"] == 3],
            what="the worker tells of the lane, as this class has it",
        )
        assert "paused" == seen[0]["state"]
        cli("--class", "analysis", "cancel", "c-analysis-1")
        cli("--class", "generation", "lanes", "resume", "doc:1")
        replies = set_up.replies()
        replies.await_count(9)
        assert {"ok": 8, "cancelled": 1} == Counter(header(record, "dispatcher-status") for record in replies.records)
        assert 9 == len(rows("replies", "-o", "start", "-e"))
        assert "terminal" == rows("--class", "analysis", "show", "c-analysis-2")[0]["state"]
        worker.signal(signal.SIGTERM)
        assert 0 == worker.wait()
        planned = rows("--class", "analysis", "lanes", "seek", "--to", "start")[0]
        assert 3 == planned["again"]
        cli("--class", "monitoring", "lanes", "seek", "--plan", planned["plan"], "--execute", "-y", code=5)
        cli("--class", "analysis", "lanes", "seek", "--plan", planned["plan"], "--execute", "-y")
        set_up.worker().ready()
        replies.await_count(12)
        again = [header(record, "dispatcher-request-topic").rpartition(".")[2] for record in replies.records[9:]]
        assert ["analysis"] * 3 == again
        lines = [{"id": f"f-{name}", "key": "doc:2", "upstream": "sample", "path": "/echo", "class": name} for name in CLASSES]
        given = "".join(orjson.dumps(line).decode() + "\n" for line in [*lines, {"key": "doc:2", "upstream": "sample"}])
        assert "of one class" in called("submit", "--jsonl", "-", code=1, given=given)[1]
        replies.await_count(15)
        receipts = rows("--class", "monitoring", "submit", "--jsonl", "-", given=given)
        assert [*CLASSES, "monitoring"] == [one["topic"].rpartition(".")[2] for one in receipts]
        receipt = orjson.dumps(receipts[1]).decode()
        replies.await_count(19)
        assert "terminal" == rows("show", "-", given=receipt)[0]["state"]
        called("wait", "-", given=receipt)
        assert "has ended, as ok" in called("cancel", "-", given=receipt, code=5)[1]


def test_requests_that_nobody_reads_are_told_of(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Of before there were classes, and of classes that are none any more: when a worker starts, and by `topics check`.

    And where somebody of the group reads them while others have classes, those say so.
    """
    with stage(settings, tmp_path, partitions=2, classes=CLASSES) as set_up:
        before = set_up.settings.model_copy(update={"classes": {}})
        common = before.topics.requests
        init_topics(before)
        assert [] == check_unread(before) == check_unread(set_up.settings)
        with Submitter(before) as submitter:
            for key in KEYS[:3]:
                submitter.submit(request(key, b'{"upstream":"sample","path":"/echo"}', stamp()))
        submit(set_up, "analysis", KEYS[:2], "u")
        assert [(common, "up to 3")] == [(one.topic, one.found) for one in check_unread(set_up.settings)]
        assert [(f"{common}.analysis", "up to 2")] == [(one.topic, one.found) for one in check_unread(before)]
        config = tmp_path / "cli.toml"
        config.write_text(set_up._config(None, {"slot": "cli"}))
        checked = run("topics", "check", "--config", str(config))
        assert (1, True) == (checked.returncode, "requests that nobody reads" in checked.stdout)
        worker = set_up.worker(topic_check_s=1).ready()
        assert [(common, 3)] == [(event["topic"], event["requests"]) for event in worker.events("requests_unread")]
        set_up.replies().await_count(2)
        eventually(lambda: not check_unread(before), what="what was of a class has been read")
        set_up.settings = before
        other = set_up.worker()
        divided = eventually(lambda: worker.events("group_divided"), what="it hears of a worker without classes")
        assert [[common]] == [event["topics"] for event in divided]
        other.signal(signal.SIGTERM)
        assert 0 == other.wait()
        eventually(lambda: worker.events("group_agrees"), what="and that it has gone")
