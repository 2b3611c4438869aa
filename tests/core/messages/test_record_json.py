from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import content_of, raw_of, record_line, shown
from dispatcher.errors import ConfigError

raw = st.none() | st.binary(max_size=50) | st.text(max_size=50).map(lambda text: text.encode("utf-8", "ignore"))
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=10)


@given(raw, raw, st.lists(st.tuples(names, raw), max_size=5))
def test_a_line_gives_back_every_byte(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    """Key, value and headers come back as they were: None, empty, duplicates, order and what is not UTF-8."""
    line = record_line(Record("t", 3, 7, key, value, tuple(headers), 5))
    assert b"\n" not in line
    fields = json.loads(line)
    assert (key, value, tuple(headers)) == content_of(fields)
    assert {"topic": "t", "partition": 3, "offset": 7, "ts": 5} == {name: fields[name] for name in ("topic", "partition", "offset", "ts")}


def test_what_a_line_looks_like() -> None:
    """The names and their order are a contract; a value stays the text that it was."""
    record = Record("t", 0, 1, b"doc:1", b'{"a": 1.0}', (("a", None), ("b", b"\xff")), None)
    expected = (
        '{"topic":"t","partition":0,"offset":1,"ts":null,"key":"doc:1","headers":[["a",null],["b",{"base64":"/w=="}]],'
        '"value":"{\\"a\\": 1.0}"}'
    )
    assert expected == record_line(record).decode()


def test_unreadable_headers_are_null_and_cannot_be_taken_back() -> None:
    """Headers whose names could not be read are null, and a record of them is refused rather than sent without."""
    fields = json.loads(record_line(Record("t", 0, 1, b"k", b"v", None, None)))
    assert fields["headers"] is None
    with pytest.raises(ConfigError, match="could not be read"):
        content_of(fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "k"}, "value is missing"),
        ({"value": "v"}, "key is missing"),
        ({"key": "k", "value": "v", "extra": 1}, "unknown field 'extra'"),
        ({"key": 1, "value": "v"}, "field key is neither"),
        ({"key": "k", "value": {"base64": "!"}}, "field value is not base64"),
        ({"key": "k", "value": {"base64": "", "more": 1}}, "field value is neither"),
        ({"key": "k", "value": "\ud800"}, "surrogate"),
        ({"key": "k", "value": "v", "headers": {}}, "not a list"),
        ({"key": "k", "value": "v", "headers": [["a"]]}, "not \\[name, value\\]"),
        ({"key": "k", "value": "v", "headers": [[1, "a"]]}, "not \\[name, value\\]"),
        ({"key": "k", "value": "v", "headers": [["a\x00", "a"]]}, "not \\[name, value\\]"),
        ({"key": "k", "value": "v", "headers": [["a", 1]]}, "header a is neither"),
    ],
)
def test_what_is_no_record_is_named(fields: dict[str, Any], message: str) -> None:
    """A wrong field is named; nothing is guessed."""
    with pytest.raises(ConfigError, match=message):
        content_of(fields)


@given(st.binary(max_size=50))
def test_base64_is_taken_for_any_bytes(content: bytes) -> None:
    """Text may be given as base64 too."""
    fields = shown(content)
    assert content == raw_of(fields, "field")
