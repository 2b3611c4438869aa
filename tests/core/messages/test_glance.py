from __future__ import annotations

import pytest

from dispatcher.core.messages.glance import (
    answered_id,
    answered_place,
    dead_id,
    dead_place,
    error_header,
    header,
    number,
    number_header,
    reply_names,
    request_id,
    request_place,
    same_request,
)
from dispatcher.core.messages.record import Header, Record


def record(*headers: Header) -> Record:
    """Make a record with these headers."""
    return Record("t", 3, 7, b"k", b"v", headers)


def test_the_first_header_of_a_name_counts() -> None:
    """Duplicates, missing values, odd bytes and unreadable headers never raise."""
    assert header(record(("a", b"1"), ("a", b"2")), "a") == "1"
    assert header(record(("a", None), ("a", b"2")), "a") is None
    assert header(record(("a", b"\xff")), "a") == "\ufffd"
    assert header(record(), "a") is None
    assert header(Record("t", 3, 7, b"k", b"v", None), "a") is None


def test_each_topic_names_its_request() -> None:
    """A request by its id or position, a reply by what it answers, a letter by its id or where it stood."""
    assert request_id(record(("ce_id", b"x"))) == "x"
    assert request_id(record()) == "t/3/7"
    assert answered_id(record(("ce_id", b"r"), ("ce_causationid", b"x"))) == "x"
    assert answered_id(record(("ce_id", b"r"))) == ""
    place = [(f"__dispatcher.errors.{name}", text) for name, text in (("topic", b"o"), ("partition", b"1"), ("offset", b"2"))]
    assert dead_id(record(("ce_id", b"x"), *place)) == "x"
    assert dead_id(record(*place)) == "o/1/2"
    assert error_header(record(*place), "topic") == "o"


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ("x", "x", True),
        ("x", "y", False),
        ("t/1/2", "t/1/2@abcdefgh", True),
        ("t/1/2@abcdefgh", "t/1/2", True),
        ("t/1/2@abcdefgh", "t/1/2@hgfedcba", False),
        ("t/1/2", "t/1/3@abcdefgh", False),
        ("a", "a@b", False),
        ("a/1/2@short", "a/1/2", False),
    ],
)
def test_a_position_is_an_id_with_and_without_its_topics_id(wanted: str, found: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """Two topics' incarnations differ; a position alone fits any; other ids are compared as they are."""
    assert expected == same_request(wanted, found)


def test_a_reply_has_every_name_of_its_request() -> None:
    """The id that the client gave, and the position with its topic's id: alone it would name a request of each topic of that name."""
    assert reply_names(record(("ce_causationid", b"r-1"), ("ce_id", b"t.requests/3/17@pX3kQ9aZ/reply"))) == (
        "r-1",
        "t.requests/3/17@pX3kQ9aZ",
    )
    position = b"t.requests/3/17@pX3kQ9aZ"
    assert reply_names(record(("ce_causationid", position), ("ce_id", position + b"/reply"))) == (position.decode(),)
    assert reply_names(record(("ce_id", b"something"))) == ()


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("017", 17), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("²", None), ("٣", None)]
)
def test_a_number_is_short_and_of_ascii_digits(text: str, expected: int | None) -> None:
    """Anybody may write headers: Python reads other digits, calls some of them digits that it cannot read, and refuses thousands."""
    assert number(text) == expected
    assert number_header(record(("n", text.encode())), "n") == expected


@pytest.mark.parametrize("text", [None, "", "-1", "+1", " 1", "1_0", "1.0", "1\n"])
def test_what_is_no_number(text: str | None) -> None:
    """Nothing is guessed."""
    assert number(text) is None


def test_where_a_request_stood() -> None:
    """As its reply or its dead letter says; None where one part is missing or no number."""
    for prefix, place in (("dispatcher-request-", request_place), ("__dispatcher.errors.", dead_place)):
        parts = [(f"{prefix}{name}", text) for name, text in (("topic", b"o"), ("partition", b"1"), ("offset", b"2"))]
        assert place(record(*parts)) == ("o", 1, 2)
        for n in range(3):
            assert place(record(*parts[:n], *parts[n + 1 :])) is None
            assert place(record((parts[n][0], "²".encode() if n else b""), *parts)) is None


def test_a_reply_tells_which_request_of_a_topic_it_answers() -> None:
    """Not one of an earlier topic of that name, nor of another one, nor what only says so."""
    place = [(f"dispatcher-request-{name}", text) for name, text in (("topic", b"t"), ("partition", b"3"), ("offset", b"7"))]
    reply = record(("ce_id", b"t/3/7@AbCdEfGh/reply"), ("ce_causationid", b"x"), *place)
    assert (3, 7) == answered_place(reply, "t", "AbCdEfGhIjKlMnOpQrStUv")
    assert answered_place(reply, "t", "XbCdEfGhIjKlMnOpQrStUv") is None
    assert answered_place(reply, "other", "AbCdEfGhIjKlMnOpQrStUv") is None
    assert answered_place(record(*place), "t", "AbCdEfGhIjKlMnOpQrStUv") is None
