"""What replies say of tokens and money, added up by key, agent, model or day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson

from dispatcher.core.messages.glance import header
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.record_json import shown
from dispatcher.core.messages.reply import REPLY_TYPE
from dispatcher.core.messages.usage import Tokens, Usage, read_usage, usd_text

# Only what has this in it is parsed: replies may be large, and most services say nothing of tokens.
_MARK = b'"usage"'


@dataclass(slots=True)
class Row:
    """A sum. `cost` is of the replies whose price is known, `unpriced` counts the others; `savings` None where nothing was compared."""

    replies: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    savings: Decimal | None = None

    def add(self, usage: Usage) -> None:
        """One reply more."""
        self.replies += 1
        self.tokens += usage.tokens
        if usage.cost is None:
            self.unpriced += 1
        else:
            self.cost += usage.cost
        if usage.savings is not None:
            self.savings = usage.savings + (self.savings or 0)

    @property
    def known_cost(self) -> Decimal | None:
        """The cost as far as it is known; None where nothing of it is, which is not the same as nothing."""
        return None if self.replies == self.unpriced else self.cost

    def fields(self) -> dict[str, Any]:
        """The sum as JSON has it."""
        tokens, cost = self.tokens, self.known_cost
        return {
            "replies": self.replies,
            "input_tokens": tokens.input,
            "cache_read_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
            "output_tokens": tokens.output,
            "reasoning_tokens": tokens.reasoning,
            "cost_usd": None if cost is None else usd_text(cost),
            "unpriced": self.unpriced,
            "savings_usd": None if self.savings is None else usd_text(self.savings),
        }


Name = str | dict[str, str] | None


# A reply's value, which says what it was billed for.
Content = Mapping[str, Any]


def _key(reply: Record, *_: object) -> Name:
    return None if reply.key is None else shown(reply.key)


def _agent(_: Record, content: Content, __: Usage) -> Name:
    agent = content.get("agent")
    return agent if isinstance(agent, str) else None


def _model(_: Record, __: Content, usage: Usage) -> Name:
    return usage.model or None


def _day(reply: Record, *_: object) -> Name:
    """The day (UTC) on which it was answered, by the broker's or the worker's clock."""
    try:
        return datetime.fromtimestamp((reply.timestamp_ms or 0) / 1000, UTC).date().isoformat() if reply.timestamp_ms else None
    except (OverflowError, ValueError, OSError):
        return None


BY: Mapping[str, Callable[[Record, Content, Usage], Name]] = {"key": _key, "agent": _agent, "model": _model, "day": _day}


class UsageReport:
    """Sums by one of `BY`. A duplicate was not called for, and counts nothing."""

    def __init__(self, by: str) -> None:
        self._by = by
        self._name = BY[by]
        self._rows: dict[bytes, tuple[Name, Row]] = {}
        self.total = Row()

    def add(self, reply: Record) -> None:
        """One record of a reply topic; what is no reply of ours says nothing."""
        content = _billed(reply)
        usage = None if content is None else read_usage(content.get("usage"))
        if content is None or usage is None:
            return
        name = self._name(reply, content, usage)
        _, row = self._rows.setdefault(orjson.dumps(name), (name, Row()))
        row.add(usage)
        self.total.add(usage)

    def rows(self) -> list[tuple[Name, Row]]:
        """The sums: days in their order, all else the dearest first, then what has the most tokens."""
        rows = list(self._rows.values())
        if self._by == "day":
            return sorted(rows, key=lambda named: str(named[0] or ""))
        return sorted(rows, key=lambda named: (-named[1].cost, -named[1].tokens.input - named[1].tokens.output, str(named[0])))


def _billed(reply: Record) -> Content | None:
    """The value of a reply that may say what its execution was billed for; None where it does not, and of a duplicate."""
    value = reply.value or b""
    if _MARK not in value or header(reply, "ce_type") != REPLY_TYPE:
        return None
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(content, dict) or content.get("duplicate") is True:
        return None
    return content
