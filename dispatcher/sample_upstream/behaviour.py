"""How the sample upstream behaves: how long an answer takes, when it refuses, and the faults that a caller or a rate asks for. Pure."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

# Seconds per 1,000 prompt tokens and per output token: a rounded order of magnitude for a 70B model on one node of eight H100-class
# GPUs, as the papers on phase splitting describe it (prompt phase tens of ms per 1,000 tokens, some 30 ms for each token after it).
PREFILL_S_PER_1K_TOKENS = 0.06
DECODE_S_PER_TOKEN = 0.03
# English text has about four characters per token with the common tokenizers.
CHARACTERS_PER_TOKEN = 4
COMPLETION_TOKENS_DEFAULT = 16
# Most tokens that a caller may claim: 4 MB of text in the answer.
TOKENS_MAX = 1_000_000
# Largest number in a query: eleven days of milliseconds, and still what a timer takes.
NUMBER_MAX = 1_000_000_000
# Ids whose faults are counted, and keys whose rate is limited; the oldest are forgotten first.
IDS_COUNTED_MAX = 100_000
KEYS_LIMITED_MAX = 10_000

# Statuses that may be asked for: a final answer, not an interim one (1xx).
STATUS_MIN, STATUS_MAX = 200, 599

NamedFault = Literal["hang", "quota", "reset", "truncate"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one chat call, as the answer's `usage` reports them."""

    prompt_tokens: int
    completion_tokens: int

    def as_json(self) -> dict[str, int]:
        """Give the `usage` object of the chat API."""
        total = self.prompt_tokens + self.completion_tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens, "total_tokens": total}


def usage_of(body: Mapping[str, Any]) -> Usage:
    """Count the tokens of a chat request: from `usage_hint` where given, else estimated from the text; `max_tokens` caps the output.

    Raises ValueError with a sentence for the caller if the hint or the messages are not of the right shape.

    >>> usage_of({"messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 5})
    Usage(prompt_tokens=10, completion_tokens=5)
    >>> usage_of({"messages": [], "usage_hint": {"prompt_tokens": 4808, "completion_tokens": 10}})
    Usage(prompt_tokens=4808, completion_tokens=10)
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError("messages must be a list")  # noqa: TRY004 - a caller's mistake, not a programmer's
    hint = body.get("usage_hint") or {}
    if not isinstance(hint, Mapping):
        raise ValueError("usage_hint must be an object")  # noqa: TRY004
    prompt = _tokens(hint.get("prompt_tokens", _text_length(messages) // CHARACTERS_PER_TOKEN), "usage_hint.prompt_tokens")
    most = _tokens(body.get("max_tokens", TOKENS_MAX), "max_tokens")
    completion = _tokens(hint.get("completion_tokens", COMPLETION_TOKENS_DEFAULT), "usage_hint.completion_tokens")
    return Usage(prompt, min(completion, most))


def _tokens(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TOKENS_MAX:
        raise ValueError(f"{name} must be a whole number from 0 to {TOKENS_MAX}")
    return value


def _text_length(messages: list[Any]) -> int:
    return sum(len(m["content"]) for m in messages if isinstance(m, Mapping) and isinstance(m.get("content"), str))


@dataclass(frozen=True, slots=True)
class Timing:
    """Service time of a call in seconds: (prompt tokens / 1,000 * prefill + output tokens * decode) / speed, or one fixed latency.

    >>> round(Timing(speed=10).service_s(Usage(2000, 30)), 3)
    0.102
    >>> Timing(latency_ms=20).service_s(Usage(2000, 30))
    0.02
    """

    speed: float = 1.0
    latency_ms: float | None = None
    prefill_s_per_1k_tokens: float = PREFILL_S_PER_1K_TOKENS
    decode_s_per_token: float = DECODE_S_PER_TOKEN

    def service_s(self, usage: Usage | None) -> float:
        """Say how many seconds a call with this usage takes; calls without tokens (`/echo`, `/status`) take only a fixed latency."""
        if self.latency_ms is not None:
            return self.latency_ms / 1000
        if usage is None:
            return 0.0
        seconds = usage.prompt_tokens / 1000 * self.prefill_s_per_1k_tokens + usage.completion_tokens * self.decode_s_per_token
        return seconds / self.speed


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a call. `times` is how often per idempotency key before it succeeds; None: always.

    `retry_after_ms` where the milliseconds that it says are others than the seconds.
    """

    kind: Literal["status"] | NamedFault
    status: int = 200
    retry_after_s: float | None = None
    times: int | None = None
    retry_after_ms: float | None = None


def fault_of(asked: Mapping[str, str]) -> Fault | None:
    """Read a fault from query parameters: `fault` = a status | hang | quota | reset | truncate, `retry_after` in seconds, `times`.

    `retry_after_ms` is the header of that name, which else says the same as `retry_after`.

    Raises ValueError with a sentence for the caller.

    >>> fault_of({"fault": "429", "retry_after": "2", "times": "1"})
    Fault(kind='status', status=429, retry_after_s=2.0, times=1, retry_after_ms=None)
    >>> fault_of({"fault": "reset"}), fault_of({})
    (Fault(kind='reset', status=200, retry_after_s=None, times=None, retry_after_ms=None), None)
    """
    name = asked.get("fault")
    if name is None:
        return None
    retry_after_s, retry_after_ms = number_in(asked, "retry_after"), number_in(asked, "retry_after_ms")
    times = None if (count := number_in(asked, "times")) is None else int(count)
    for kind in get_args(NamedFault):
        if name == kind:
            return Fault(kind, 200 if kind != "quota" else 429, retry_after_s, times, retry_after_ms)
    if name.isascii() and name.isdigit() and STATUS_MIN <= int(name) <= STATUS_MAX:
        return Fault("status", int(name), retry_after_s, times, retry_after_ms)
    raise ValueError("fault must be a status from 200 to 599, hang, quota, reset or truncate")


def number_in(asked: Mapping[str, str], name: str) -> float | None:
    """Read the number that a query parameter gives, None if it is absent. Raises ValueError with a sentence for the caller."""
    if name not in asked:
        return None
    try:
        value = float(asked[name])
    except ValueError:
        value = -1.0
    if not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} must be a number from 0 to {NUMBER_MAX}")
    return value


class Faults:
    """Decides whether a call fails: because its caller asked, or by a seeded rate. Counts per idempotency key. Owned by the server.

    The rate's draw depends only on seed, id and how often the id was seen, so that a run repeats whatever the order of arrival.
    """

    def __init__(self, *, rate: float = 0.0, seed: int = 0) -> None:
        self._rate = rate
        self._seed = seed
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._outage: Fault | None = None

    def go_down(self, fault: Fault | None) -> None:
        """Let every call fail so from now on; None: the outage is over."""
        self._outage = fault

    def due(self, asked: Fault | None, call_id: str) -> Fault | None:
        """Decide the fault of this call; None if it is to be answered properly."""
        if self._outage is not None:
            return self._outage
        if asked is None and self._rate <= 0:
            return None
        before = self._seen.pop(call_id, 0)
        self._seen[call_id] = before + 1
        if len(self._seen) > IDS_COUNTED_MAX:
            self._seen.popitem(last=False)
        if asked is not None:
            return asked if asked.times is None or before < asked.times else None
        draw = random.Random(f"{self._seed}/{call_id}/{before}")  # noqa: S311 - a repeatable draw, nothing secret
        return draw.choice(RATE_FAULTS) if draw.random() < self._rate else None


# What a fault rate draws from: what providers do most.
RATE_FAULTS = (Fault("status", 429, retry_after_s=1), Fault("status", 500), Fault("status", 503), Fault("reset"))


class RateLimit:
    """One token bucket per caller (its Authorization): `per_s` calls a second, bursts of one second's worth. Owned by the server.

    >>> limit = RateLimit(2)
    >>> [limit.wait_s("a", now) for now in (0.0, 0.0, 0.0, 0.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller -> tokens left, and when that was so

    def wait_s(self, caller: str, now: float) -> float:
        """Take one token: 0.0 if there was one, else seconds until there will be."""
        tokens, at = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._per_s)
        wait = 0.0 if tokens > 1 - 1e-9 else (1 - tokens) / self._per_s
        self._buckets[caller] = (tokens - 1 if wait == 0.0 else tokens, now)
        if len(self._buckets) > KEYS_LIMITED_MAX:
            self._buckets.popitem(last=False)
        return wait
