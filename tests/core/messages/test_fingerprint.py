"""Fingerprints: the same request sent again has the same one, another request another one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.specimens import decoder, record, request, settings, value

UPSTREAM = {"credentials": ["team-a", "team-b"], "methods": ["GET", "POST"]}
DECODER = decoder(settings(UPSTREAM))
HEADERS = (("ce_id", b"r-1"),)
FIELDS: dict[str, Any] = {
    "method": "POST",
    "path": "/v1/x?a=b",
    "headers": {"accept": "application/json", "x-request-id": "7"},
    "body": {"a": 1},
    "credential": "team-a",
}


def fingerprint(sent: tuple[tuple[str, bytes], ...] = HEADERS, raw: bytes | None = None, **changed: Any) -> bytes:
    """The fingerprint of a request with these fields changed."""
    return request(record(raw or value(**(FIELDS | changed)), headers=sent), DECODER).fingerprint


def test_what_a_client_sends_again_is_the_same() -> None:
    """Whatever it says beside the call: how long it may take, when it is to be given up, its trace and its metadata."""
    first = fingerprint()
    assert 16 == len(first)
    again: dict[str, Any] = {
        "timeout_s": 5,
        "deadline": "2027-01-01T00:00:00Z",
        "attempts_max": 1,
        "metadata": [1],
        "after_failure": "halt_key",
    }
    assert first == fingerprint(**again)
    trace = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("kafka_correlationId", b"\0\1"))
    assert first == fingerprint((("ce_id", b"r-1"), *trace))
    assert first == fingerprint(headers={"x-request-id": "7", "Accept": "application/json"})


@pytest.mark.parametrize(
    "changed",
    [
        {"upstream": "bare", "credential": None},
        {"method": "GET"},
        {"path": "/v1/x?a=c"},
        {"headers": {"accept": "application/json"}},
        {"headers": {"accept": "application/json", "x-request-id": "8"}},
        {"headers": {"accept": "application/jsonx", "accept-language": "7"}},
        {"body": {"a": 2}},
        {"body": None},
        {"body": ""},
        {"credential": "team-b"},
    ],
    ids=str,
)
def test_what_asks_for_something_else_is_another(changed: dict[str, Any]) -> None:
    """Callee, method, path, headers that go out, credential, and the body, of which there may be none."""
    headers: dict[str, Any] = {"headers": {"accept": "application/json"}} if changed.get("upstream") else {}
    assert fingerprint() != fingerprint(**changed, **headers)


def test_a_body_is_compared_as_it_was_written() -> None:
    """Byte for byte, since that is how it is sent: a space more is another request, and so is no body instead of an empty one."""
    compact, spaced = (b'{"upstream":"openai","body":%s}' % body for body in (b'{"a":1}', b'{"a": 1}'))
    assert fingerprint(raw=compact) != fingerprint(raw=spaced)
    without, empty = b'{"upstream":"openai"}', b'{"upstream":"openai","body_base64":""}'
    assert fingerprint(raw=without) != fingerprint(raw=empty)


def test_only_what_can_be_sent_again_has_one() -> None:
    """A request without an id of its own has the name of its place; and with a window of 0 nothing is remembered."""
    assert fingerprint(()) == b""
    off = decoder(settings(UPSTREAM, worker={"dedup_window_s": 0}))
    assert request(record(value(**FIELDS), headers=HEADERS), off).fingerprint == b""
