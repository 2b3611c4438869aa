"""`dispatcher dev` as a user runs it: all is there, what it prints can be typed, and nothing stays behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.adapters.config import load
from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import command_line
from tests import loopback
from tests.e2e.conftest import Run, clean_environment
from tests.topics import SettingsFactory
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
END_S = 90


@pytest.fixture
def _topics_are_removed(settings: SettingsFactory, tmp_path: Path) -> Iterator[None]:
    """Remove what a run leaves for the next: the broker may be one that stays."""
    yield
    settings._made.append(load(file=tmp_path / ".dispatcher/dev/dev.toml", flags={}, properties=[], environ={}))


@contextmanager
def dev(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `dispatcher dev` in a folder; whatever happens, it is ended, and with it its children."""
    with (
        (folder / "dev.err").open("w") as err,
        subprocess.Popen(
            [sys.executable, "-m", "dispatcher", "dev", "--json", *arguments],
            cwd=folder,
            env=clean_environment() | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def addresses(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """Wait until it says where everything is."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "dev.err").read_text()
    read: dict[str, Any] = json.loads(line)
    return read


def answers(url: str) -> bool:
    """Tell whether anything listens there."""
    try:
        return bool(loopback.get(url, timeout_s=5).status_code)
    except httpx.TransportError:
        return False


def children(pid: int) -> list[int]:
    """List the processes that a process has started and not collected."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def assert_gone(pids: list[int]) -> None:
    """Wait until none of them runs."""
    assert pids
    eventually(lambda: not any(command_line(pid) for pid in pids), END_S, "all processes have ended")


def type_in(command: str, run: Run) -> subprocess.CompletedProcess[str]:
    """Run a command that was printed for a person."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "dispatcher"]
    return run(*words[3:])


def output_of(command: str, run: Run) -> str:
    """Give what a printed command prints."""
    done = type_in(command, run)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("_topics_are_removed")
@pytest.mark.parametrize("ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_what_it_prints_works_and_it_ends_in_order(kafka: str, prefix: str, run: Run, tmp_path: Path, ending: signal.Signals) -> None:
    """The commands that it prints do what they say; a second one is refused meanwhile; at the signal all ends, with exit 0."""
    with dev(tmp_path, "-b", kafka, "--prefix", prefix) as process:
        where = addresses(process, tmp_path)
        assert (where["broker"], where["broker_stays"]) == (kafka, True)
        second = run("-b", kafka, "dev")
        assert (second.returncode, f"already (process {process.pid})" in second.stderr) == (5, True), second.stderr
        ask, submit, replies = where["try"]
        assert json.loads(output_of(ask, run))["object"] == "chat.completion"
        assert output_of(submit, run)
        eventually(lambda: output_of(replies, run).count("\n") == 2, END_S, "two replies")
        assert answers(f"{where['worker']}/metrics")
        started = children(process.pid)
        process.send_signal(ending)
        assert process.wait(END_S) == 0, (tmp_path / "dev.err").read_text()
    assert_gone(started)
    assert not answers(where["upstream"])


@pytest.mark.usefixtures("_topics_are_removed")
def test_a_worker_that_dies_ends_it(kafka: str, prefix: str, tmp_path: Path) -> None:
    """What is left is no place to try things: exit 1, one sentence, and the rest is ended."""
    with dev(tmp_path, "-b", kafka, "--prefix", prefix) as process:
        where = addresses(process, tmp_path)
        started = children(process.pid)
        worker = next(pid for pid in started if command_line(pid)[-1:] == ["worker"])
        os.kill(worker, signal.SIGKILL)
        assert process.wait(END_S) == 1
    assert "error: the worker ended with exit code -9" in (tmp_path / "dev.err").read_text()
    assert_gone(started)
    assert not answers(where["upstream"])


@pytest.mark.broker
def test_its_own_broker_ends_with_it(run: Run, tmp_path: Path) -> None:
    """Where none runs it starts one, which is ended even when the command is killed."""
    broker = LocalBroker(tmp_path / ".dispatcher")
    try:
        with dev(tmp_path, "--port", "0") as process:
            where = addresses(process, tmp_path)
            assert (where["broker"], where["broker_stays"]) == (broker.status().bootstrap, False)
            assert output_of(where["try"][0], run)
            started = children(process.pid)
            process.kill()
        assert_gone(started)
        eventually(lambda: broker.status().state == "down", END_S, "the broker has ended")
        assert not answers(where["upstream"])
    finally:
        broker.down(grace_s=0)


@pytest.mark.soak
@pytest.mark.broker
def test_a_broker_that_runs_stays_and_its_own_is_ended(run: Run, tmp_path: Path) -> None:
    """A running one is used and left; its own is ended even when the command is killed; records stay in both cases."""
    broker = LocalBroker(tmp_path / ".dispatcher")
    try:
        bootstrap = broker.up()
        with dev(tmp_path) as process:
            where = addresses(process, tmp_path)
            assert (where["broker"], where["broker_stays"]) == (bootstrap, True)
            ask, _, replies = where["try"]
            assert output_of(ask, run)
            first = output_of(replies, run)
            assert first
            process.terminate()
            assert process.wait(END_S) == 0
        assert broker.status().state == "up"
        broker.down()
        with dev(tmp_path, "--port", "0") as process:
            where = addresses(process, tmp_path)
            assert not where["broker_stays"]
            assert type_in(replies, run).stdout == first
            started = children(process.pid)
            process.kill()
        assert_gone(started)
        assert broker.status().state == "down"
        assert not answers(where["upstream"])
    finally:
        broker.down(grace_s=0)
