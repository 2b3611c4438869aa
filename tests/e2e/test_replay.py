"""`replay` on a real broker: what it plans, what it writes, and that nothing is replayed twice whatever interrupts it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaException, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.client import Submitter, stamp
from dispatcher.client import replay as client_replay
from dispatcher.client.replay import Criteria, Replayer
from dispatcher.core.messages.envelope import REPLAY_ID, REPLAY_OF, REPLAYED_FROM
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.submission import request
from dispatcher.core.operations.positions import END, START, Span
from dispatcher.core.operations.replay import replayed
from dispatcher.core.operations.replay_plan import decode
from dispatcher.errors import RefusedError, WaitTimeout
from dispatcher.settings import Settings
from tests.e2e.conftest import Run, clean_environment
from tests.e2e.stage import header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

ALL = Criteria(Span(START, END))
VALUE = b'{"upstream": "crm", "path": "/x"}'
Cli = Callable[..., subprocess.CompletedProcess[str]]


def environment(made: Settings) -> dict[str, str]:
    """Name this test's topics and group to the program."""
    return {"DISPATCHER_TOPICS__PREFIX": made.topics.prefix, "DISPATCHER_WORKER__GROUP": made.worker.group}


@pytest.fixture
def made(settings: SettingsFactory) -> Settings:
    """Make topics of three partitions."""
    return settings(partitions=3)


@pytest.fixture
def cli(made: Settings, run: Run) -> Cli:
    """Run the program on this test's broker and topics."""

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*arguments, "-b", made.kafka.bootstrap_servers, env=environment(made))

    return cli


def fill(made: Settings, count: int, keys: int = 20) -> None:
    """Submit requests `r-0`, `r-1`, … over some keys."""
    submissions = (request(f"doc:{n % keys}", VALUE, stamp(request_id=f"r-{n}")) for n in range(count))
    with Submitter(made) as submitter:
        for outcome in submitter.submit_many(submissions):
            assert not isinstance(outcome, Exception), outcome


def produce(made: Settings, *records: tuple[bytes | None, bytes | None, tuple[Header, ...]], partition: int = 0) -> None:
    """Write raw records to one partition."""
    producer = clients.producer(made)
    for key, value, headers in records:
        producer.produce(made.topics.requests, value, key, partition=partition, headers=list(headers))
    assert producer.flush(30) == 0


def requests(made: Settings) -> list[Record]:
    """Read the request topic as it is."""
    with LogReader(made, made.topics.requests, 30) as reader:
        return list(reader.read(Span(START), until_end=True))


def replays(made: Settings) -> list[Record]:
    """Read the replays that are there."""
    return [record for record in requests(made) if header(record, REPLAY_OF)]


def remove_before(made: Settings, partition: int, offset: int) -> None:
    """Let retention take a partition up to an offset."""
    part = TopicPartition(made.topics.requests, partition, offset)
    admin = clients.admin(made)  # by name: one that is collected takes its answers with it
    admin.delete_records([part])[part].result(30)


def assert_replayed_once(made: Settings, count: int, runs: int = 1) -> None:
    """Each of `r-0` … is replayed once per run, in the order of each partition."""
    there = requests(made)
    old = [record for record in there if not header(record, REPLAY_OF)]
    new = [record for record in there if header(record, REPLAY_OF)]
    assert {f"r-{n}" for n in range(count)} == {header(record, REPLAY_OF) for record in new}
    assert (count * runs, count * runs) == (len(new), len({header(record, "ce_id") for record in new}))
    for partition in range(3):
        mine = [header(record, REPLAYED_FROM) for record in new if record.partition == partition]
        assert [f"{r.topic}/{r.partition}/{r.offset}" for r in old if r.partition == partition] * runs == mine


def test_a_replay_that_was_killed_goes_on_and_replays_each_once(made: Settings, cli: Cli, tmp_path: Path) -> None:
    """Row 22: SIGKILL in the middle of 1,000 requests; the command that it printed first does the rest, in order per partition."""
    fill(made, 1000)
    own = environment(made) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "dispatcher", "-b", made.kafka.bootstrap_servers, "replay", "-o", "start:end", "--execute", "-y"]
    errors = tmp_path / "stderr"
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--rate", "500/s"], cwd=tmp_path, env=clean_environment() | own, stdout=subprocess.DEVNULL, stderr=stream
        )
        try:
            before = eventually(lambda: replays(made), 60, "the first are replayed")
        finally:
            process.kill()
            assert -signal.SIGKILL == process.wait(30)
    assert len(before) < 1000
    printed = re.search(r"dispatcher (.* replay --plan \S+ --execute -y)", errors.read_text())
    assert printed is not None
    done = cli(*printed[1].split())
    assert 0 == done.returncode, done.stderr
    assert_replayed_once(made, 1000)
    written = re.match(r"replayed (\d+) of 1000 requests, (\d+) before: replay ", done.stdout)
    assert written is not None
    assert 1000 == int(written[1]) + int(written[2])
    again = cli("replay", "--plan", printed[1].split()[-3], "--execute", "-y", "--json")
    assert {"requests": 1000, "replayed": 0, "before": 1000}.items() <= json.loads(again.stdout).items()
    assert_replayed_once(made, 1000)


def test_who_was_frozen_in_a_replay_is_shut_out(made: Settings) -> None:
    """A predecessor that still has a transaction open can finish nothing, and what it had written does not count."""
    fill(made, 30)
    replayer = Replayer(made)
    plan = replayer.plan(ALL).plan
    selection = replayer.selection(plan)
    zombie = clients.producer(made, transactional_id=f"{made.worker.group}-replay-{plan.replay_id}")
    zombie.init_transactions(30)
    zombie.begin_transaction()
    first = requests(made)[0]
    message = replayed(first, plan, selection.old_id(first), "2026-11-29T10:00:00.000Z")
    zombie.produce(message.topic, message.value, message.key, partition=message.partition, headers=list(message.headers))
    assert 0 == zombie.flush(30)
    told: list[int] = []
    assert 30 == replayer.execute(plan, told=told.append)
    assert (0, 30) == (told[0], told[-1])
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    assert_replayed_once(made, 30)


def test_two_that_do_one_plan_replay_each_once(made: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process that takes a plan over shuts the first one out, which says so; between them nothing is done twice."""
    fill(made, 30)
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 5)
    plan = Replayer(made).plan(ALL).plan

    def interfere(done: int) -> None:
        if 0 < done < 20:
            clients.producer(made, transactional_id=f"{made.worker.group}-replay-{plan.replay_id}").init_transactions(30)

    with pytest.raises(RefusedError, match="another process does this replay"):
        Replayer(made).execute(plan, told=interfere)
    assert 0 < (before := len(replays(made))) < 30
    assert 30 == before + Replayer(made).execute(plan)
    assert_replayed_once(made, 30)


def test_what_others_have_open_is_not_taken_for_the_end(made: Settings) -> None:
    """Behind somebody's open transaction replays may stand that nobody can see yet: nothing is sent, exit code 4, later it goes on."""
    fill(made, 30)
    plan = Replayer(made).plan(ALL).plan
    other = clients.producer(made, transactional_id=f"{made.topics.prefix}-other")
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(made.topics.requests, VALUE, b"doc:1", partition=partition_for(b"doc:1", 3))
    assert 0 == other.flush(30)
    with pytest.raises(WaitTimeout, match="an open transaction hides the end of partition"):
        Replayer(made, timeout_s=1).execute(plan)
    other.abort_transaction(30)
    assert 30 == Replayer(made).execute(plan)
    assert_replayed_once(made, 30)


def test_a_plan_counts_and_writes_nothing(made: Settings, cli: Cli) -> None:
    """Row 22: requests, keys, what they queue behind, what is left out and why, and the command that does exactly this."""
    fill(made, 8, keys=2)
    number = partition_for(b"doc:0", 3)
    produce(made, (b"doc:0", None, ()), (None, VALUE, ()), (b"doc:0", b"{", ()), partition=number)
    produce(made, (b"doc:0", VALUE, ((REPLAY_OF, b"r-0"),)), (b"doc:0", VALUE, ((REPLAY_OF, b"r-1"),)), partition=number)
    end = len([record for record in requests(made) if record.partition == number])
    done = cli("replay", "-o", "start:end", "--json")
    assert (0, "") == (done.returncode, done.stderr)
    plan: dict[str, Any] = json.loads(done.stdout)
    assert (8, 2, True) == (plan["requests"], plan["keys"], plan["keys_are_all"])
    assert {"malformed": 3, "replay": 2} == plan["skipped"]
    assert [{"key": "doc:0", "requests": 4}, {"key": "doc:1", "requests": 4}] == sorted(plan["top_keys"], key=lambda top: str(top["key"]))
    assert {"from": 0, "to": end, "queued": end}.items() <= plan["partitions"][number].items()
    assert 8 == decode(plan["plan"]).requests
    text = cli("replay", "-o", "start:end", "-k", "doc:0")
    assert "4 requests of 1 key in " in text.stdout
    assert "left out: 2 malformed, 2 that are replays themselves\n" in text.stdout
    assert re.search(rf"\n{number} +0 +{end} +4 +{end}\n", text.stdout)
    assert re.search(r"nothing was called; this very set: dispatcher -b \S+ replay --plan \S+ --execute\n$", text.stdout)
    assert 2 == len(replays(made))
    told = cli("replay", "-o", "start:end", "--include-replays", "-n", "3", "--json")
    assert 3 == json.loads(told.stdout)["requests"]


def test_bytes_stay_as_they_were(made: Settings, cli: Cli) -> None:
    """Key, value and other headers are those of the original to the byte; only id and time are new, and the marks are added."""
    key, number = b"doc:\xc3\xbc", partition_for(b"doc:\xc3\xbc", 3)
    value = b'{ "upstream":"crm", "metadata": 1.10 }'
    headers: tuple[Header, ...] = (("x", b"\xff\x00"), ("x", None), ("kafka_correlationId", bytes(range(16))), ("traceparent", b"00-a"))
    produce(made, (key, value, headers), (key, value, (*headers, ("ce_id", b"old"))), partition=number)
    assert 0 == cli("replay", "-o", f"0:{2**62}", "-p", str(number), "--execute", "-y").returncode
    bare, named = replays(made)
    assert (key, value, key, value) == (bare.key, bare.value, named.key, named.value)
    assert headers == (bare.headers or ())[:4] == (named.headers or ())[:4]
    assert re.fullmatch(rf"{re.escape(made.topics.requests)}/{number}/0@.{{8}}", header(bare, REPLAY_OF))
    assert "old" == header(named, REPLAY_OF)
    assert header(bare, REPLAY_ID) == header(named, REPLAY_ID)


def test_a_set_that_changed_since_the_plan_is_refused(made: Settings, cli: Cli) -> None:
    """Row 22: retention takes a part between plan and execution: exit code 5, and nothing was called."""
    fill(made, 60)
    plan = json.loads(cli("replay", "-o", "start:end", "--json").stdout)["plan"]
    partition = next(part.partition for part in decode(plan).parts if part.requests > 3)
    remove_before(made, partition, 3)
    done = cli("replay", "--plan", plan, "--execute", "-y")
    assert (5, "") == (done.returncode, done.stdout)
    assert f"the set changed since the plan: partition {partition} has 3 fewer requests" in done.stderr
    assert [] == replays(made)


def test_other_settings_than_the_plan_s_are_refused(made: Settings, settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is counted before the first is called: with settings that take fewer, nothing is, also where a part was done."""
    fill(made, 30)
    wrong = next(key for key in (b"doc:%d" % n for n in range(99)) if partition_for(key, 3) == 1)
    produce(made, (wrong, VALUE, ()), partition=0)
    loose = settings(partitions=3, init=False, worker={"on_wrong_partition": "warn"})
    plan = Replayer(loose).plan(ALL).plan
    assert 31 == plan.requests
    with pytest.raises(RefusedError, match="the set changed since the plan: partition 0 has 1 fewer requests"):
        Replayer(made).execute(plan)
    assert [] == replays(made)
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 5)

    before = 0

    def stop(done: int) -> None:
        nonlocal before
        before = done
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replayer(loose).execute(plan, told=stop)
    # Kafka says that it is committed before every reader may see all of it.
    eventually(lambda: len(replays(made)) == before, what="what was written is visible")
    with pytest.raises(RefusedError, match="1 fewer requests"):
        Replayer(made).execute(plan)
    assert 0 < before == len(replays(made))
    assert 31 == before + Replayer(loose).execute(plan)


def test_a_plan_of_records_that_were_never_there_is_refused(made: Settings) -> None:
    """A plan that somebody made up, or of a log that lost its end: nothing is called, and nothing is waited for."""
    fill(made, 30)
    replayer = Replayer(made)
    plan = replayer.plan(ALL).plan
    forged = replace(plan, parts=(*plan.parts[:-1], replace(plan.parts[-1], end=10**15)))
    for done in (lambda: replayer.execute(forged)), (lambda: replayer.selection(forged)):
        with pytest.raises(RefusedError, match=f"partition {plan.parts[-1].partition} .* ends before what the plan names"):
            done()
    assert [] == replays(made)


def test_a_plan_is_for_one_topic(made: Settings, settings: SettingsFactory) -> None:
    """A plan of a topic that was made anew, or of another cluster, is refused: its offsets mean other requests."""
    fill(made, 3)
    plan = Replayer(made).plan(ALL).plan
    other = settings(partitions=3, topics={"prefix": f"{made.topics.prefix}-other"})
    with pytest.raises(RefusedError, match="another cluster, or was made anew"):
        Replayer(other).execute(plan)


def test_a_replay_whose_traces_are_gone_is_refused(made: Settings) -> None:
    """What was replayed is only known from the log: where retention took that part, going on could call twice."""
    fill(made, 20)
    plan = Replayer(made).plan(ALL).plan
    Replayer(made).execute(plan)
    part = plan.parts[0]
    remove_before(made, part.partition, part.end + 1)
    with pytest.raises(RefusedError, match=f"no longer in partition {part.partition}"):
        Replayer(made).execute(plan)
    assert 19 == len(replays(made))


def test_what_retention_removed_is_said(made: Settings, cli: Cli) -> None:
    """A range that begins before what is left names the offsets that are gone; for a time it says that they may have been of it."""
    fill(made, 60)
    number = partition_for(b"doc:1", 3)
    remove_before(made, number, 5)
    done = cli("replay", "-o", "2:7", "-p", str(number))
    assert done.stdout.startswith("2 requests of ")
    assert f"missing: partition {number}: offsets 2 to 4 were removed by retention; the first one now is 5\n" in done.stdout
    timed = json.loads(cli("replay", "-o", "@-1h:end", "--json").stdout)
    assert [{"partition": number, "from": 0, "to": 5, "certain": False}] == timed["missing"]
    assert [] == json.loads(cli("replay", "-o", "start:end", "--json").stdout)["missing"]
    gone = cli("replay", "-o", "0:4", "-p", str(number), "--execute", "-y")
    assert (0, "replayed 0 of 0 requests") == (gone.returncode, gone.stdout[:24])


def test_nothing_is_called_without_a_yes(made: Settings, cli: Cli) -> None:
    """Row 2: without a terminal and without -y it is refused with exit code 5; a partition that is not there is a wrong argument."""
    fill(made, 3)
    for arguments, code, said in (("--execute",), 5, "add -y to do it"), (("-p", "3"), 2, "has no partition 3"):
        done = cli("replay", "-o", "start:end", *arguments)
        assert (code, "") == (done.returncode, done.stdout)
        assert said in done.stderr
    assert [] == replays(made)


def test_a_person_types_the_number(made: Settings, tmp_path: Path) -> None:
    """On a terminal the number of requests is asked for; another one, or none, is a refusal."""
    fill(made, 3)
    for typed, code, count in ("4", 5, 0), ("", 5, 0), ("3", 0, 3):
        ours, theirs = pty.openpty()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "dispatcher", "replay", "-o", "start:end", "--execute", "-b", made.kafka.bootstrap_servers],
                cwd=tmp_path,
                env=clean_environment() | environment(made) | {"PYTHONPATH": str(Path(__file__).parents[2])},
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            os.write(ours, f"{typed}\n".encode())
            out, err = process.communicate(timeout=120)
        finally:
            os.close(ours)
            os.close(theirs)
        assert (code, count) == (process.returncode, len(replays(made))), err
        assert "3 requests of " in err
        assert ("replayed 3 of 3" in out) == (code == 0)


def test_without_kafka_it_ends_in_time(run: Run) -> None:
    """Row 3: a broker that is not there is exit code 3 within --timeout."""
    done = run("replay", "-o", "start:end", "-b", "127.0.0.1:1", "--timeout", "1s")
    assert (3, "") == (done.returncode, done.stdout)
    assert "cannot reach Kafka at 127.0.0.1:1" in done.stderr


def test_workers_call_again_and_recorded_replies_need_none(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Replayed requests are called, in order, under their new ids; `--recorded` prints what was answered, in order, without a call."""
    with stage(settings, tmp_path, partitions=3) as on:
        own = environment(on.settings)

        def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run(*arguments, "-b", on.settings.kafka.bootstrap_servers, env=own)

        on.submit([f"doc:{n % 7}" for n in range(20)])
        unanswered = cli("replay", "-o", "start:end", "--recorded")
        assert (1, "") == (unanswered.returncode, unanswered.stdout)
        assert 20 == unanswered.stderr.count(" has no recorded reply\n")
        assert "error: 20 of 20 requests have no recorded reply\n" in unanswered.stderr
        on.worker().ready()
        replies = on.replies()
        replies.await_count(20)
        assert 0 == cli("replay", "-o", "start:end", "--execute", "-y").returncode
        replies.await_count(40)
        calls = on.calls()
        done = cli("replay", "-o", "start:end", "--recorded", "--json")
        assert (0, "") == (done.returncode, done.stderr)
        assert len(calls) == len(on.calls()) == 40
        rows = [orjson.loads(line) for line in done.stdout.splitlines()]
        there = requests(on.settings)
        originals = [record for n in range(3) for record in there if record.partition == n and not header(record, REPLAY_OF)]
        assert [header(record, "ce_id") for record in originals] == [dict(row["headers"])["ce_causationid"] for row in rows]
        assert {"ok"} == {dict(row["headers"])["dispatcher-status"] for row in rows}
        for partition in range(3):
            mine = [record for record in there if record.partition == partition]
            assert [header(r, "ce_id") for r in mine] == [call["id"] for call in calls if call["id"] in {header(r, "ce_id") for r in mine}]
        summary = on.witness()
        assert {"partition": 0, "key": 0} == summary["out_of_order"], summary["findings"]
