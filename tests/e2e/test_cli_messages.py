"""`submit`, `requests`, `replies` and `dlq` as users run them, on a real broker."""

from __future__ import annotations

import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.status import Reason
from dispatcher.settings import Settings
from tests.e2e.conftest import Run, clean_environment
from tests.e2e.raw_produce import produce as produce_raw
from tests.topics import SettingsFactory
from tests.waiting import eventually

Cli = Callable[..., subprocess.CompletedProcess[str]]
CALL = ("-k", "doc:1", "-u", "up", "/v1/x")


@pytest.fixture
def made(settings: SettingsFactory) -> Settings:
    """Make topics of three partitions."""
    return settings(partitions=3)


@pytest.fixture
def cli(made: Settings, run: Run) -> Cli:
    """Run the program on this test's broker and topics."""

    def cli(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return run(*arguments, "-b", made.kafka.bootstrap_servers, env={"DISPATCHER_TOPICS__PREFIX": made.topics.prefix}, text=text)

    return cli


@pytest.fixture
def started(made: Settings, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program with pipes, for what runs until it is told to stop."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        own = {"DISPATCHER_TOPICS__PREFIX": made.topics.prefix, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "dispatcher", *arguments, "-b", made.kafka.bootstrap_servers]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=clean_environment() | own, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait(30)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def produce(made: Settings, topic: str, *records: tuple[bytes | None, bytes | None, tuple[Header, ...]], partition: int = 0) -> None:
    """Write records to one partition."""
    producer = clients.producer(made)
    for key, value, headers in records:
        producer.produce(topic, value, key, partition=partition, headers=list(headers))
    assert producer.flush(30) == 0


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Read JSON lines of a command that went well."""
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def content(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Give what `submit` must keep of records, in a stable order."""
    return sorted(((row["key"], row["headers"], row["value"]) for row in rows), key=json.dumps)


def test_submit_gives_a_receipt_and_requests_shows_it(cli: Cli, made: Settings) -> None:
    """The receipt says where the request stands; there it stands, under a new UUIDv7, on the partition of its key."""
    [receipt] = lines(cli("submit", *CALL, "-d", '{"n": 123456789012345678901234567890, "f": 1.0}', "-H", "accept: text/html", "--json"))
    assert UUID(receipt["request_id"]).version == 7
    assert (receipt["topic"], receipt["partition"], receipt["key"]) == (made.topics.requests, partition_for(b"doc:1", 3), "doc:1")
    [row] = lines(cli("requests", "-e", "--json", "--id", receipt["request_id"]))
    assert list(row) == ["topic", "partition", "offset", "ts", "key", "headers", "value"]
    assert {name: row[name] for name in ("topic", "partition", "offset", "key")} == {
        name: receipt[name] for name in ("topic", "partition", "offset", "key")
    }
    assert [name for name, _ in row["headers"]] == ["ce_id", "ce_type", "ce_source", "ce_time", "ce_specversion", "content-type"]
    assert '"body":{"n": 123456789012345678901234567890, "f": 1.0}' in row["value"]
    text = cli("submit", *CALL, "--id", "mine")
    assert re.fullmatch(rf"mine {re.escape(made.topics.requests)}/{receipt['partition']}/1\n", text.stdout)
    shown = cli("requests", "-o", "start:end", "--id", "mine")
    assert re.match(r"\d/1 \S+Z doc:1 POST up /v1/x mine\n", shown.stdout)
    assert "[ce_id=mine " in cli("requests", "-o", "start:end", "--id", "mine", "-v").stdout


def test_a_file_that_is_not_there_is_named(cli: Cli) -> None:
    """Exit 2 with a hint, nothing on stdout. What is wrong before Kafka is asked: `tests/cli/test_arguments.py`."""
    done = cli("submit", "--jsonl", "missing.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "- for stdin" in done.stderr


def test_bodies_come_from_anywhere(cli: Cli, tmp_path: Path) -> None:
    """A body is an argument, a file or stdin; what is not JSON says so in its content type."""
    (tmp_path / "body.json").write_text('{"from": "file"}')
    cli("submit", *CALL, "-d", "@body.json")
    cli("submit", *CALL, "-d", "-", text='{"from": "stdin"}')
    cli("submit", *CALL, "-d", "hello", "-H", "Content-Type: text/plain")
    bodies = [json.loads(row["value"]) for row in lines(cli("requests", "-e", "--json"))]
    assert [body.get("body") for body in bodies] == [{"from": "file"}, {"from": "stdin"}, None]
    assert bodies[2]["body_base64"] == "aGVsbG8="


def test_what_requests_prints_submit_takes(cli: Cli, made: Settings) -> None:
    """A round trip keeps every byte of key, value and headers: duplicates, None, empty, not UTF-8, big, tombstones, line ends."""
    odd: tuple[Header, ...] = (("a", None), ("a", b""), ("b", b"\xff\x00"), ("ü", b"2"), ("a", b"3"))
    specimens: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]] = [
        (b"doc:1", b'{"upstream": "u"}', (("ce_id", b"same"),)),
        (b"doc:1", b'{"upstream": "u"}', (("ce_id", b"same"),)),
        (b"\xff\xfe", b"\x80\x81", odd),
        (b"", b"", ()),
        (b"k", None, odd),
        (None, b"line\nend\r\n\x00\xe2\x80\xa8", ()),
        (b"k", b'"' * 300_000, (("big", b"h" * 50_000),)),
        (b"k", b"\xf0\x9f\x98\x80" * 50_000, ()),
    ]
    produce(made, made.topics.requests, *specimens)
    printed = cli("requests", "-e", "--json")
    first = lines(printed)
    assert len(first) == len(specimens)
    assert len(lines(cli("submit", "--jsonl", "-", "--json", text=printed.stdout))) == len(specimens)
    twice = lines(cli("requests", "-e", "--json"))
    assert content(twice) == content(first + first)


def test_a_bad_line_is_named_and_the_others_go(cli: Cli, tmp_path: Path) -> None:
    """Bad lines are told by number on stderr, the others get receipts in their order, and the end is exit 1."""
    rows = ['{"key": "doc:1", "id": "a", "upstream": "u"}', "{", "", '{"key": "doc:1", "nonsense": 1, "upstream": "u"}']
    rows += ['{"key": "doc:1", "id": "b", "upstream": "u"}', '{"key": "doc:1", "id": "c", "upstream": "u", "body": "' + "x" * 2**20 + '"}']
    rows += ['{"key": "doc:1", "id": "d", "upstream": "u"}']
    (tmp_path / "batch.jsonl").write_text("\n".join(rows))
    done = cli("submit", "--jsonl", "batch.jsonl")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["a", "b", "d"]
    assert re.findall(r"error: line (\d+): ([^\n]*)", done.stderr) == [
        ("2", "this is not JSON"),
        ("4", "unknown field nonsense"),
        ("6", "the request is larger than its topic takes"),
    ]
    assert done.stderr.splitlines()[-2:] == ["error: 3 lines were not submitted", "hint: the errors above name them"]


def test_a_program_may_wait_for_each_receipt(started: Callable[..., subprocess.Popen[str]]) -> None:
    """On a pipe that stays open a receipt comes before the next line does."""
    process = started("submit", "--jsonl", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    for name in ("a", "b"):
        process.stdin.write(json.dumps({"key": "doc:1", "id": name, "upstream": "u"}) + "\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(f"{name} ")
    process.stdin.close()
    assert process.wait(30) == 0


def test_many_requests_keep_their_order(cli: Cli, tmp_path: Path) -> None:
    """More requests than may be open at once: one receipt each, in order, and the log has each key's in order."""
    rows = [json.dumps({"key": f"doc:{n % 7}", "id": f"r-{n}", "upstream": "u"}) for n in range(3000)]
    (tmp_path / "batch.jsonl").write_text("\n".join(rows) + "\n")
    receipts = lines(cli("submit", "--jsonl", "batch.jsonl", "--json"))
    assert [receipt["request_id"] for receipt in receipts] == [f"r-{n}" for n in range(3000)]
    seen: dict[str, list[int]] = {}
    for row in lines(cli("requests", "-e", "--json")):
        seen.setdefault(row["key"], []).append(int(row["headers"][0][1].removeprefix("r-")))
    assert seen == {f"doc:{n}": list(range(n, 3000, 7)) for n in range(7)}


def test_replies_follow_from_the_end(made: Settings, started: Callable[..., subprocess.Popen[str]]) -> None:
    """`replies` shows what comes after it began, one row each at once; Ctrl-C ends it quietly with 130."""
    produce(made, made.topics.replies, (b"doc:1", b"{}", (("dispatcher-status", b"old"),)))
    process = started("replies")
    assert process.stdout is not None
    value = b'{"status": "dead", "reason": "malformed"}'
    headers = (("dispatcher-status", b"dead"), ("ce_causationid", b"r-1"), ("x", None))
    output = process.stdout

    def comes() -> bool:
        # It begins at the end: write until it is there to see.
        produce(made, made.topics.replies, (b"doc:\x1b[1", value, headers))
        return process.poll() is not None or bool(select.select([output], [], [], 0.2)[0])

    eventually(comes, what="the first row")
    row = process.stdout.readline()
    assert re.match(r'0/\d+ \S+Z "doc:\\u001b\[1" dead - - r-1 malformed \[x=-\]\n', row)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


def test_filters_and_limits(cli: Cli, made: Settings) -> None:
    """Key, id, partition, count and position narrow what is shown; nothing found says where was looked."""
    for partition in (0, 1):
        records = [(b"k%d" % (n % 2), b"%d" % n, (("ce_causationid", b"r-%d-%d" % (partition, n)),)) for n in range(4)]
        produce(made, made.topics.replies, *records, partition=partition)

    def seen(*arguments: str) -> list[tuple[int, str]]:
        return sorted((row["partition"], row["value"]) for row in lines(cli("replies", "--json", *arguments)))

    assert seen("-e", "-k", "k1") == [(0, "1"), (0, "3"), (1, "1"), (1, "3")]
    assert seen("-e", "--id", "r-1-2") == [(1, "2")]
    assert seen("-e", "-p", "1", "-o", "2") == [(1, "2"), (1, "3")]
    assert seen("-o", "-1:end", "-p", "0,1") == [(0, "3"), (1, "3")]
    assert seen("-o", "start", "-p", "0", "-n", "2") == [(0, "0"), (0, "1")]
    assert len(seen("-o", "@-1h", "-e")) == 8
    nothing = cli("replies", "-e", "-k", "none")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == "note: nothing found; searched 0/0..4, 1/0..4, 1 empty partition\n"
    assert cli("replies", "-e", "-k", "none", "-q").stderr == ""


def test_a_partition_that_is_not_there_is_2(cli: Cli) -> None:
    """No argument is ignored or guessed. What is wrong before Kafka is asked: `tests/cli/test_arguments.py`."""
    done = cli("replies", "-p", "7", "-e")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hint: " in done.stderr


def dead(made: Settings, offset: int, reason: Reason, key: bytes, message: str = "no luck", value: bytes = b'{"a":\n1}') -> None:
    """Write a dead letter as the worker does."""
    record = Record(made.topics.requests, 1, offset, key, value, (("ce_id", b"r-%d" % offset), ("mine", b"\xff")), 1_700_000_000_000)
    letter = DeadLetter(record, made.topics.dead_letters, 1, "g", reason, message, "call", "timeout", 3, 504, "up").letter()
    produce(made, letter.topic, (letter.key, letter.value, letter.headers), partition=letter.partition)


def test_dlq_lists_and_shows(cli: Cli, made: Settings) -> None:
    """The list is one row a letter, filtered; `show` is one letter whole, with the original apart from what was added."""
    dead(made, 5, Reason.MALFORMED, b"doc:1")
    dead(made, 6, Reason.ATTEMPTS_EXHAUSTED, b"doc:2", "three\ttimes")
    produce_raw(made.kafka.bootstrap_servers, made.topics.dead_letters, 0, b"doc:3", b"\x80", ((b"\xff", b"1"),))
    rows = cli("dlq", "list").stdout.splitlines()
    assert len(rows) == 3
    listed = cli("dlq", "list", "--reason", "attempts_exhausted", "--since", "1h")
    assert re.fullmatch(r'1/1 \S+Z attempts_exhausted doc:2 "three\\ttimes" call 3\n', listed.stdout)
    assert [row["offset"] for row in lines(cli("dlq", "list", "-k", "doc:1", "--json"))] == [0]
    assert [row["offset"] for row in lines(cli("dlq", "list", "--id", "r-6", "--json"))] == [1]
    shown = cli("dlq", "show", "1/0").stdout
    for expected in (
        "reason       malformed",
        f"from         {made.topics.requests}/1/5",
        "http status  504",
        "request      r-5",
        "attempts     3",
    ):
        assert expected in shown
    assert "header       mine: base64:/w==\n" in shown
    assert "__dispatcher" not in shown
    assert shown.endswith('\n\n{"a":\n1}\n')
    [whole] = lines(cli("dlq", "show", "1/0", "--json"))
    assert (whole["key"], whole["value"], whole["headers"][:2]) == ("doc:1", '{"a":\n1}', [["ce_id", "r-5"], ["mine", {"base64": "/w=="}]])
    unreadable = cli("dlq", "show", "0/0")
    assert (unreadable.returncode, "not text: 80" in unreadable.stdout) == (0, True)


def test_dlq_says_what_is_wrong(cli: Cli) -> None:
    """A place without a letter is 1; a place, reason or time that means nothing is 2."""
    assert cli("dlq", "list").returncode == 0
    for arguments, code, message in (
        (("show", "1/7"), 1, "no dead letter at 1/7"),
        (("show", "9/0"), 2, "no partition 9"),
        (("show", "7"), 2, "partition/offset"),
        (("list", "--reason", "nonsense"), 2, "not a reason"),
        (("list", "--since", "yesterday"), 2, "--since"),
    ):
        done = cli("dlq", *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr


# One that writes and one that reads; the others do it by the same code, in `make soak`.
WRITES_AND_READS = [("submit", *CALL), ("replies",)]


def in_soak(*commands: tuple[str, ...]) -> list[Any]:
    """Commands that only `make soak` runs."""
    return [pytest.param(command, marks=pytest.mark.soak) for command in commands]


@pytest.mark.parametrize("command", [*WRITES_AND_READS, *in_soak(("requests", "-e"), ("dlq", "list"), ("submit", "--jsonl", "-"))])
def test_without_a_broker_everything_ends_with_3(command: tuple[str, ...], run: Run) -> None:
    """Nobody at the address: exit 3 with a hint, within --timeout and two seconds."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        begin = time.monotonic()
        done = run(*command, "-b", address, "--timeout", "2s", text="")
        took_s = time.monotonic() - begin
    assert (done.returncode, done.stdout) == (3, "")
    assert f"error: cannot reach Kafka at {address}\nhint: " in done.stderr
    assert took_s < 2 + 2 + 3  # the last three are for starting Python on a loaded machine


@pytest.mark.parametrize("command", [*WRITES_AND_READS, *in_soak(("requests", "-e"), ("dlq", "show", "0/0"))])
def test_a_missing_topic_is_named(kafka: str, prefix: str, run: Run, command: tuple[str, ...]) -> None:
    """A topic that is not there: exit 2, and what makes it."""
    done = run(*command, "-b", kafka, env={"DISPATCHER_TOPICS__PREFIX": prefix})
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(rf"error: topic {prefix}\.\w+ does not exist\nhint: `dispatcher topics init`", done.stderr)


def test_a_reader_that_goes_away_is_no_news(made: Settings, started: Callable[..., subprocess.Popen[str]]) -> None:
    """`| head -1`: no traceback, nothing on stderr."""
    produce(made, made.topics.requests, (b"k", b"0", ()))
    process = started("requests", "-o", "start", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == "0"
    process.stdout.close()
    produce(made, made.topics.requests, (b"k", b"more", ()))
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""
