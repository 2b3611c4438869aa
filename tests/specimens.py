"""Records, settings and decoders for tests of the core: plain ones, of which a test changes what it is about."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

import orjson

from dispatcher.core.instant import Instant
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import Intend, Step, Tell
from dispatcher.core.messages.call import Answered, HeaderPairs
from dispatcher.core.messages.envelope import Envelope, Refusal
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.progress.strand import RequestTopic, RequestTopics
from dispatcher.settings import Settings

TOPIC_ID = "pX3kQ9aZSb2v0m7c1d4e5f"
REQUESTS, REPLIES, DEAD_LETTERS = "dispatcher.requests", "dispatcher.replies", "dispatcher.dlq"
REPLY_TOPICS = {REPLIES: 4, "team.replies": 2}
OWNER = Owner(0, 7)
# A wall clock of 2026-11-29T10:00:00Z; the monotonic one began somewhere else.
MONO, WALL = 5000.0, 1795946400.0


def topics_of(name: str, topic_id: str, partitions: int = 8) -> RequestTopics:
    """The only request topic of a worker; `topic_id` as text."""
    return alone(urlsafe_b64decode(f"{topic_id}=="), partitions, name)


def now(later_s: float = 0.0) -> Instant:
    """The test's instant, or one later."""
    return Instant(MONO + later_s, WALL + later_s)


def settings(upstream: Mapping[str, Any] | None = None, **sections: dict[str, Any]) -> Settings:
    """Two credentials, and the upstreams `openai` (takes one of them; `upstream` changes it) and `bare` (takes none)."""
    openai = {"base_url": "http://127.0.0.1:1/v1", "credentials": ["team-a"], **(upstream or {})}
    given: dict[str, Any] = {
        "credentials": {"team-a": {"value": "Bearer sk-a"}, "team-b": {"value": "Bearer sk-b"}},
        "upstreams": {"openai": openai, "bare": {"base_url": "http://127.0.0.1:2"}},
        "topics": {"reply_topics": ["team.replies"]},
    }
    for name, section in sections.items():
        given[name] = {**given.get(name, {}), **section}
    return Settings.model_validate(given)


def decoder(of: Settings | None = None, partitions: int = 1) -> Decoder:
    """A decoder; with one partition every key is on the right one."""
    return Decoder(of or settings(), TOPIC_ID, partitions, REPLY_TOPICS)


def value(**fields: Any) -> bytes:
    """A request's value for upstream `openai`, with these fields."""
    return orjson.dumps({"upstream": "openai", **fields})


def record(content: bytes | None = b'{"upstream":"openai"}', offset: int = 5, **fields: Any) -> Record:
    """A request record, well formed unless told otherwise."""
    given = {"topic": REQUESTS, "partition": 0, "key": b"doc:42", "headers": (), **fields}
    return Record(offset=offset, value=content, **given)


def request(of: Record | None = None, by: Decoder | None = None) -> Request:
    """The decoded request of a record; fails where it is refused."""
    decoded = (by or decoder()).decode(of or record())
    assert isinstance(decoded, Request), decoded
    return decoded


def refusal(of: Record, by: Decoder | None = None) -> tuple[Envelope, Refusal]:
    """The envelope and refusal of a record; fails where it is accepted."""
    decoded = (by or decoder()).decode(of)
    assert not isinstance(decoded, Request), decoded
    return decoded


def answer(status: int = 200, body: bytes = b"{}", headers: HeaderPairs = (("content-type", "application/json"),)) -> Answered:
    """A whole answer of a callee."""
    return Answered(status, headers, body)


def noted(of: Lane, instant: Instant, *, may_call: bool = True) -> Step:
    """The next step of a lane of which whatever is to be noted stands in the state topic at once."""
    while isinstance(step := of.next(instant, may_call=may_call), Tell | Intend):
        assert of.noted(step.note)
    return step


def settled(held: Partition, outcome: Outcome, now_mono: float) -> Outcome:
    """`outcome` as its partition hands it out, where it is withheld for nothing and takes nothing along."""
    (planned,) = held.settle(outcome, now_mono)
    return planned


def alone(topic_id: bytes, partitions: int, name: str = "requests") -> RequestTopics:
    """Where there is one request topic."""
    return RequestTopics((RequestTopic(name, topic_id),), partitions)
