"""A record becomes a request or a refusal with its reason, whatever was sent; what was sent for the callee reaches it unchanged."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dispatcher.core.messages.envelope import KNOWN
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason
from tests.specimens import REPLY_TOPICS, decoder, record, refusal, request, settings, value

DECODER = decoder()
REASONS = frozenset(Reason) - {Reason.REPLY_TOO_LARGE, Reason.ATTEMPTS_EXHAUSTED, Reason.DEADLINE_EXCEEDED, Reason.QUOTA_EXHAUSTED}
CANARY = "sk-canary-0123456789"


def raw(text: str) -> Record:
    """A record whose value is this text after the opening of an object that names the upstream."""
    return record(b'{"upstream":"openai",' + text.encode() + b"}")


# --- never raises ---------------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("upstream", "method", "path", "headers", "body", "body_base64", "credential", "agent", "class", "priority", "timeout_s"),
        *("deadline", "attempts_max", "repeat", "after_failure", "stream", "expected_version", "metadata", "x"),
    ]
)
LIKELY: st.SearchStrategy[Any] = st.sampled_from(
    [
        "openai",
        "bare",
        "GET",
        "/x",
        "team-a",
        "team-b",
        "AAEC",
        {"Accept": "x"},
        {"Host": "x"},
        True,
        1,
        0.5,
        "never",
        "allowed",
        "continue",
    ]
)
OBJECTS = st.dictionaries(FIELDS, LIKELY | JSON, max_size=6).map(lambda fields: {"upstream": "openai", **fields})
VALUES = (
    st.none()
    | st.binary(max_size=80)
    | (JSON | OBJECTS).map(lambda content: json.dumps(content).encode())
    | OBJECTS.map(lambda content: json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)
KEYS = st.none() | st.binary(max_size=20) | st.sampled_from([b"doc:42", b"apikey:team-a", b"apikey:", b"x" * 1025, b"\xff\xfe"])
HEADERS = st.none() | st.lists(
    st.tuples(st.sampled_from(sorted(KNOWN)) | st.text(max_size=9), st.none() | st.binary(max_size=30)), max_size=4
).map(tuple)


@hypothesis_settings(max_examples=200)
@given(VALUES, KEYS, HEADERS, st.integers(0, 3))
@example(b'{"upstream":"openai","body":' + b"9" * 250 + b"e99}", b"doc:42", (), 0)
@example(b'{"upstream":"openai","body":' + b"[" * 100_000 + b"}", b"doc:42", (), 0)
def test_nothing_that_can_be_sent_raises(content: bytes | None, key: bytes | None, headers: tuple[Header, ...] | None, place: int) -> None:
    """Every record is a request that can be called, or a refusal of the closed list that can be answered."""
    sent = record(content, key=key, headers=headers, partition=place)
    decoded = Decoder(DECODER.settings, DECODER.topic_id, 4, REPLY_TOPICS).decode(sent)
    if isinstance(decoded, Request):
        _judge_request(decoded)
        return
    envelope, refused = decoded
    assert envelope.reply_partition in range(REPLY_TOPICS[envelope.reply_topic])
    assert refused.reason in REASONS
    assert len(refused.message) < 300
    assert refused.message.isprintable()


def _judge_request(decoded: Request) -> None:
    upstream = DECODER.settings.upstreams[decoded.call.upstream]
    assert decoded.call.method in upstream.methods
    assert decoded.call.path.startswith("/")
    assert not decoded.call.path.startswith("//")
    assert 0 < decoded.call.timeout_s <= upstream.call_timeout_s
    assert 1 <= decoded.attempts_max <= upstream.attempts_max
    assert decoded.call.credential is None or decoded.call.credential in upstream.credentials
    for name, text in decoded.call.headers:
        assert name.isascii()
        assert not set(name + text) & set("\r\n\0")


# --- each malformed kind has its reason -----------------------------------------------------------------------------------------------

MALFORMED: dict[str, Record] = {
    "no key": record(key=None),
    "empty key": record(key=b""),
    "key is not UTF-8": record(key=b"\xff\xfe"),
    "huge key": record(key=b"k" * 1025),
    "tombstone": record(None),
    "empty value": record(b""),
    "not JSON": record(b"{"),
    "not UTF-8": record(b'{"upstream":"openai","body":"\xff"}'),
    "byte order mark": record(b"\xef\xbb\xbf" + value()),
    "two values": record(value() + value()),
    "no object": record(b"[1]"),
    "null": record(b"null"),
    "no upstream": record(b"{}"),
    "upstream is a number": record(b'{"upstream":1}'),
    "unknown field": record(value(urgency="high")),
    "url": record(value(url="http://example.com/")),
    "method in lower case": record(value(method="post")),
    "method with a line end": record(value(method="GET\n")),
    "path is empty": record(value(path="")),
    "headers are a list": record(value(headers=[["a", "b"]])),
    "header is a number": record(value(headers={"Accept": 1})),
    "timeout is zero": record(value(timeout_s=0)),
    "timeout is a text": record(value(timeout_s="5")),
    "timeout is a bool": record(value(timeout_s=True)),
    "timeout is NaN": raw('"timeout_s":NaN'),
    "attempts are zero": record(value(attempts_max=0)),
    "attempts are a float": record(value(attempts_max=1.0)),
    "attempts are huge": raw('"attempts_max":' + "9" * 4000),
    "stream is a number": record(value(stream=0)),
    "repeat is another word": record(value(repeat="sometimes")),
    "after_failure is another word": record(value(after_failure="halt")),
    "two bodies": record(value(body=1, body_base64="AAEC")),
    "not base64": record(value(body_base64="AB=C")),
    "base64 with a line end": record(value(body_base64="AAEC\n")),
    "header with line ends": record(value(headers={"Accept": "x\r\nHost: evil"})),
    "header name with a line end": record(value(headers={"Accept\r\nHost": "x"})),
    "header name with a space": record(value(headers={"Accept ": "x"})),
    "header name is empty": record(value(headers={"": "x"})),
    "header is not ASCII": record(value(headers={"Accept": "ü"})),
    "header twice in other letters": record(value(headers={"Accept": "a", "accept": "b"})),
    "nested too deeply": raw('"body":' + "[" * 100_000),
    "half of a surrogate pair": raw(r'"body":"\ud800"'),
    "known header without value": record(headers=(("ce_id", None),)),
    "known header twice": record(headers=(("ce_id", b"a"), ("ce_id", b"a"))),
    "unreadable header names": record(headers=None),
}
NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1E+400",
    "1e0400",
    "9" * 250 + "e99",
    "9" * 299 + "e10",
    "9" * 310 + ".5",
    "9" * 310,
    "9" * 5000,
]
REFUSED: list[tuple[Record, Reason]] = [
    *((sent, Reason.MALFORMED) for sent in MALFORMED.values()),
    *((raw(f'"body":{{"a":[{number}]}}'), Reason.MALFORMED) for number in NUMBERS),
    *((raw(f'"metadata":{number}'), Reason.MALFORMED) for number in NUMBERS),
    *((record(value(agent=given)), Reason.MALFORMED) for given in ("", "a" * 201, 7, ["a"])),
    (raw('"class":"generation"'), Reason.UNSUPPORTED_FIELD),
    *((raw(f'"class":{given}'), Reason.MALFORMED) for given in ('""', "7", '["analysis"]', f'"{"a" * 65}"')),
    *((record(value(priority=given)), Reason.MALFORMED) for given in (-1, 10, 4.5, "4", True)),
    *(
        (record(value(deadline=given)), Reason.MALFORMED)
        for given in ("2026-11-29", "2026-11-29T10:00:00", "2026-11-29 10:00Z", "", 1796000000)
    ),
    (record(value(expected_version=3)), Reason.UNSUPPORTED_FIELD),
    (record(value(stream=True)), Reason.UNSUPPORTED_FIELD),
    (record(value(urgency=1, stream=True)), Reason.UNSUPPORTED_FIELD),
    (record(b'{"upstream":"opnai"}'), Reason.UNKNOWN_UPSTREAM),
    (record(b'{"upstream":"http://example.com"}'), Reason.UNKNOWN_UPSTREAM),
    (record(value(method="DELETE")), Reason.FORBIDDEN),
    (record(value(method="CONNECT")), Reason.FORBIDDEN),
    (record(value(headers={"X-Other": "1"})), Reason.FORBIDDEN),
    (record(value(timeout_s=60.5)), Reason.FORBIDDEN),
    (raw('"timeout_s":1e400'), Reason.FORBIDDEN),
    (record(value(attempts_max=4)), Reason.FORBIDDEN),
    (record(b'{"upstream":"bare","credential":"team-a"}'), Reason.FORBIDDEN),
    (record(value(body="x" * 1024 * 1024)), Reason.TOO_LARGE),
    (record(b"{" * (1024 * 1024 + 1)), Reason.TOO_LARGE),
    (record(headers=(("kafka_replyTopic", b"other"),)), Reason.REPLY_TOPIC_FORBIDDEN),
    (record(headers=(("kafka_replyPartition", b"\0\0\0\x09"),)), Reason.REPLY_TOPIC_FORBIDDEN),
    (record(headers=(("ce_type", b"dispatcher.request.v2"),)), Reason.UNSUPPORTED_SCHEMA),
    (record(headers=(("ce_specversion", b"2.0"),)), Reason.UNSUPPORTED_SCHEMA),
]


@pytest.mark.parametrize(("sent", "reason"), REFUSED)
def test_each_kind_is_refused_for_its_reason(sent: Record, reason: Reason) -> None:
    """The table of what a sender can do wrong; the sentence is one line and short."""
    refused = refusal(sent, DECODER)[1]
    assert reason is refused.reason
    assert refused.message.isprintable()
    assert 0 < len(refused.message) < 300


def test_a_key_on_a_wrong_partition_is_refused_or_only_counted() -> None:
    """Two hashes mean two lanes for one key: refused by default, executed where the configuration says `warn`."""
    strict, lenient = decoder(partitions=4), decoder(settings(worker={"on_wrong_partition": "warn"}), partitions=4)
    right = next(n for n in range(4) if strict.on_right_partition(record(partition=n)))
    request(record(partition=right), strict)
    wrong = record(partition=(right + 1) % 4)
    assert refusal(wrong, strict)[1].reason is Reason.WRONG_PARTITION
    request(wrong, lenient)
    assert not lenient.on_right_partition(wrong)


@pytest.mark.parametrize("name", ["x\n\x1b[2J", "\u202egnp", "a" * 5000, "\0"])
def test_a_refusal_shows_no_terminal_tricks(name: str) -> None:
    """A field's name is repeated to help, but shortened and without control characters: people read it in terminals and logs."""
    refused = refusal(record(value(**{name: 1})), DECODER)[1]
    assert refused.message.isprintable()
    assert len(refused.message) < 300


SECRETIVE: list[dict[str, Any]] = [
    {"body": {"k": CANARY}, "urgency": CANARY},
    {"credential": CANARY},
    {"credential": 7, "metadata": CANARY},
    {"headers": {"Authorization": CANARY}},
    {"headers": {"Accept": f"{CANARY}\n"}},
    {"headers": {"Accept": [CANARY]}},
    {"path": f"//{CANARY}"},
    {"path": f"/../{CANARY}"},
    {"body_base64": CANARY},
    {"body": CANARY, "body_base64": CANARY},
    {"method": CANARY},
    {"repeat": CANARY},
    {"timeout_s": CANARY},
    {"deadline": CANARY},
    {"attempts_max": CANARY},
    {"class": CANARY},
]


@pytest.mark.parametrize("fields", SECRETIVE)
def test_a_refusal_repeats_no_value(fields: dict[str, Any]) -> None:
    """Senders put secrets in wrong places; the sentence goes to logs and headers."""
    for key in (b"doc:42", b"apikey:" + CANARY.encode()):
        assert CANARY not in refusal(record(value(**fields), key=key), DECODER)[1].message


# --- classes --------------------------------------------------------------------------------------------------------------------------

CLASSED = settings(classes={"generation": {"weight": 3}, "analysis": {}})
OF_ANALYSIS = decoder(CLASSED.of_class("analysis"))


@pytest.mark.parametrize("said", [None, "analysis"])
def test_a_request_may_name_the_class_of_its_topic(said: str | None) -> None:
    """It is the same request, whether it says so or not."""
    told, silent = request(record(value(**{"class": said})), OF_ANALYSIS), request(record(value()), OF_ANALYSIS)
    assert silent.call == told.call


@pytest.mark.parametrize(
    ("said", "hint"), [("generation", r"write it to <prefix>\.requests\.generation"), (CANARY, "there are generation, analysis")]
)
def test_a_request_that_names_another_class_is_refused(said: str, hint: str) -> None:
    """It may stand in a topic where nobody waits for it: the sentence says where it belongs, or which classes there are."""
    refused = refusal(record(value(**{"class": said})), OF_ANALYSIS)[1]
    assert Reason.MALFORMED is refused.reason
    assert re.search(hint, refused.message)
    assert CANARY not in refused.message


def test_a_hint_has_an_end_however_many_classes_there_are() -> None:
    """It goes into a header of the dead letter."""
    many = settings(classes={f"{'x' * 28}-{number}": {} for number in range(40)})
    for said in ("other", f"{'x' * 28}-7"):
        assert len(refusal(record(value(**{"class": said})), decoder(many.of_class(f"{'x' * 28}-8")))[1].message) < 300


# --- what is sent reaches the callee --------------------------------------------------------------------------------------------------

EXACT = [
    *("null", "true", "0", "-0", "1.0", "1.10", "1e2", "1E-400", "12345678901234567890123456789", "-" + "9" * 308),
    *("0.1234567890123456789012", '"\\u00e9\\u0000\\n\\/"', '"\U0001f600"', '"\\ud83d\\ude00"', '""', "[]", "{}", '{"":{"":[]}}'),
    *('{"b":1,"a":2}', '{"a":1,"a":2}', "[ 1 ,\t2 ]", '{"upstream":"x","body":3}', '"},\\"body\\":4"', "[" * 190 + "]" * 190),
]


@pytest.mark.parametrize("text", EXACT)
def test_a_json_body_and_the_metadata_stay_as_written(text: str) -> None:
    """No digit, escape, order or space changes between the message and the callee, or the echo in the reply."""
    decoded = request(raw(f' "body" : {text} , "metadata":{text}\n'), DECODER)
    assert decoded.call.body == text.encode()
    assert decoded.metadata == text.encode()
    assert ("content-type", "application/json") in decoded.call.headers


@given(JSON.filter(lambda content: "NaN" not in json.dumps(content) and "Infinity" not in json.dumps(content)), st.booleans())
def test_any_json_body_is_the_same_value_at_the_callee(content: Any, ascii_only: bool) -> None:  # noqa: FBT001 - drawn
    """Big integers, floats, unicode, null and nesting survive."""
    text = json.dumps(content, ensure_ascii=ascii_only)
    assert request(record(f'{{"body":{text},"upstream":"openai"}}'.encode()), DECODER).call.body == text.encode()


def test_the_last_of_two_fields_counts_for_all() -> None:
    """A field given twice is read once, as JSON readers do: the body that is sent is the one that was checked."""
    assert request(raw('"body":1,"body":2'), DECODER).call.body == b"2"
    assert request(raw('"\\u0062ody":3'), DECODER).call.body == b"3"


def test_no_body_is_none() -> None:
    """An absent body is not `null`: nothing is sent and no content type claimed."""
    decoded = request(record(), DECODER)
    assert decoded.call.body is None
    assert decoded.metadata is None
    assert "content-type" not in dict(decoded.call.headers)


@given(st.binary(max_size=200))
def test_other_bodies_travel_in_base64(content: bytes) -> None:
    """Byte for byte, with the content type that the message sets."""
    text = base64.b64encode(content).decode()
    decoded = request(record(value(body_base64=text, headers={"Content-Type": "text/plain"})), DECODER)
    assert decoded.call.body == content
    assert [text for name, text in decoded.call.headers if name.lower() == "content-type"] == ["text/plain"]


def test_a_message_may_name_its_own_json_type() -> None:
    """A content type that the message sets is not doubled."""
    decoded = request(record(value(body={}, headers={"CONTENT-TYPE": "application/x+json"})), DECODER)
    assert [text for name, text in decoded.call.headers if name.lower() == "content-type"] == ["application/x+json"]


def test_the_call_is_what_was_asked_for() -> None:
    """Every field arrives; what is not given has the upstream's default."""
    decoded = request(record(value(method="GET", path="/chat?x=%2F", headers={"Accept": "a"}, timeout_s=5, attempts_max=2)), DECODER)
    call = decoded.call
    assert ("openai", "GET", "/chat?x=%2F", 5.0, 2) == (call.upstream, call.method, call.path, call.timeout_s, decoded.attempts_max)
    assert ("Accept", "a") in call.headers
    plain = request(record(), DECODER)
    assert ("POST", "/", 60.0, 3) == (plain.call.method, plain.call.path, plain.call.timeout_s, plain.attempts_max)


@pytest.mark.parametrize(("given", "halts"), [({}, False), ({"after_failure": "continue"}, False), ({"after_failure": "halt_key"}, True)])
def test_a_request_says_what_a_failure_does_to_its_key(given: dict[str, str], halts: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Without a word the lane goes on."""
    assert halts is request(record(value(**given)), DECODER).halts_key


def test_at_most_once_is_refused_where_it_cannot_be_kept() -> None:
    """An intent is fenced by its transaction: without one a request that must not be repeated is not called at all."""
    never = record(value(repeat="never"))
    assert request(never, DECODER).repeats is False
    refused = refusal(never, decoder(settings(worker={"publishing": "at_least_once"})))[1]
    assert (refused.reason, "publishing" in refused.message) == (Reason.UNSUPPORTED_FIELD, True)


def test_the_request_id_is_the_idempotency_key() -> None:
    """One key for all attempts, minted once: the producer's id, else the position, which a restart finds again."""
    named = record(headers=(("ce_id", b"id-1"), ("traceparent", b"00-a-b-01")))
    assert {"Idempotency-Key": "id-1", "traceparent": "00-a-b-01"}.items() <= dict(request(named, DECODER).call.headers).items()
    assert dict(request(record(), DECODER).call.headers)["Idempotency-Key"] == "dispatcher.requests/0/5@pX3kQ9aZ"


# --- what may be asked for ------------------------------------------------------------------------------------------------------------

BAD_PATHS = [
    *("http://example.com/x", "//example.com", "//", "/\\example.com", "\\\\x", "x", "?x", "#x", "/x#y", "/a b", "/x\n", "/x\r\nHost: y"),
    *("/..", "/../x", "/x/..", "/x/../y", "/./x", "/.", "/x/.", "/%2e%2e/x", "/%2E./x", "/.%2e", "/x%2f..%2fy", "/..%2fx", "/%2e%2e%2fx"),
    *("/..%5cx", "/x/..;/y", "/x/..;a=1/y", "/..?x", "/ü", "/\u2025/x", "/x\0", "/\t", "/x\x7f"),
]
GOOD_PATHS = [
    "/",
    "/v1/x",
    "/a..b",
    "/...",
    "/.well-known/x",
    "/x?y=/../z",
    "/a%20b",
    "/@x",
    "/x:80/y",
    "/x?a=b&c=d?e",
    "/~x",
    '/"x"',
    "/x/",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_cannot_leave_its_upstream(path: str) -> None:
    """No other host, no way above the base URL, however it is spelled."""
    assert refusal(record(value(path=path)), DECODER)[1].reason is Reason.FORBIDDEN


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_a_plain_path_is_sent_as_given(path: str) -> None:
    """Queries, escapes and dots that are no segments stay."""
    assert path == request(record(value(path=path)), DECODER).call.path


WORKERS_HEADERS = [
    *("Authorization", "Cookie", "Host", "Proxy-Authorization", "proxy-x", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade"),
    *("TE", "Expect", "Idempotency-Key", "traceparent", "tracestate", "X-Api-Key", "Api-Key", "Dispatcher-Epoch", "DISPATCHER-x"),
]


@pytest.mark.parametrize("name", WORKERS_HEADERS)
def test_headers_of_the_worker_are_refused_even_where_listed(name: str) -> None:
    """No configuration of `request_headers` lets a message set credentials, routing, framing or fencing."""
    listed = decoder(settings({"request_headers": [name.lower()]}))
    assert refusal(record(value(headers={name: "x"})), listed)[1].reason is Reason.FORBIDDEN


APIKEY = b"apikey:team-a"
CREDENTIALS: list[tuple[bytes, str | None, dict[str, Any], str | Reason | None]] = [
    (b"doc:42", None, {}, None),
    (b"doc:42", "team-a", {}, "team-a"),
    (b"doc:42", "team-b", {}, Reason.FORBIDDEN),
    (b"doc:42", "", {}, Reason.FORBIDDEN),
    (APIKEY, None, {}, "team-a"),
    (APIKEY, "team-a", {}, "team-a"),
    (APIKEY, "team-b", {}, Reason.FORBIDDEN),
    (APIKEY, "team-b", {"credentials": ["team-a", "team-b"]}, Reason.FORBIDDEN),
    (APIKEY, "team-b", {"credentials": ["team-a", "team-b"], "allow_other_credential": True}, "team-b"),
    (APIKEY, "team-b", {"credentials": ["team-a"], "allow_other_credential": True}, Reason.FORBIDDEN),
    (b"apikey:team-b", None, {}, Reason.FORBIDDEN),
    (b"apikey:", None, {}, Reason.FORBIDDEN),
    (b"apikey:unknown", None, {}, Reason.FORBIDDEN),
    (APIKEY, None, {"credentials": []}, None),
    (APIKEY, "team-a", {"credentials": []}, Reason.FORBIDDEN),
    (b"APIKEY:team-a", None, {}, None),
]


@pytest.mark.parametrize(("key", "named", "upstream", "outcome"), CREDENTIALS)
def test_the_key_decides_the_credential(key: bytes, named: str | None, upstream: dict[str, Any], outcome: str | Reason | None) -> None:
    """`apikey:A` means A; another one only where allowed; never one that the upstream does not list."""
    fields = {} if named is None else {"credential": named}
    decoded = decoder(settings(upstream)).decode(record(value(**fields), key=key))
    if isinstance(outcome, Reason):
        assert not isinstance(decoded, Request)
        assert outcome is decoded[1].reason
    else:
        assert isinstance(decoded, Request)
        assert outcome == decoded.call.credential


def test_a_limit_counts_the_value_as_it_stands() -> None:
    """A value of exactly the limit is taken, one byte more is not; the limit is the decompressed record's."""
    small = decoder(settings(topics={"request_max_bytes": 100}))
    fill = 100 - len(value(body=""))
    request(record(value(body="x" * fill)), small)
    assert refusal(record(value(body="x" * (fill + 1))), small)[1].reason is Reason.TOO_LARGE
    assert len(orjson.dumps("x" * fill)) == fill + 2
