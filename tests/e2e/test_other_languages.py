"""Clients in other languages against a real worker: the examples in schemas/examples do what their README says of them."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.core.messages.partitioner import partition_for
from tests.e2e.conftest import clean_environment
from tests.e2e.stage import Stage, header, stage
from tests.schema_files import FOLDER
from tests.toolchains import class_path, node_modules, tool
from tests.topics import SettingsFactory
from tests.waiting import eventually

EXAMPLES = FOLDER / "examples"
# Not a power of two, with which several wrong hashes would do.
PARTITIONS = 12
# Of every length modulo 4, which is how murmur2 reads them, and beyond ASCII, where a sign bit is easily lost.
KEYS = [f"{kind}:{'x' * length}{number}" for kind in ("doc", "apikey") for number, length in enumerate(range(14))]
KEYS += ["doc:é", "doc:日本語", "doc:🦀", "k"]
PROGRAM_S = 120


@pytest.fixture(scope="module")
def played(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One worker over twelve partitions, for all programs."""
    factory = SettingsFactory(kafka, f"t-{uuid.uuid4().hex[:12]}")
    with stage(factory, tmp_path_factory.mktemp("stage"), partitions=PARTITIONS) as made:
        made.worker().ready()
        yield made
    factory.clean()


def rows(command: list[str], folder: Path) -> list[list[str]]:
    """Run a program to its end and give what it prints, split at tabs."""
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return [line.split("\t") for line in done.stdout.decode().splitlines()]


def common(played: Stage, path: str) -> list[str]:
    """The arguments that the programs share."""
    return [played.settings.kafka.bootstrap_servers, played.settings.topics.prefix, "sample", path]


def assert_answered(played: Stage, found: list[list[str]], name: str) -> None:
    """Every key was answered once, stands where our own producer puts it, and was called once; nobody made a group."""
    assert sorted(KEYS) == sorted(row[0] for row in found)
    assert {key: partition_for(key.encode(), PARTITIONS) for key in KEYS} == {row[0]: int(row[1]) for row in found}
    assert {("ok", 200)} == {(reply["status"], reply["http"]["status"]) for reply in (orjson.loads(row[3]) for row in found)}
    assert len(KEYS) == len(played.calls(key=name))
    groups = clients.admin(played.settings).list_consumer_groups(request_timeout=30).result(60).valid
    assert not {group.group_id for group in groups} & {"dispatcher-example", "not-used", ""}


def test_node_asks(played: Stage, tmp_path: Path) -> None:
    """@platformatic/kafka: keys on the right partitions, replies read without a group."""
    (tmp_path / "node_modules").symlink_to(node_modules(EXAMPLES / "node"))
    (tmp_path / "ask.mjs").write_bytes((EXAMPLES / "node" / "ask.mjs").read_bytes())
    found = rows([tool("node"), "ask.mjs", *common(played, "/echo?key=node"), *KEYS], tmp_path)
    assert_answered(played, found, "node")


def test_java_asks(played: Stage, tmp_path: Path) -> None:
    """Kafka's own client: keys on the right partitions, replies read without a group."""
    libraries = class_path(EXAMPLES / "java")
    found = rows([tool("java"), "-cp", libraries, str(EXAMPLES / "java" / "Ask.java"), *common(played, "/echo?key=java"), *KEYS], tmp_path)
    assert_answered(played, found, "java")


def test_spring_asks(played: Stage, tmp_path: Path) -> None:
    """ReplyingKafkaTemplate knows its replies by 16 raw bytes, all on the partition that it asked for."""
    libraries, partition = class_path(EXAMPLES / "spring"), 7
    topics, body = played.settings.topics, orjson.dumps({"upstream": "sample", "method": "GET", "path": "/echo?key=spring"}).decode()
    program = [tool("java"), "-cp", libraries, str(EXAMPLES / "spring" / "Ask.java"), played.settings.kafka.bootstrap_servers]
    found = rows([*program, topics.requests, topics.replies, str(partition), body, *KEYS], tmp_path)
    assert_answered(played, found, "spring")
    ids = {bytes.fromhex(row[4]) for row in found}
    assert (len(KEYS), {16}) == (len(ids), {len(raw) for raw in ids})
    arrived = [reply for reply in played.replies().await_count(len(KEYS)) if dict(reply.headers or ()).get("kafka_correlationId") in ids]
    assert [partition] * len(KEYS) == [reply.partition for reply in arrived]


def test_correlation_bytes_and_reply_wishes_of_spring_come_back(played: Stage) -> None:
    """Sixteen bytes that are no text, a topic and a partition of it, as Spring writes them: the reply stands there with the same bytes."""
    raw, topic = bytes([0, 255, 10, 13, *range(128, 140)]), played.settings.topics.replies
    wishes = (("kafka_correlationId", raw), ("kafka_replyTopic", topic.encode()), ("kafka_replyPartition", (11).to_bytes(4, "big")))
    [name] = played.submit(["doc:raw"], prefix="raw", headers=wishes)
    replies = played.replies()
    [reply] = eventually(lambda: [reply for reply in replies.read() if header(reply, "ce_causationid") == name], what="the reply")
    assert (11, raw) == (reply.partition, dict(reply.headers or ())["kafka_correlationId"])


def test_the_recipe_for_kcat(played: Stage, tmp_path: Path) -> None:
    """The lines of the README, with this test's broker and topics: the request is answered, and the reply is found."""
    tool("kcat", always=False)
    text = (EXAMPLES / "README.md").read_text("utf-8")
    section = text.partition("## kcat")[2]
    recipe = section.partition("```sh\n")[2].partition("```")[0]
    for standing, ours in (
        ("localhost:9092", played.settings.kafka.bootstrap_servers),
        ("-t dispatcher.", f"-t {played.settings.topics.prefix}."),
        ("openai", "sample"),
        ("/models", "/echo?key=kcat"),
    ):
        assert standing in recipe
        recipe = recipe.replace(standing, ours)
    produce, consume = re.split(r"\n(?=kcat -C)", recipe)

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-o", "pipefail", "-ec", script]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S, check=False)

    produced = run(produce)
    assert produced.returncode == 0, produced.stderr
    found = eventually(lambda: run(consume).stdout, what="the reply that kcat reads")
    assert found.startswith("apikey:team-a ")
    assert "dispatcher-status=ok" in found
    [call] = played.calls(key="kcat")
    assert partition_for(b"apikey:team-a", PARTITIONS) == call["partition"]
