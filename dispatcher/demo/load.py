"""The load of the demo: real arrivals and token counts, spread over keys with a skew, as records with their time to be sent. Pure."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import orjson

from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header
from dispatcher.core.messages.status import Reason, Status

TEAMS = 40
# Zipf's exponent for how much each team sends: 0.99 is the customary skew of key-value benchmarks (YCSB's default). Over 40 teams the
# first one sends a fifth of everything, so that its lane is busy and what waits behind it is seen.
SKEW = 0.99
# How many times faster than recorded both arrivals and the upstream are: 604 s of trace become 20 s, and lanes are as loaded as then.
SPEED = 30.0
# The trace writes seven digits of a second; Python reads six.
TIMESTAMP_DIGITS = 26


@dataclass(frozen=True, slots=True)
class Arrival:
    """One line of the trace: seconds since its first request, and token counts."""

    at_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Expected:
    """How a request must end: its terminal status, and the dead letter's reason if it has one."""

    status: Status
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """One record to send, when (seconds after the start), what it is, and how it must end."""

    at_s: float
    what: str
    expected: Expected
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


OK = Expected(Status.OK)


def read_trace(lines: Iterable[str]) -> list[Arrival]:
    """Read `TIMESTAMP,ContextTokens,GeneratedTokens` lines with their header. Raises ValueError for what is not such a trace.

    >>> read_trace(["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.4799600,1,2"])
    [Arrival(at_s=0.0, prompt_tokens=4808, completion_tokens=10), Arrival(at_s=0.5, prompt_tokens=1, completion_tokens=2)]
    """
    rows = csv.DictReader(lines)
    arrivals: list[Arrival] = []
    first: datetime | None = None
    for row in rows:
        try:
            at = datetime.fromisoformat(row["TIMESTAMP"][:TIMESTAMP_DIGITS])
            prompt, completion = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"line {rows.line_num} is not TIMESTAMP,ContextTokens,GeneratedTokens") from None
        first = first or at
        arrivals.append(Arrival((at - first).total_seconds(), prompt, completion))
    return arrivals


def team(number: int) -> str:
    """Name the team of a rank from 0: `team-01` sends most."""
    return f"team-{number + 1:02d}"


def key_of(alias: str) -> bytes:
    """Write the lane key of a credential alias."""
    return f"apikey:{alias}".encode()


def skewed(count: int, *, teams: int, exponent: float, chance: random.Random) -> list[int]:
    """Draw who sends each of `count` requests: team of rank r with a weight of 1 / (r + 1) ** exponent."""
    weights = list(itertools.accumulate(1 / (rank + 1) ** exponent for rank in range(teams)))
    return chance.choices(range(teams), cum_weights=weights, k=count)


def planned(arrivals: list[Arrival], *, partitions: int, speed: float, chance: random.Random, exponent: float = SKEW) -> list[Planned]:
    """Turn a trace into records: each arrival becomes a chat request of a drawn team, `speed` times earlier."""
    senders = skewed(len(arrivals), teams=TEAMS, exponent=exponent, chance=chance)
    return [
        chat(arrival, number, team(sender), partitions, speed)
        for number, (arrival, sender) in enumerate(zip(arrivals, senders, strict=True))
    ]


def chat(arrival: Arrival, number: int, alias: str, partitions: int, speed: float) -> Planned:
    """Make the request of one arrival. The trace holds no prompts: the upstream is told the token counts instead."""
    key = key_of(alias)
    body = {
        "model": "sample-70b",
        "messages": [{"role": "user", "content": f"request {number} of the trace"}],
        "usage_hint": {"prompt_tokens": arrival.prompt_tokens, "completion_tokens": arrival.completion_tokens},
        # For the witness: a call carries its partition and offset in headers, but not its key.
        "metadata": {"key": key.decode()},
    }
    value = orjson.dumps({"upstream": "sample", "path": "/chat/completions", "body": body, "metadata": {"trace_line": number + 2}})
    identity: tuple[Header, ...] = (("ce_id", f"demo-{number:05d}".encode()),)
    return Planned(arrival.at_s / speed, "chat", OK, partition_for(key, partitions), key, value, identity)
