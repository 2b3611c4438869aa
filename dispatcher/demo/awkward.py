"""The awkward requests of the demo: what senders get wrong, and what callees do, each with the ending that it must have. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.status import Reason, Status
from dispatcher.demo.load import OK, TEAMS, Expected, Planned, key_of, team

GOOD: dict[str, Any] = {"upstream": "sample", "path": "/chat/completions", "body": {"model": "sample-70b", "messages": []}}


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to be awkward: how a good record is spoilt, and how it must end."""

    what: str
    expected: Expected
    spoil: Callable[[Planned, int], Planned]


def _dead(reason: Reason) -> Expected:
    return Expected(Status.DEAD, reason)


def _saying(**changes: object) -> Callable[[Planned, int], Planned]:
    """Change fields of the good value."""
    return lambda good, _: replace(good, value=orjson.dumps(GOOD | changes))


def _holding(value: bytes | None) -> Callable[[Planned, int], Planned]:
    return lambda good, _: replace(good, value=value)


def _headed(*headers: Header) -> Callable[[Planned, int], Planned]:
    return lambda good, _: replace(good, headers=headers)


def _keyed(key: bytes | None) -> Callable[[Planned, int], Planned]:
    """Give it another key; on that key's own partition, so that only the key is wrong."""
    return lambda good, partitions: replace(good, key=key, partition=good.partition if key is None else partition_for(key, partitions))


def _misplaced(good: Planned, partitions: int) -> Planned:
    return replace(good, partition=(good.partition + 1) % partitions)


KINDS = (
    Kind("not JSON", _dead(Reason.MALFORMED), _holding(b"hello")),
    Kind("tombstone", _dead(Reason.MALFORMED), _holding(None)),
    Kind("unknown field", _dead(Reason.MALFORMED), _saying(urgency="high")),
    Kind("feature not built", _dead(Reason.UNSUPPORTED_FIELD), _saying(stream=True)),
    Kind("unknown upstream", _dead(Reason.UNKNOWN_UPSTREAM), _saying(upstream="nobody")),
    Kind("absolute URL", _dead(Reason.FORBIDDEN), _saying(path="http://127.0.0.1/admin")),
    Kind("forbidden header", _dead(Reason.FORBIDDEN), _saying(headers={"Authorization": "Bearer mine"})),
    Kind("another team's credential", _dead(Reason.FORBIDDEN), _saying(credential=team(TEAMS - 1))),
    Kind("no key", _dead(Reason.MALFORMED), _keyed(None)),
    Kind("key not UTF-8", _dead(Reason.MALFORMED), _keyed(b"doc:\xff")),
    Kind("wrong partition", _dead(Reason.WRONG_PARTITION), _misplaced),
    Kind("schema of the future", _dead(Reason.UNSUPPORTED_SCHEMA), _headed(("ce_type", b"dispatcher.request.v2"))),
    Kind("reply topic not listed", _dead(Reason.REPLY_TOPIC_FORBIDDEN), _headed(("reply_to", b"somebody-elses-topic"))),
    Kind("callee always fails", _dead(Reason.ATTEMPTS_EXHAUSTED), _saying(path="/chat/completions?fault=500")),
    Kind("callee refuses", Expected(Status.ERROR), _saying(path="/chat/completions?fault=404")),
    Kind("callee is busy once", OK, _saying(path="/chat/completions?fault=429&retry_after=1&times=1")),
)


def awkward(*, partitions: int, span_s: float, chance: random.Random) -> list[Planned]:
    """Make one request of each kind, spread evenly over `span_s` seconds, in lanes of drawn teams between good requests."""
    made = []
    for place, kind in enumerate(KINDS, start=1):
        key = key_of(team(chance.randrange(TEAMS - 1)))  # the last team's credential is the foreign one
        good = Planned(span_s * place / (len(KINDS) + 1), kind.what, kind.expected, partition_for(key, partitions), key, orjson.dumps(GOOD))
        made.append(kind.spoil(good, partitions))
    return made
