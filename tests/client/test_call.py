"""Calls and requests as programs make them, down to the bytes that stand in the topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from dispatcher import Call, ConfigError, Request
from dispatcher.client.call import reply_to
from dispatcher.core.messages.submission import Stamp

STAMP = Stamp("id-1", "test", "2026-11-29T10:00:00.000Z")


def value(request: Request) -> dict[str, Any]:
    """Give what stands in the topic."""
    written: dict[str, Any] = orjson.loads(request.submission(STAMP).value or b"")
    return written


def test_a_call_with_json() -> None:
    """The fields of the schema, the body readable; what was not said is not there."""
    call = Call.http("crm", "post", "/v1/x", json={"a": [1, None]}, headers={"accept": "text/plain"})
    expected = {"upstream": "crm", "method": "POST", "path": "/v1/x", "headers": {"accept": "text/plain"}, "body": {"a": [1, None]}}
    assert value(Request(call, "doc:42")) == expected


def test_json_content_keeps_its_digits() -> None:
    """Content that says it is JSON stands there as it was written; other content as base64."""
    call = Call.http("crm", "POST", "/x", content='{"n": 1.10}', headers={"Content-Type": "application/json; charset=utf-8"})
    assert b'"body":{"n": 1.10}' in (Request(call, "k").submission(STAMP).value or b"")
    assert value(Request(Call.http("crm", "POST", "/x", content=b"\xff"), "k"))["body_base64"] == "/w=="


def test_a_chat_is_openai_s_form() -> None:
    """Model, messages and whatever else go into the body, also what has the name of one of our own options."""
    call = Call.chat("openai", model="m", messages=({"role": "user", "content": "hi"},), temperature=0, metadata={"a": "b"})
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "metadata": {"a": "b"}}
    assert value(Request(call, "apikey:a")) == {"upstream": "openai", "method": "POST", "path": "/chat/completions", "body": body}


def test_options_stand_beside_the_call() -> None:
    """Options become fields of their names; `options` gives them back as arguments."""
    rest: dict[str, Any] = {"metadata": [1], "repeat": "never", "after_failure": "halt_key", "priority": 9, "agent": "planner-1"}
    made = Request(Call("u"), "k", request_id="x", credential="c", timeout_s=5, attempts_max=2, **rest)
    assert value(made) == {
        "upstream": "u",
        "method": "POST",
        "path": "/",
        "credential": "c",
        "timeout_s": 5,
        "attempts_max": 2,
        **rest,
    }
    assert Request(made.call, **made.options) == made


@pytest.mark.parametrize("deadline", [timedelta(minutes=5), datetime(2026, 11, 29, 10, 5, tzinfo=UTC)])
def test_a_deadline_is_a_time_in_the_request(deadline: timedelta | datetime) -> None:
    """A length of time counts from the stamp."""
    value = Request(Call("u"), "k", deadline=deadline).submission(STAMP).value
    assert orjson.loads(value or b"")["deadline"] == "2026-11-29T10:05:00.000Z"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Call.http("u", "POST", "/", json=1, content=b"1"), "not both"),
        (lambda: Call.http("u", "POST", "/", content=b"{", headers={"content-type": "application/problem+json"}), "not JSON"),
        (lambda: Call.http("u", "POST", "/", json={1, 2}), "cannot be written as JSON"),
        (lambda: Request(Call("u", path="http://elsewhere/"), "k").submission(STAMP), "relative path"),
        (lambda: Request(Call("u", headers={"Authorization": "x"}), "k").submission(STAMP), "may not be set"),
        (lambda: Request(Call("u"), "").submission(STAMP), "key"),
        (lambda: Request(Call("u"), "k", timeout_s=-1).submission(STAMP), "timeout_s"),
        (lambda: Request(Call("u"), "k", deadline=datetime(2026, 1, 1)).submission(STAMP), "zone"),  # noqa: DTZ001 - the point
        (lambda: Request(Call("u"), "k").submission(Stamp("two words", "test", STAMP.time)), "the id"),
    ],
)
def test_what_cannot_be_sent_is_a_sentence(make: Any, sentence: str) -> None:
    """Nothing that a worker would surely refuse is sent."""
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_a_place_for_the_reply_is_asked_for_in_headers() -> None:
    """Topic as text, partition as a 4-byte big-endian integer; nothing where nothing was said."""
    assert reply_to(None, None) == ()
    assert reply_to("team.replies", 258) == (("kafka_replyTopic", b"team.replies"), ("kafka_replyPartition", b"\x00\x00\x01\x02"))
    assert Request(Call("u"), "k").submission(STAMP, reply_to("t", None)).headers[-1] == ("kafka_replyTopic", b"t")
