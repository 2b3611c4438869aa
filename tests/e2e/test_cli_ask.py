"""`ask` and `wait` as users run them, on a real broker: the reply on stdout, how it ended on stderr, and each exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dispatcher.settings import Settings
from tests.e2e.conftest import Run, clean_environment
from tests.e2e.stage import Stage, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CALL = ("-k", "doc:1", "-u", "sample")


@pytest.fixture
def on(settings: SettingsFactory, tmp_path: Path) -> Iterator[Stage]:
    """Set a stage with one worker."""
    with stage(settings, tmp_path, partitions=3) as made:
        made.worker().ready()
        yield made


def environment(settings: Settings) -> dict[str, str]:
    """Name a test's broker, topics and group to the program."""
    names = {"DISPATCHER_TOPICS__PREFIX": settings.topics.prefix, "DISPATCHER_WORKER__GROUP": settings.worker.group}
    return names | {"DISPATCHER_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers}


def test_ask_prints_the_body_and_says_how_it_ended(on: Stage, run: Run) -> None:
    """Row 5: stdout is the callee's body and nothing else; stderr tells the status; 0 for ok, 1 for a call that failed or was refused."""
    own = environment(on.settings)
    good = run("ask", *CALL, "/echo", "-d", '{"n": 1.10}', "--metadata", '{"m": 1}', env=own)
    assert 0 == good.returncode, good.stderr
    assert '{"n": 1.10}' == good.stdout
    assert good.stderr.startswith("ok http 200: request ")
    quiet = run("ask", *CALL, "/echo", "-q", env=own)
    assert (0, "") == (quiet.returncode, quiet.stderr)
    whole = run("ask", *CALL, "/echo", "--json", "--id", "mine", "-H", "accept: application/json", env=own)
    row: dict[str, Any] = json.loads(whole.stdout)
    assert ["topic", "partition", "offset", "ts", "key", "headers", "value"] == list(row)
    assert ("doc:1", "mine") == (row["key"], dict(row["headers"])["ce_causationid"])
    failed = run("ask", *CALL, "/status/400", env=own)
    assert 1 == failed.returncode
    assert "error http 400: request " in failed.stderr
    assert "error: request " in failed.stderr
    dead = run("ask", "-k", "doc:1", "-u", "nobody", "/x", env=own)
    assert (1, "") == (dead.returncode, dead.stdout)
    assert "dead (unknown_upstream): request " in dead.stderr


def test_wait_takes_an_id_a_place_or_a_receipt(on: Stage, run: Run) -> None:
    """Whoever has the id, the place or the receipt of a request gets its reply, before and after it was answered."""
    own = environment(on.settings)
    receipt = run("submit", *CALL, "/echo?latency_ms=1000", "--json", env=own).stdout
    early = run("wait", "-", text=receipt, env=own)
    assert 0 == early.returncode, early.stderr
    place = json.loads(receipt)
    path = on.folder / "receipt.json"
    path.write_text(receipt)
    for name in place["request_id"], f"{place['topic']}/{place['partition']}/{place['offset']}", f"@{path}", receipt:
        late = run("wait", name, env=own)
        assert (0, early.stdout) == (late.returncode, late.stdout), late.stderr
        assert late.stderr.startswith(f"ok http 200: request {place['request_id']}, 1 call in ")


def test_an_asker_that_was_killed_is_followed_by_a_waiter(on: Stage, run: Run) -> None:
    """SIGKILL while a reply is awaited: another process gets it by the id alone."""
    own = environment(on.settings)
    command = [sys.executable, "-m", "dispatcher", "ask", *CALL, "/echo?latency_ms=3000", "--id", "left-alone"]
    process = subprocess.Popen(
        command,
        env=clean_environment() | own | {"PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=on.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: on.calls(id="left-alone"), what="the call is made")
    finally:
        process.kill()
        assert -signal.SIGKILL == process.wait(30)
    done = run("wait", "left-alone", "--timeout", "60s", env=own)
    assert 0 == done.returncode, done.stderr
    assert 1 == len(on.calls(id="left-alone"))


def test_what_did_not_come_in_time_is_exit_code_4(settings: SettingsFactory, run: Run) -> None:
    """Without a worker `ask` ends with 4 and says what to wait for; `wait` ends with 4; `show` says that it is queued."""
    own = environment(settings(partitions=3))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run, "ask", *CALL, "/x", "--id", "mine", "--timeout", "15s", env=own)
        waited = run("wait", "mine", "--timeout", "15s", env=own)
        asked = asking.result()
    assert (4, "") == (asked.returncode, asked.stdout)
    assert "hint: it will be answered: dispatcher wait mine\n" in asked.stderr
    assert (4, "") == (waited.returncode, waited.stdout)
    assert "no reply to request mine within 15 s" in waited.stderr
    assert "queued: lane " in run("show", "mine", env=own).stdout


def test_an_ask_that_is_interrupted_says_what_to_wait_for(settings: SettingsFactory, run: Run, tmp_path: Path) -> None:
    """Ctrl-C while the reply is awaited: 130, and the id, since the request is executed all the same."""
    own = environment(settings(partitions=3))
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatcher", "ask", *CALL, "/x"],
        env=clean_environment() | own | {"PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: run("requests", "-e", env=own).stdout, what="the request stands there")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(30)
    name = json.loads(run("requests", "-e", "--json", env=own).stdout)["headers"][0][1]
    assert (130, "", f"hint: if it was sent, it will be answered: dispatcher wait {name}\n") == (process.returncode, output, errors)


@pytest.mark.parametrize(
    "given",
    [
        '{"request_id": "q", "topic": "t", "partition": Infinity, "offset": 1, "key": "k", "time": "2026-11-29T10:00:00Z"}',
        '{"request_id": "", "topic": "t", "partition": 0, "offset": 1, "key": "k", "time": "2026-11-29T10:00:00Z"}',
        "two words",
    ],
)
def test_what_nobody_can_wait_for_is_exit_code_2(run: Run, given: str) -> None:
    """A receipt that none can be, and what is no id: at once, without Kafka."""
    done = run("wait", "-" if given.startswith("{") else given, "-b", "127.0.0.1:1", text=given)
    assert (2, "") == (done.returncode, done.stdout), done.stderr


@pytest.mark.parametrize("command", [("ask", *CALL, "/x"), ("wait", "mine"), ("cancel", "mine")])
def test_without_kafka_it_ends_in_time(run: Run, command: tuple[str, ...]) -> None:
    """Rows 2 and 3: with the broker away it ends by itself, with exit code 3 and nothing on stdout."""
    done = run(*command, "-b", "127.0.0.1:1", "--timeout", "2s", timeout=60)
    assert (3, "") == (done.returncode, done.stdout), done.stderr
