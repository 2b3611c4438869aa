"""Every kind of record that a sender can get wrong, and how each must end; beside them a few that only look wrong."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import orjson

from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header
from tests.e2e.raw_produce import RawHeaders

CORRELATION = bytes(range(0xF0, 0x100))  # 16 bytes that are no text, as Spring sends them
ECHOED = ("kafka_correlationId", CORRELATION)
IN_KIND = ("correlation_id", b"\xff")
# What a sender may put beside the reserved headers; a dead letter must give all of it back.
BEFORE: tuple[Header, ...] = (("x-twice", b"1"), ("x-none", None), ("x-bytes", b"\xff\x00\xfe"))
BEHIND: tuple[Header, ...] = (("x-empty", b""), ("x-twice", b"2"), ("x-ü", b"3"), ("", b"4"))
# As many and as large as no sane sender writes them; names come again and again.
MANY: tuple[Header, ...] = (*((f"x-{n % 7}", b"%d" % n) for n in range(1000)), ("x-large", b"h" * 100_000), ("x-0", None))
KeyOf = Literal["here", "elsewhere"]
KEY_MAX_BYTES, CORRELATION_MAX_BYTES, ID_MAX = 1024, 4096, 200


@dataclass(frozen=True)
class Kind:
    """One record. `reason` is that of its dead letter, None where it is executed; `key` is given, or found for a partition."""

    name: str
    reason: str | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    key: bytes | KeyOf | None = "here"
    echoed: tuple[Header, ...] = (ECHOED,)
    raw: RawHeaders | None = None  # in place of all headers
    causation: str | None = None

    def all_headers(self) -> tuple[Header, ...]:
        """Give the record's headers; those of the kind may replace the correlation id."""
        names = {name for name, _ in self.headers}
        own = () if ECHOED[0] in names else (ECHOED,)
        return (*BEFORE, *own, *self.headers, *BEHIND)

    def key_for(self, partition: int, partitions: int) -> bytes | None:
        """Give the key of this record on `partition`."""
        if self.key == "here":
            return key_on(partition, partitions)
        if self.key == "elsewhere":
            return key_on((partition + 1) % partitions, partitions)
        return self.key


@cache
def key_on(partition: int, partitions: int) -> bytes:
    """Find a key that an honest producer puts on `partition`."""
    return next(key for n in range(100_000) if partition_for(key := f"doc:{n}".encode(), partitions) == partition)


def body(**fields: Any) -> bytes:
    """Write a good request, changed by `fields`."""
    return orjson.dumps({"upstream": "sample", "path": "/echo", "body": {"n": 1}} | fields)


GOOD = body()


def _values() -> list[Kind]:
    malformed: dict[str, bytes | None] = {
        "tombstone": None,
        "empty value": b"",
        "not JSON": b"{nope",
        "not UTF-8": b'{"upstream":"\xff"}',
        "not an object": b"[1]",
        "a null": b"null",
        "two objects": GOOD + GOOD,
        "byte order mark": b"\xef\xbb\xbf" + GOOD,
        "NaN": b'{"upstream":"sample","body":NaN}',
        "number out of range": b'{"upstream":"sample","path":"/echo","body":1e999}',
        "half a surrogate pair": b'{"upstream":"sample","path":"/echo","body":"\\ud800"}',
        "nested too deeply": b'{"upstream":"sample","body":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "no upstream": b'{"path":"/echo"}',
        "upstream of another type": body(upstream=7),
        "path of another type": body(path=["/echo"]),
        "headers of another type": body(headers=[["accept", "a"]]),
        "header value of another type": body(headers={"accept": 1}),
        "number as text": body(timeout_s="10"),
        "boolean as number": body(attempts_max=True),
        "no attempts": body(attempts_max=0),
        "negative time": body(timeout_s=-1),
        "method in lower case": body(method="post"),
        "unknown field": body(hedaers={}),
        "unknown repeat": body(repeat="sometimes"),
        "more urgent than there is": body(priority=10),
        "nobody's": body(agent=""),
        "both bodies": body(body_base64=base64.b64encode(b"x").decode()),
        "broken base64": b'{"upstream":"sample","path":"/echo","body_base64":"%%"}',
        "header value with a line break": body(headers={"accept": "a\r\nx-evil: 1"}),
        "header name with a space": body(headers={"ac cept": "a"}),
        "header twice": body(headers={"accept": "a", "Accept": "b"}),
    }
    return [Kind(name, "malformed", value) for name, value in malformed.items()]


def _fields() -> list[Kind]:
    unbuilt: dict[str, Any] = {"class": "generation", "expected_version": 3, "stream": True}
    forbidden: dict[str, dict[str, Any]] = {
        "absolute URL": {"path": "http://127.0.0.1/echo"},
        "another host": {"path": "//127.0.0.1/echo"},
        "no slash": {"path": "echo"},
        "path traversal": {"path": "/a/../../secret"},
        "encoded path traversal": {"path": "/%2e%2E/secret"},
        "backslash": {"path": "/..\\secret"},
        "line break in the path": {"path": "/echo\r\nHost: evil"},
        "fragment": {"path": "/echo#x"},
        "forbidden method": {"method": "DELETE"},
        "authorization header": {"headers": {"Authorization": "Bearer x"}},
        "host header": {"headers": {"Host": "evil"}},
        "fencing header": {"headers": {"Dispatcher-Epoch": "0"}},
        "header that is not listed": {"headers": {"x-anything": "1"}},
        "forbidden credential": {"credential": "team-b"},
        "more time than allowed": {"timeout_s": 10_000},
        "more attempts than allowed": {"attempts_max": 99},
    }
    return [
        *(Kind(f"unsupported {name}", "unsupported_field", body(**{name: value})) for name, value in unbuilt.items()),
        *(Kind(name, "forbidden", body(**fields)) for name, fields in forbidden.items()),
        Kind("unknown upstream", "unknown_upstream", body(upstream="nobody")),
    ]


def _keys() -> list[Kind]:
    return [
        Kind("no key", "malformed", GOOD, key=None),
        Kind("empty key", "malformed", GOOD, key=b""),
        Kind("key that is not UTF-8", "malformed", GOOD, key=b"\xff\xfe"),
        Kind("key too long", "malformed", GOOD, key=b"k" * (KEY_MAX_BYTES + 1)),
        Kind("wrong partition", "wrong_partition", GOOD, key="elsewhere"),
        Kind("no key and no value", "malformed", None, key=None),
    ]


def _headers() -> list[Kind]:
    def kind(name: str, reason: str, *headers: Header, echoed: tuple[Header, ...] = (ECHOED,), causation: str | None = None) -> Kind:
        return Kind(name, reason, GOOD, headers, echoed=echoed, causation=causation)

    return [
        kind("empty id", "malformed", ("ce_id", b"")),
        kind("id with a space", "malformed", ("ce_id", b"a b")),
        kind("id too long", "malformed", ("ce_id", b"i" * (ID_MAX + 1))),
        kind("id that is not ASCII", "malformed", ("ce_id", "ü".encode())),
        kind("id without a value", "malformed", ("ce_id", None)),
        kind("id twice", "malformed", ("ce_id", b"first"), ("ce_id", b"second"), causation="first"),
        kind("type without a value", "malformed", ("ce_type", None)),
        kind("correlation without a value", "malformed", ("kafka_correlationId", None), echoed=()),
        kind("correlation twice", "malformed", ECHOED, ("kafka_correlationId", b"other")),
        kind("correlation too long", "malformed", ("kafka_correlationId", b"c" * (CORRELATION_MAX_BYTES + 1)), echoed=()),
        kind("another version", "unsupported_schema", ("ce_type", b"dispatcher.request.v2")),
        kind("another CloudEvents", "unsupported_schema", ("ce_specversion", b"2.0")),
        kind("another content type", "unsupported_schema", ("content-type", b"text/plain")),
        kind("reply topic that is not listed", "reply_topic_forbidden", ("kafka_replyTopic", b"somebody.elses")),
        kind("reply_to that is not listed", "reply_topic_forbidden", ("reply_to", b"\xff\xff")),
        kind("reply partition that does not exist", "reply_topic_forbidden", ("kafka_replyPartition", (10_000).to_bytes(4, "big"))),
        kind("negative reply partition", "reply_topic_forbidden", ("kafka_replyPartition", b"\xff\xff\xff\xff")),
        Kind("a thousand headers and a tombstone", "malformed", None, MANY),
        kind("reply partition of three bytes", "malformed", ("kafka_replyPartition", b"\0\0\0")),
        Kind(
            "unreadable header name",
            "malformed",
            GOOD,
            echoed=(),
            raw=((b"ok", b"1"), (b"\xff\xfe", b"2"), (ECHOED[0].encode(), CORRELATION)),
        ),
        Kind("unreadable header name, tombstone, no key", "malformed", None, key=None, echoed=(), raw=((b"\xc3\x28", None),)),
    ]


def _only_looks_wrong() -> list[Kind]:
    return [
        Kind("only looks wrong: user headers", None, GOOD),
        Kind("only looks wrong: broken trace", None, GOOD, (("traceparent", b"\xff"), ("tracestate", b""))),
        Kind("only looks wrong: id", None, GOOD, (("ce_id", b"~!{}"),), causation="~!{}"),
        Kind(
            "only looks wrong: correlation in kind",
            None,
            GOOD,
            (("correlation_id", b"\xff"),),
            echoed=(ECHOED, ("correlation_id", b"\xff")),
        ),
        Kind("only looks wrong: content type", None, GOOD, (("content-type", b"application/cloudevents+json; charset=utf-8"),)),
        Kind("only looks wrong: a thousand headers", None, GOOD, MANY),
        Kind("only looks wrong: no headers", None, GOOD, echoed=(), raw=()),
    ]


KINDS: tuple[Kind, ...] = (*_values(), *_fields(), *_keys(), *_headers(), *_only_looks_wrong())
