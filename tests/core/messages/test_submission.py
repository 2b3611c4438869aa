from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.classes import Classes
from dispatcher.core.messages.submission import Receipt, Stamp, Submission, request, request_of_line
from dispatcher.errors import ConfigError

STAMP = Stamp("id-1", "test", "2026-11-29T10:00:00.000Z")
HEADERS = (
    ("ce_id", b"id-1"),
    ("ce_type", b"dispatcher.request.v1"),
    ("ce_source", b"test"),
    ("ce_time", b"2026-11-29T10:00:00.000Z"),
    ("ce_specversion", b"1.0"),
    ("content-type", b"application/json"),
)


def test_a_request_carries_its_envelope() -> None:
    """The value goes untouched, under the CloudEvents headers of a new request."""
    assert Submission("doc:ü".encode(), b'{"upstream": "u"}', HEADERS, "id-1") == request("doc:ü", b'{"upstream": "u"}', STAMP)


def test_a_line_is_a_request_with_its_key() -> None:
    """`key` and `id` stand beside the request's fields and are not part of its value; numbers keep their size."""
    line = b'{"key": "doc:1", "upstream": "u", "path": "/x", "body": [123456789012345678901234567890, "\xc3\xbc", 1.5]}'
    made = request_of_line(line, STAMP)
    assert (made.key, made.headers, made.request_id) == (b"doc:1", HEADERS, "id-1")
    assert made.value == b'{"upstream":"u","path":"/x","body":[123456789012345678901234567890, "\xc3\xbc", 1.5]}'
    named = request_of_line(b'{"key": "doc:1", "id": "mine", "upstream": "u"}', STAMP)
    assert (named.request_id, named.headers[0]) == ("mine", ("ce_id", b"mine"))


CLASSES = {"generation": "r.generation", "analysis": "r.analysis"}
OF_ALL, OF_ANALYSIS = replace(STAMP, classes=Classes(CLASSES)), replace(STAMP, classes=Classes(CLASSES, "analysis"))


@pytest.mark.parametrize(
    ("said", "stamp", "topic"),
    [
        ("analysis", OF_ANALYSIS, "r.analysis"),
        ("generation", OF_ANALYSIS, "r.generation"),
        ("generation", OF_ALL, "r.generation"),
        (None, OF_ANALYSIS, "r.analysis"),
        (None, STAMP, None),
    ],
)
def test_a_request_goes_to_the_topic_of_its_class(said: str | None, stamp: Stamp, topic: str | None) -> None:
    """The one that it says, else the one that its sender means; from a line of a file, too."""
    fields = {"upstream": "u"} if said is None else {"upstream": "u", "class": said}
    made = request("k", json.dumps(fields).encode(), stamp)
    assert (topic, json.dumps(fields).encode()) == (made.topic, made.value)
    line = request_of_line(json.dumps(fields | {"key": "k"}).encode(), stamp)
    assert (topic, fields) == (line.topic, json.loads(line.value or b""))


@pytest.mark.parametrize(
    ("said", "stamp", "message"),
    [("other", OF_ANALYSIS, "no class 'other'"), ("analysis", STAMP, r"no \[classes\]"), (None, OF_ALL, "there are generation, analysis")],
)
def test_a_request_of_no_class_that_there_is_is_not_sent(said: str | None, stamp: Stamp, message: str) -> None:
    """Nobody would read it."""
    with pytest.raises(ConfigError, match=message):
        request("k", json.dumps({"upstream": "u", "class": said}).encode(), stamp)


@pytest.mark.parametrize(
    ("value", "stood", "stamp", "topic"),
    [
        ('{"class": "generation"}', "r.analysis", OF_ALL, "r.generation"),
        ("{}", "r.generation", OF_ANALYSIS, "r.analysis"),
        ("{}", "r.generation", OF_ALL, "r.generation"),
        ('{"class": 7}', "r.generation", OF_ALL, "r.generation"),
        ("no JSON", "r.generation", OF_ALL, "r.generation"),
        ('{"class": "generation"}', "r.generation", STAMP, None),
    ],
)
def test_a_copy_goes_where_it_says_where_it_is_sent_or_whence_it_came(value: str, stood: str, stamp: Stamp, topic: str | None) -> None:
    """`requests --json` of one class is taken by `submit --jsonl -` as it is, and with `--class` for another."""
    line = {"topic": stood, "key": "k", "headers": [], "value": value}
    assert topic == request_of_line(json.dumps(line).encode(), stamp).topic


def test_a_copy_from_elsewhere_needs_a_class() -> None:
    """A dead letter's topic, or none at all, says nothing."""
    with pytest.raises(ConfigError, match="of one class"):
        request_of_line(b'{"topic": "r.dlq", "key": "k", "headers": [], "value": "{}"}', OF_ALL)


def test_what_a_line_passes_on_stays_as_it_was_written() -> None:
    """Body and metadata are somebody else's text: no number loses digits, no member of a repeated name is lost."""
    body = b'{"a": 0.1234567890123456789, "b": 1.10, "c": -0, "d": 1, "d": 2}'
    made = request_of_line(b'{"upstream": "u", "key": "doc:1", "body": ' + body + b', "metadata": 1.0}', STAMP)
    assert b'{"upstream":"u","body":' + body + b',"metadata":1.0}' == made.value


def test_a_line_of_requests_json_is_taken_byte_for_byte() -> None:
    """A record is not judged and nothing is added to it; its `ce_id`, where it has one, is its id."""
    line = {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "ts": 2,
        "key": None,
        "headers": [["a", None], ["a", {"base64": "/w=="}]],
        "value": "{",
    }
    assert Submission(None, b"{", (("a", None), ("a", b"\xff")), None) == request_of_line(json.dumps(line).encode(), STAMP)
    line["headers"] = [["ce_id", "x"], ["ce_id", "y"]]
    assert request_of_line(json.dumps(line).encode(), STAMP).request_id == "x"
    line["headers"] = [["ce_id", "\n"]]
    assert request_of_line(json.dumps(line).encode(), STAMP).request_id is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"key": "k", "upstream": "u", "body": NaN}', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"upstream": "u"}', "key is missing"),
        (b'{"key": 5, "upstream": "u"}', "key is missing"),
        (b'{"key": "", "upstream": "u"}', "the key has 0 bytes"),
        (b'{"key": "\\ud800", "upstream": "u"}', "not UTF-8"),
        (b'{"key": "k", "id": 5, "upstream": "u"}', "id is not text"),
        (b'{"key": "k", "id": "a b", "upstream": "u"}', "visible ASCII"),
        (b'{"key": "k"}', "field upstream is missing"),
        (b'{"key": "k", "upstream": "u", "nonsense": 1}', "unknown field nonsense"),
        (b'{"key": "k", "upstream": "u", "deadline": "x"}', "field deadline"),
        (b'{"key": "k", "upstream": "u", "path": "x"}', "not a relative path"),
        (b'{"key": "k", "upstream": "u", "path": "https://api.example/x"}', "not a relative path"),
        (b'{"key": "k", "upstream": "u", "headers": {"AUTHORIZATION": "Bearer x"}}', "AUTHORIZATION may not be set"),
        (b'{"key": "k", "upstream": "u", "headers": {"x y": "1"}}', "is not a header"),
        (b'{"key": "k", "value": {"upstream": "u", "path": "/x"}}', "stand beside key"),
        (b'{"key": "k", "upstream": "u", "body": 1e999}', "out of range"),
        (b'{"key": "k", "upstream": "u", "body": "\\ud800"}', "surrogate"),
        (b'{"key": "k", "upstream": "u", "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"key": "' + b"k" * 1025 + b'", "upstream": "u"}', "the key has 1025 bytes"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(line: bytes, message: str) -> None:
    """What a worker would surely refuse is refused before it is sent."""
    with pytest.raises(ConfigError, match=message):
        request_of_line(line, STAMP)


@given(st.binary(max_size=60))
def test_any_line_is_taken_or_refused(line: bytes) -> None:
    """No bytes raise anything but ConfigError."""
    try:
        request_of_line(line, STAMP)
    except ConfigError:
        return


@given(st.none() | st.binary(max_size=20))
def test_a_receipt_is_json(key: bytes | None) -> None:
    """A receipt goes through JSON to another process, whatever its key."""
    receipt = Receipt("id-1", "t", 3, 7, key, "2026-11-29T10:00:00.000Z")
    assert receipt == Receipt.from_json(json.loads(json.dumps(receipt.as_json())))


@pytest.mark.parametrize(
    "fields", [{}, {"request_id": "a"}, {"request_id": "a", "topic": "t", "partition": "x", "offset": 1, "key": "k", "time": ""}]
)
def test_what_is_no_receipt_is_refused(fields: dict[str, Any]) -> None:
    """Other JSON is not taken for a receipt."""
    with pytest.raises(ConfigError, match="not a receipt"):
        Receipt.from_json(fields)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("request_id", ""),
        ("request_id", None),
        ("topic", 7),
        ("time", None),
        *((name, bad) for name in ("partition", "offset", "reply_partition") for bad in (math.inf, math.nan, -1, 1.5, True, "1", 2**70)),
        ("reply_partition", 2**40),
        ("reply_topic", ""),
        ("reply_topic", "a b/../c"),
        ("topic", "x" * 250),
    ],
)
def test_a_receipt_with_a_field_that_none_has(name: str, content: Any) -> None:
    """Numbers that Kafka does not have and other types are refused in one sentence, not guessed."""
    fields: dict[str, Any] = dict(Receipt("id-1", "t", 3, 7, b"k", "2026-11-29T10:00:00.000Z").as_json())
    with pytest.raises(ConfigError, match="not a receipt"):
        Receipt.from_json(fields | {name: content})


def test_a_receipt_says_where_an_unusual_reply_goes() -> None:
    """A private reply topic travels with the receipt; the usual place is not mentioned."""
    private = Receipt("r-1", "t.requests", 3, 17, b"k", "2026-11-29T10:00:00.250Z", "team.replies", 1)
    assert private.as_json()["reply_topic"] == "team.replies"
    assert Receipt.from_json(json.loads(json.dumps(private.as_json()))) == private
    assert "reply_topic" not in Receipt("r-1", "t.requests", 3, 17, b"k", "2026-11-29T10:00:00.250Z").as_json()
