"""A request: its value as the wire has it (`RequestBody`), and a record turned into something that can be called, or refused."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dispatcher.core.instant import RFC3339, rfc3339_s
from dispatcher.core.messages.call import Call, HeaderPairs
from dispatcher.core.messages.claim import Claim, claim_of
from dispatcher.core.messages.classes import Classes, book_of, classes_of
from dispatcher.core.messages.envelope import TOPIC_ID_SHOWN, Envelope, Refusal, plain_envelope, read_envelope
from dispatcher.core.messages.fingerprint import fingerprint
from dispatcher.core.messages.members import members
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.series import Series, series_of
from dispatcher.core.messages.status import Reason
from dispatcher.settings import Settings, UpstreamSettings

KEY_MAX_BYTES = 1024
# As JMS has it: 0 to 9, 9 is the most urgent, and 4 is usual, so that there is room below it for what may wait.
PRIORITY_MAX, PRIORITY_USUAL = 9, 4
# Fields of the contract that say nothing here: refused by name, never accepted and ignored.
NOT_BUILT = "this feature is not built yet"
UNBUILT = {"expected_version": NOT_BUILT}
UNBUILT_VALUES = {"stream": True}
# Set by the worker, or by HTTP itself: a message may not. Prefixes end in a dash.
FORBIDDEN_HEADERS = frozenset(
    {"authorization", "cookie", "host", "connection", "content-length", "expect", "idempotency-key", "keep-alive", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "traceparent", "tracestate", "x-api-key", "api-key"}
)
FORBIDDEN_PREFIXES = ("proxy-", "dispatcher-")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
HEADER_VALUE = re.compile(r"[\x20-\x7e\t]{0,4096}")
# One leading slash, then visible ASCII without backslash or fragment. RFC 3986 leaves `//host` a network-path reference: refused.
PATH = re.compile(r"/(?!/)[\x21-\x22\x24-\x5b\x5d-\x7e]*")
# Dot segments, also where a callee would decode them only later.
DOTS = re.compile(r"(^|/|%2f|%5c)(\.|%2e){1,2}(/|%2f|%5c|;|$)", re.IGNORECASE)
# Numbers that no double holds make whole replies unreadable to many readers. Only a value in which this is found can have one:
# fewer than 200 digits and an exponent of one or two digits stay below 1e300.
UNSAFE_NUMBER = re.compile(rb"NaN|Infinity|[eE]\+?\d{3}|\d{200}")


def _boolean(given: object) -> object:
    """`given`, if it is true or false: Python's 0 equals False, JSON's does not."""
    if not isinstance(given, bool):
        raise PydanticCustomError("bool_type", "Input should be a valid boolean")
    return given


def _date_time(given: str) -> str:
    """`given`, if it is an RFC 3339 date and time: what readers of ISO 8601 take beside that would mean another time to others."""
    if rfc3339_s(given) is None:
        raise PydanticCustomError("date_time", "Input should be an RFC 3339 date and time with its zone")
    return given


class RequestBody(BaseModel):
    """The value of a request record: one HTTP call on a configured upstream."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, title="dispatcher request")

    upstream: Annotated[str, Field(min_length=1, max_length=64, description="alias of the callee in the workers' configuration")]
    method: Annotated[str, Field(pattern=r"^[A-Z]{1,20}$", description="HTTP method, of those that the upstream allows")] = "POST"
    path: Annotated[str, Field(min_length=1, max_length=8192, description="below the upstream's base URL, with one leading slash")] = "/"
    headers: Annotated[dict[str, str], Field(description="request headers; only those that the upstream's configuration allows")] = Field(
        default_factory=dict
    )
    body: Annotated[Any, Field(description="JSON body; absent for none")] = None
    body_base64: Annotated[str | None, Field(description="body of another type, in base64; set headers content-type beside it")] = None
    credential: Annotated[str | None, Field(max_length=64, description="alias of the credential; a key `apikey:A` means A")] = None
    agent: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description='who asks; with worker.fairness = "agent" the agents of a lane share it'),
    ] = None
    class_: Annotated[
        str | None,
        Field(
            alias="class", min_length=1, max_length=64, description="where there are classes: the one whose request topic this stands in"
        ),
    ] = None
    priority: Annotated[
        int,
        Field(
            ge=0,
            le=PRIORITY_MAX,
            description="9 is the most urgent: of a worker's lanes that are ready, which calls first; no order within one",
        ),
    ] = PRIORITY_USUAL
    timeout_s: Annotated[float | None, Field(gt=0, description="whole call, seconds; at most the upstream's call_timeout_s")] = None
    deadline: Annotated[
        Annotated[str, AfterValidator(_date_time), Field(json_schema_extra={"format": "date-time", "pattern": RFC3339})] | None,
        Field(description="RFC 3339; no call begins after it, and one in flight is cut off then"),
    ] = None
    attempts_max: Annotated[int | None, Field(ge=1, le=100, description="calls at most, at most the upstream's attempts_max")] = None
    repeat: Annotated[
        Literal["allowed", "never"],
        Field(description="never: no second call of what may have been done, even after a crash; only where publishing is exactly_once"),
    ] = "allowed"
    after_failure: Annotated[
        Literal["continue", "halt_key"],
        Field(description="after a dead letter the lane goes on, or its key waits until somebody resumes or skips"),
    ] = "continue"
    stream: Annotated[Literal[False], BeforeValidator(_boolean), Field(description="the reply comes whole")] = False
    metadata: Annotated[Any, Field(description="opaque, echoed in the reply")] = None


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request: everything that is decided before the first call."""

    record: Record
    envelope: Envelope
    call: Call
    claim: Claim  # what it takes of its callee's limits
    attempts_max: int
    metadata: bytes | None = None  # JSON, as it was written
    halts_key: bool = False  # a failure holds the key until somebody resumes it
    deadline: float | None = None  # seconds since 1970
    series: Series | None = None  # the calls whose time its own is fitted to; None where its upstream does not do that
    has_own_timeout: bool = False  # it says itself how long its calls may take
    fingerprint: bytes = b""  # of what makes it; empty where nothing can be its duplicate
    repeats: bool = True  # whether what may have been done may be done again
    priority: int = PRIORITY_USUAL
    model: str = ""  # that it asks for, as far as it says so
    agent: str = ""  # who asks


@dataclass(frozen=True, slots=True)
class Decoder:
    """Turns records into requests. Owned by the engine; holds only configuration and facts about the topics."""

    settings: Settings
    topic_id: str
    partitions: int  # of the request topic, as it was at start
    reply_topics: Mapping[str, int]
    classes: Classes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", classes_of(self.settings))

    @property
    def book(self) -> str:
        """Under which id the accounts of its keys stand: those of all classes have one book."""
        return book_of(self.topic_id, has_classes=bool(self.classes.topics))

    def decode(self, record: Record) -> Request | tuple[Envelope, Refusal]:
        """`record` as a request, or its envelope and why it is refused. Never raises for what a sender can write."""
        envelope, refusal = read_envelope(record, self.topic_id, self.settings.topics.replies, self.reply_topics)
        refusal = refusal or self._key_fault(record)
        if refusal:
            return envelope, refusal
        parsed = self._parse(record)
        if isinstance(parsed, Refusal):
            return envelope, parsed
        body, written = parsed
        if (refusal := self.classes.fault(body.class_)) is not None:
            return envelope, refusal
        upstream = self.settings.upstreams.get(body.upstream)
        if upstream is None:
            return envelope, Refusal(Reason.UNKNOWN_UPSTREAM, f"no upstream {body.upstream!r} is configured")
        credential = _credential(body, record.key or b"", upstream)
        payload = _payload(body, written)
        for part in (credential, payload):
            if isinstance(part, Refusal):
                return envelope, part
        assert not isinstance(credential, Refusal)
        assert not isinstance(payload, Refusal)
        refusal = _forbidden(body, upstream) or _over_limits(body, upstream) or self._unkept(body)
        if refusal:
            return envelope, refusal
        call = Call(
            upstream=body.upstream,
            method=body.method,
            path=body.path,
            headers=_headers(body, envelope),
            body=payload,
            credential=credential,
            timeout_s=body.timeout_s or upstream.call_timeout_s,
        )
        attempts_max = body.attempts_max or upstream.attempts_max
        deadline = None if body.deadline is None else rfc3339_s(body.deadline)
        halts, is_timed, repeats = body.after_failure == "halt_key", body.timeout_s is not None, body.repeat == "allowed"
        sent = _sent(body, payload)
        alike = series_of(body.upstream, body.path, sent)
        series = alike if upstream.adaptive_timeout else None
        can_repeat = envelope.is_named and self.settings.worker.dedup_window_s > 0
        made_of = fingerprint(call) if can_repeat else b""
        metadata = written.get("metadata")
        claim = claim_of(body.upstream, credential, alike.model, sent, len(payload or b""), self.settings.limits.values())
        traits = halts, deadline, series, is_timed, made_of, repeats, body.priority, alike.model, body.agent or ""
        return Request(record, envelope, call, claim, attempts_max, metadata, *traits)

    def _unkept(self, body: RequestBody) -> Refusal | None:
        """What this worker cannot promise."""
        if body.repeat == "allowed" or self.settings.worker.publishing == "exactly_once":
            return None
        return Refusal(Reason.UNSUPPORTED_FIELD, 'field repeat: "never" is kept only where worker.publishing is "exactly_once"')

    def unreadable(self, record: Record) -> tuple[Envelope, Refusal]:
        """The plainest envelope of a record on which `decode` raised, which it must not, and a refusal."""
        envelope = plain_envelope(record, self.topic_id, self.settings.topics.replies, self.reply_topics)
        return envelope, Refusal(Reason.MALFORMED, "the record could not be read: an error of the dispatcher, see the dead letter")

    def _key_fault(self, record: Record) -> Refusal | None:
        if not record.key:
            return Refusal(Reason.MALFORMED, "the record has no key: the key names the lane, such as doc:42")
        if len(record.key) > KEY_MAX_BYTES:
            return Refusal(Reason.MALFORMED, f"the key is over {KEY_MAX_BYTES} bytes")
        try:
            record.key.decode("utf-8")
        except UnicodeDecodeError:
            return Refusal(Reason.MALFORMED, "the key is not UTF-8")
        if self.settings.worker.on_wrong_partition == "refuse" and not self.on_right_partition(record):
            return Refusal(Reason.WRONG_PARTITION, "the key belongs to another partition: set the producer's partitioner to murmur2_random")
        return None

    def offset_in(self, name: str, partition: int) -> int | None:
        """The offset that a position id names, if it is one of this topic and `partition`; -1 of another topic that had this name.

        A partition that this topic does not have is seen to by one that it has.
        """
        place, _, topic_id = name.partition("@")
        topic, number, offset = place.rsplit("/", 2)
        if topic != self.settings.topics.requests or int(number) % self.partitions != partition:
            return None
        return int(offset) if topic_id == self.topic_id[:TOPIC_ID_SHOWN] and int(number) == partition else -1

    def on_right_partition(self, record: Record) -> bool:
        """Whether an idempotent murmur2 producer would have put this key here."""
        return record.key is None or partition_for(record.key, self.partitions) == record.partition

    def _parse(self, record: Record) -> tuple[RequestBody, Mapping[str, bytes]] | Refusal:
        """The value as a model, and those of its members that are passed on, as they were written."""
        value = record.value
        if value is None:
            return Refusal(Reason.MALFORMED, "the value is null (a tombstone): a request is a JSON object")
        limit = self.settings.topics.request_max_bytes
        if len(value) > limit:
            return Refusal(Reason.TOO_LARGE, f"the value has {len(value)} bytes, over the limit of {limit}")
        try:
            body = RequestBody.model_validate_json(value)
            passed_on = body.model_fields_set & {"body", "metadata"}
            written = members(value.decode("utf-8")) if passed_on else {}
        except ValidationError as error:
            return refusal_of(error)
        except RecursionError:
            return Refusal(Reason.MALFORMED, "the value is nested too deeply")
        largest = sys.float_info.max
        if UNSAFE_NUMBER.search(value) and not all(abs(n) <= largest for n in _numbers((body.body, body.metadata))):
            return Refusal(Reason.MALFORMED, "the value holds a number that JSON cannot carry (NaN or out of range)")
        return body, {name: written[name].encode() for name in passed_on}


def refusal_of(error: ValidationError) -> Refusal:
    """The first fault as one sentence; never the input itself, which may hold secrets."""
    faults = error.errors(include_url=False, include_context=False)
    for fault in faults:
        name = ".".join(str(part) for part in fault["loc"])
        if name in UNBUILT or (name in UNBUILT_VALUES and _same(fault["input"], UNBUILT_VALUES[name])):
            return Refusal(Reason.UNSUPPORTED_FIELD, f"field {name}: {UNBUILT.get(name, NOT_BUILT)}")
    return Refusal(Reason.MALFORMED, _sentence(faults[0]))


def _same(given: object, unbuilt: object) -> bool:
    return type(given) is type(unbuilt) and given == unbuilt


def _sentence(fault: ErrorDetails) -> str:
    kind, name = fault["type"], ".".join(_shown(part) for part in fault["loc"])
    if kind == "json_invalid":
        return "the value is not JSON"
    if kind == "extra_forbidden":
        return f"unknown field {name}"
    if kind == "missing":
        return f"field {name} is missing"
    return f"field {name}: {fault['msg']}" if name else "the value is not a JSON object"


def _shown(name: object) -> str:
    """A sender's name for something, short and without characters that do things to terminals."""
    text = str(name)[:64]
    return text if text.isprintable() else ascii(text)


def _credential(body: RequestBody, key: bytes, upstream: UpstreamSettings) -> str | Refusal | None:
    """The alias to send: the key's own (`apikey:<alias>`) or the one named, each only where the configuration allows it."""
    text = key.decode("utf-8")
    own = text.removeprefix("apikey:") if text.startswith("apikey:") else None
    named = body.credential
    if not upstream.credentials:
        return None if named is None else Refusal(Reason.FORBIDDEN, f"upstream {body.upstream} takes no credential")
    if own is not None and named is not None and named != own and not upstream.allow_other_credential:
        return Refusal(Reason.FORBIDDEN, "the key names one credential and the message another")
    alias = named if named is not None else own
    if alias is not None and alias not in upstream.credentials:
        source = "the message's" if named is not None else "the key's"
        return Refusal(Reason.FORBIDDEN, f"{source} credential is not allowed for upstream {body.upstream}")
    return alias


def _payload(body: RequestBody, written: Mapping[str, bytes]) -> bytes | Refusal | None:
    if body.body_base64 is not None:
        if body.body is not None:
            return Refusal(Reason.MALFORMED, "body and body_base64 exclude each other")
        try:
            return base64.b64decode(body.body_base64, validate=True)
        except (binascii.Error, ValueError):
            return Refusal(Reason.MALFORMED, "field body_base64 is not base64")
    # `null` is a JSON body too, when it was given.
    return written.get("body")


def _sent(body: RequestBody, payload: bytes | None) -> object:
    """The JSON that is sent, None for other bytes: under which limits a call is does not hang on how its request writes it."""
    if body.body_base64 is None or payload is None or payload.lstrip()[:1] != b"{":
        return body.body
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def never(body: RequestBody) -> Refusal | None:
    """Say what no worker accepts, whatever its upstreams are set to; a client refuses it before it stands in a log."""
    path = body.path.partition("?")[0]
    if not PATH.fullmatch(body.path) or DOTS.search(path):
        return Refusal(Reason.FORBIDDEN, "path is not a relative path: one leading slash, no host, no dot segments, no fragment")
    seen = set()
    for name, content in body.headers.items():
        lower = name.lower()
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(content) or lower in seen:
            return Refusal(Reason.MALFORMED, f"header {name[:64]!r} is not a header, or stands twice")
        seen.add(lower)
        if lower in FORBIDDEN_HEADERS or lower.startswith(FORBIDDEN_PREFIXES):
            return _forbidden_header(name)
    return None


def _forbidden(body: RequestBody, upstream: UpstreamSettings) -> Refusal | None:
    if body.method not in upstream.methods:
        return Refusal(Reason.FORBIDDEN, f"method {body.method} is not allowed for upstream {body.upstream}")
    if (refusal := never(body)) is not None:
        return refusal
    return next((_forbidden_header(name) for name in body.headers if name.lower() not in upstream.request_headers), None)


def _forbidden_header(name: str) -> Refusal:
    return Refusal(Reason.FORBIDDEN, f"header {name} may not be set by a message")


def _over_limits(body: RequestBody, upstream: UpstreamSettings) -> Refusal | None:
    if body.timeout_s is not None and body.timeout_s > upstream.call_timeout_s:
        return Refusal(Reason.FORBIDDEN, f"timeout_s is over the upstream's call_timeout_s ({upstream.call_timeout_s:g})")
    if body.attempts_max is not None and body.attempts_max > upstream.attempts_max:
        return Refusal(Reason.FORBIDDEN, f"attempts_max is over the upstream's ({upstream.attempts_max})")
    return None


def _headers(body: RequestBody, envelope: Envelope) -> HeaderPairs:
    pairs = list(body.headers.items())
    if "body" in body.model_fields_set and body.body_base64 is None and not any(name.lower() == "content-type" for name in body.headers):
        pairs.append(("content-type", "application/json"))
    return (*pairs, ("Idempotency-Key", envelope.request_id), *envelope.trace)


def _numbers(value: object) -> Iterator[float]:
    """All numbers in a JSON value; iterative, since a sender chooses the depth."""
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, int | float):
            yield top
        elif isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list | tuple):
            stack.extend(top)
