"""Log lines: JSON, in order, without keys and without secrets."""

from __future__ import annotations

import base64
import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from dispatcher.adapters import logs
from dispatcher.settings import LogSettings, Settings

CANARY = "sk-canary-7fQ2/+x=9"


class Lines:
    """The log of one test."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def configure(self, secrets: dict[str, str] | None = None, **log_settings: Any) -> None:
        """Log here from now on."""
        logs.configure(Settings(logs=LogSettings(**log_settings)), secrets or {"team-a": f"Bearer {CANARY}"}, stream=self.stream)

    @property
    def text(self) -> str:
        """All that was written."""
        return self.stream.getvalue()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines as objects."""
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """A configured log, and the process's own afterwards."""
    found = Lines()
    found.configure()
    yield found
    logs.configure(Settings())


def test_a_line_is_one_json_object_in_a_fixed_order(lines: Lines) -> None:
    """`ts level event` first, then the fields of the contract, then others; one line each."""
    logs.logger().info("call_ended", zzz=1, partition=3, topic="t", outcome="ok", text="two\nlines")
    row = lines.rows[0]
    assert list(row) == ["ts", "level", "event", "topic", "partition", "outcome", "zzz", "text"]
    assert (row["level"], row["event"], row["text"]) == ("info", "call_ended", "two\nlines")
    assert row["ts"].endswith("Z")
    assert len(lines.text.splitlines()) == 1


def test_a_key_is_only_seen_as_its_hash(lines: Lines) -> None:
    """A partition key may be an API key: whoever logs `key` gets `key_hash`."""
    logs.logger().info("e", key=b"apikey:canary")
    logs.logger().info("e", key="apikey:canary")
    assert "canary" not in lines.text
    assert [row["key_hash"] for row in lines.rows] == [logs.key_hash(b"apikey:canary")] * 2


def test_key_hashes_are_short_and_depend_on_the_secret(lines: Lines) -> None:
    """12 hex; equal in processes that share the secret, and worthless to who does not have it."""
    lines.configure(key_secret=SecretStr("one-secret"))
    one = logs.key_hash(b"k")
    lines.configure(key_secret=SecretStr("another-secret"))
    another = logs.key_hash(b"k")
    lines.configure(key_secret=SecretStr("one-secret"))
    assert logs.key_hash(b"k") == one
    assert one != another
    assert len(one) == 12
    assert int(one, 16) >= 0


@pytest.mark.parametrize(
    "value",
    [
        CANARY,
        f"Authorization: Bearer {CANARY}",
        f"https://x/?key={quote(CANARY, safe='')}",
        base64.b64encode(CANARY.encode()).decode(),
        CANARY.encode(),
        {"headers": [["authorization", CANARY]]},
        {CANARY: 1},
        [({CANARY},)],
        ValueError(CANARY),
        json.dumps({"error": {"message": f"Incorrect API key provided: {CANARY}"}}),
        SecretStr(CANARY),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_secret_in_any_field(lines: Lines, value: object) -> None:
    """In text, bytes, keys, nested values, exceptions and encodings."""
    logs.logger().info("e", field=value)
    assert len(lines.rows) == 1
    assert "canary" not in lines.text
    assert base64.b64encode(CANARY.encode()).decode()[:12] not in lines.text


def test_no_secret_in_an_event_a_bound_value_or_a_traceback(lines: Lines) -> None:
    """The event's own name, values bound before, and the text of a chain of exceptions are masked like all else."""

    def fail() -> None:
        try:
            raise KeyError(CANARY)
        except KeyError as error:
            raise ValueError(f"sent {CANARY}") from error

    log = logs.logger().bind(where=CANARY)
    event = f"event {CANARY}"
    log.warning(event)
    try:
        fail()
    except ValueError:
        log.exception("failed")
    assert "canary" not in lines.text
    assert "KeyError" in lines.rows[1]["exception"]
    assert "ValueError: sent ***" in lines.rows[1]["exception"]


def test_a_level_that_is_off_writes_and_computes_nothing(lines: Lines) -> None:
    """Below the level nothing is rendered, not even the values."""

    class Loud:
        def __str__(self) -> str:
            raise AssertionError("rendered")

    lines.configure(level="warning")
    logs.logger().info("e", field=Loud())
    assert lines.text == ""


class Broken:
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", ["\udc80", 1 << 80, float("nan"), Broken(), object(), [[[[[[[[[["deep"]]]]]]]]]]])
def test_a_value_that_json_cannot_hold_still_gives_a_line(lines: Lines, value: object) -> None:
    """Logging never stops the work."""
    logs.logger().info("e", field=value)
    assert lines.rows[0]["event"] == "e"


def test_a_reader_that_went_away_does_not_stop_the_work(lines: Lines) -> None:
    """A closed stderr costs the line, not the worker."""
    lines.stream.close()
    logs.logger().info("e")


def test_librdkafka_speaks_through_our_lines(lines: Lines) -> None:
    """Its facility, client and text are fields; its level is the settings' level."""
    client = logs.kafka_logger()
    client.error("%s [%s] %s", "FAIL", "rdkafka#producer-1", f"sasl {CANARY}")
    client.debug("%s [%s] %s", "DBG", "rdkafka#producer-1", "not at this level")
    assert [(row["event"], row["level"], row["facility"], row["message"]) for row in lines.rows] == [
        ("kafka_client", "error", "FAIL", "sasl ***")
    ]


def test_a_flood_of_librdkafka_is_one_line_in_ten_seconds(lines: Lines) -> None:
    """A broker that is away is said once, then with a count; another client's line, another text and debug lines are not held back."""
    clock = [100.0]
    logs.configure(Settings(logs=LogSettings(level="debug")), stream=lines.stream, now=lambda: clock[0])
    client = logs.kafka_logger()

    def refused(name: str, after_ms: int) -> None:
        client.error("%s [%s] %s", "FAIL", name, f"[thrd:h:1/bootstrap]: h:1/bootstrap: refused (after {after_ms}ms in state CONNECT)")

    for n in range(20):
        clock[0] += 0.1
        refused("rdkafka#producer-1", n)
        client.debug("%s [%s] %s", "BROKER", "rdkafka#producer-1", "h:1: tried")
    refused("rdkafka#consumer-2", 0)
    clock[0] += 10
    refused("rdkafka#producer-1", 0)
    rows = [(row["client"], row.get("repeated")) for row in lines.rows if row["level"] == "error"]
    assert rows == [("rdkafka#producer-1", None), ("rdkafka#consumer-2", None), ("rdkafka#producer-1", 19)]
    assert sum(row["level"] == "debug" for row in lines.rows) == 20


def test_warnings_of_libraries_are_lines_too(lines: Lines) -> None:
    """Asyncio's "exception was never retrieved" comes with a traceback, and that with whatever the exception held."""
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger("asyncio").exception("never retrieved %s", CANARY)
    logging.getLogger("other").info("small talk")
    assert len(lines.rows) == 1
    assert lines.rows[0]["logger"] == "asyncio"
    assert "ValueError: ***" in lines.rows[0]["exception"]
    assert "canary" not in lines.text


def test_lines_of_many_threads_do_not_mix(lines: Lines) -> None:
    """Each line is written whole."""

    def write(name: int) -> None:
        for number in range(50):
            logs.logger().info("e", name=name, number=number, filler="x" * 200)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(row["name"], row["number"]) for row in lines.rows} == {(a, b) for a in range(4) for b in range(50)}


def test_configuring_twice_does_not_double_lines(lines: Lines) -> None:
    """The handler of an earlier configuration goes."""
    lines.configure()
    logging.getLogger("asyncio").warning("once")
    assert len(lines.rows) == 1
