"""The local broker: a process per directory that is started, found again, stopped, and never mistaken for another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import check_topics, init_topics
from dispatcher.adapters.local_broker import GivenBroker, Jars, LocalBroker, Status, java, ladder, maven_central, process, started
from dispatcher.adapters.local_broker.java import java_version
from dispatcher.errors import BrokerError, ConfigError, RefusedError
from dispatcher.settings import Settings
from tests.e2e.conftest import Run, bare_environment

real = pytest.mark.broker


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Give a broker's directory, and leave no process behind."""
    yield tmp_path / "dispatcher"
    LocalBroker(tmp_path / "dispatcher").down(grace_s=0)


def script(path: Path, text: str) -> None:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def at(bootstrap: str) -> Settings:
    """Make settings for a broker."""
    return Settings.model_validate({"kafka": {"bootstrap_servers": bootstrap}, "topics": {"partitions": 2}})


@real
def test_up_finds_what_runs_and_down_keeps_the_data(directory: Path, run: Run) -> None:
    """`up` twice is one broker; `status` shows it; `down` stops it; the next `up` has its topics and positions still."""
    flags = ("--dir", str(directory))
    assert run("broker", "status", *flags).returncode == 3
    first = run("broker", "up", "--port", "0", *flags, timeout=240)
    assert first.returncode == 0, first.stderr
    bootstrap = first.stdout.strip()
    assert run("broker", "up", *flags).stdout.strip() == bootstrap
    assert run("broker", "status", *flags).stdout.strip() == bootstrap
    init_topics(at(bootstrap))
    other = run("broker", "up", "--port", "1", *flags)
    assert (other.returncode, other.stdout) == (5, "")
    assert f"runs on port {bootstrap.rpartition(':')[2]}" in other.stderr
    assert run("broker", "down", *flags).stdout == "stopped\n"
    assert run("broker", "down", *flags).stdout == "not running\n"
    assert run("broker", "status", "--json", *flags).returncode == 3
    again = run("broker", "up", "--port", "0", "--json", "-q", *flags, timeout=240)
    assert again.stderr == ""
    status = json.loads(again.stdout)
    assert (status["state"], status["kind"]) == ("up", "jars")
    assert check_topics(at(status["bootstrap_servers"])) == []


@real
def test_a_stopped_process_is_killed_after_the_grace(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken under our hands costs another try; a broker that does not heed TERM is killed."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        ports = [stranger.getsockname()[1]]
        ask = process.free_port
        monkeypatch.setattr(process, "free_port", lambda: ports.pop() if ports else ask())
        # In base64 it begins with a dash, as one in 64 does: Kafka's tool must not take it for an option.
        monkeypatch.setattr(process, "uuid", SimpleNamespace(uuid4=lambda: UUID(bytes=b"\xf8" * 16)))
        broker = LocalBroker(directory)
        bootstrap = broker.up()
        assert bootstrap != f"127.0.0.1:{stranger.getsockname()[1]}"
    assert clients.kip848_times(clients.admin(at(bootstrap))) == clients.GroupTimes(session_s=6, heartbeat_s=2)
    found = started(directory)
    assert isinstance(found, LocalBroker)
    os.kill(int(broker.status().process or 0), signal.SIGSTOP)
    assert found.down(grace_s=0.5)
    assert broker.status().state == "down"


@real
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param({"num.io.threads": "many"}, r"num\.io\.threads", id="refused at once", marks=pytest.mark.soak),
        pytest.param({"authorizer.class.name": "no.such.Authorizer"}, r"no\.such\.Authorizer", id="dies while starting"),
    ],
)
def test_a_broker_that_cannot_start_shows_why(directory: Path, wrong: dict[str, str], words: str) -> None:
    """Kafka's last words, not the frames of its stack, are in the error, and no process is left."""
    broker = LocalBroker(directory, extra=wrong)
    with pytest.raises(BrokerError, match=words):
        broker.up()
    assert broker.status().state == "down"


def test_a_port_that_is_taken_is_named(directory: Path, tmp_path: Path) -> None:
    """A fixed port that another program has is an error before anything is started, or said to be."""
    said: list[str] = []
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        script(tmp_path / "bin" / "java", fake_java("21.0.1"))
        script(tmp_path / "bin" / "mvn", fake_maven(tmp_path / "calls"))
        with pytest.raises(ConfigError, match=f"port {port} is taken"):
            LocalBroker(directory, port, environ=tools(tmp_path), say=said.append).up()
    assert said == []


def test_a_stranger_with_our_number_is_left_alone(directory: Path) -> None:
    """A note whose process number now belongs to another program is a broker that is down; `down` kills nobody."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        note = directory / "broker" / "broker.json"
        note.parent.mkdir(parents=True)
        note.write_text(json.dumps({"pid": stranger.pid, "port": 9092}))
        broker = LocalBroker(directory)
        assert broker.status().state == "down"
        assert started(directory) is None
        assert not broker.down()
        assert not note.exists()
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x"}', '{"port": 1}'])
def test_half_a_note_is_no_broker(directory: Path, note: str) -> None:
    """Whatever is in the file, the answer is a state."""
    (directory / "broker").mkdir(parents=True)
    (directory / "broker" / "broker.json").write_text(note)
    assert LocalBroker(directory).status().state == "down"


def tools(home: Path) -> dict[str, str]:
    """Give an environment that has only the programs under `home`/bin."""
    return {"PATH": str(home / "bin"), "HOME": str(home)}


def fake_maven(calls: Path) -> str:
    """Give a program that makes the directory which Maven would fill, and notes that it was called."""
    make = '/bin/mkdir -p "${a#*=}"; : > "${a#*=}/a.jar"'
    return f'echo called >> "{calls}"; for a in "$@"; do case $a in -DoutputDirectory=*) {make};; esac; done'


def fake_java(version: str) -> str:
    """Give a program that says that it is Java."""
    return f"echo 'openjdk version \"{version}\" 2025-01-01' >&2"


@pytest.fixture
def _no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide Java and jgo where they came as wheels."""
    monkeypatch.setattr(java, "_wheel", lambda: None)
    monkeypatch.setattr(maven_central, "available", lambda: False)


def test_without_java_the_hint_says_what_to_do(directory: Path, tmp_path: Path, run: Run) -> None:
    """No Java anywhere: exit 3 and what to install, without a traceback."""
    done = run("broker", "up", "--port", "0", "--dir", str(directory), env=bare_environment(tmp_path) | {"JAVA_HOME": ""})
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs Java, and there is none" in done.stderr
    assert "hint: install Java 17" in done.stderr


@pytest.mark.usefixtures("_no_wheels")
def test_an_old_java_is_refused(tmp_path: Path) -> None:
    """Kafka 4 does not run on Java 11; the sentence names the version found."""
    script(tmp_path / "bin" / "java", fake_java("11.0.2"))
    with pytest.raises(BrokerError, match="is Java 11"):
        Jars(tools(tmp_path)).java()


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    """JAVA_HOME is where the user wants Java from."""
    script(tmp_path / "bin" / "java", fake_java("11.0.2"))
    script(tmp_path / "jdk" / "bin" / "java", fake_java("21.0.1"))
    assert Jars(tools(tmp_path) | {"JAVA_HOME": str(tmp_path / "jdk")}).java() == str(tmp_path / "jdk" / "bin" / "java")


@pytest.mark.parametrize(
    ("text", "expected"), [('version "1.8.0_402"', 8), ('version "17.0.15"', 17), ('version "25" 2025', 25), ("no java here", 0)]
)
def test_java_versions_are_read(text: str, expected: int) -> None:
    """Java 8 calls itself 1.8; others begin with their number."""
    assert java_version(text) == expected


@pytest.mark.usefixtures("_no_wheels")
def test_without_maven_the_hint_says_what_to_do(tmp_path: Path) -> None:
    """No jars and nothing to fetch them with is a sentence."""
    (tmp_path / "bin").mkdir()
    with pytest.raises(BrokerError, match="no Maven"):
        Jars(tools(tmp_path)).classpath()


def test_a_failed_download_leaves_nothing_that_looks_done(tmp_path: Path) -> None:
    """Maven's last words are in the hint, and the next start tries again."""
    script(tmp_path / "bin" / "mvn", "echo 'cannot resolve artifact'; exit 1")
    jars = Jars(tools(tmp_path))
    with pytest.raises(BrokerError, match="could not fetch") as caught:
        jars.classpath()
    assert "cannot resolve artifact" in caught.value.hint
    assert list(jars.directory.parent.iterdir()) == []


def test_first_starts_at_once_end_with_one_set_of_jars(tmp_path: Path) -> None:
    """Several commands may fetch at the same time: all succeed, one directory remains, and nothing half done beside it."""
    script(tmp_path / "bin" / "mvn", fake_maven(tmp_path / "calls"))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: Jars(tools(tmp_path)).classpath(), range(4)))
    directory = Jars(tools(tmp_path)).directory
    assert found == [f"{directory}/*"] * 4
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    assert [path.name for path in directory.iterdir()] == ["a.jar"]
    before = (tmp_path / "calls").read_text()
    assert Jars(tools(tmp_path)).classpath() == found[0]
    assert (tmp_path / "calls").read_text() == before


def test_a_given_broker_is_the_first_rung(directory: Path) -> None:
    """What the environment names is used and never started or stopped."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        broker = ladder(directory, environ={"DISPATCHER_KAFKA__BOOTSTRAP_SERVERS": address})
        assert isinstance(broker, GivenBroker)
        assert (broker.up(), broker.down(), broker.status().state) == (address, False, "down")
        listener.listen()
        assert broker.status().state == "up"


def test_another_port_than_the_running_one_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One directory is one broker: a second port needs a second directory."""
    monkeypatch.setattr(LocalBroker, "status", lambda _: Status("up", "jars", "127.0.0.1:4000", "1"))
    assert LocalBroker(directory, None).up() == "127.0.0.1:4000"
    with pytest.raises(RefusedError, match="runs on port 4000"):
        LocalBroker(directory, 4001).up()
    monkeypatch.undo()  # the fixture asks for the real status
