"""What an execution used and what that cost: tokens, and US dollars as decimals, since money is not rounded by computers.

Said in the reply (`usage`), and kept beside the tries of a request meanwhile: an attempt that failed may have been billed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# More than any provider's answer has; what says more is no count.
COUNT_MAX = 10**12
MODEL_MAX_CHARACTERS = 100
# The sum of more answers than one request has: what adds up to more than 64 bits cannot be said in JSON any more.
_SUM_MAX = 1000 * COUNT_MAX
# A price has few digits, a count twelve: what is longer was not written by us.
_USD_MAX_CHARACTERS = 40
# Without an exponent: 1E+99999999 in plain digits, as it would be shown or noted, is 100 MB.
_USD = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts as they are billed. All that is named below `input` or `output` is among those, not beside them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0  # of the input: from a cache of the callee's
    cache_write: int = 0  # of the input: written into one
    cache_write_1h: int = 0  # of those: for an hour, which costs more
    input_audio: int = 0
    output_audio: int = 0
    reasoning: int = 0  # of the output: thought, and not shown

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def kinds(self) -> dict[str, int]:
        """The same, each token once: what is neither from a cache nor for one, what is, and the output."""
        plain = max(0, self.input - self.cache_read - self.cache_write)
        return {"input": plain, "cache_read": self.cache_read, "cache_write": self.cache_write, "output": self.output}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of all answers to a request, what they cost, and what was saved by not asking another model (less than 0: lost), in USD.

    `cost` is None where a price is not known, `savings` also where nothing is compared. `model`: of the last answer; empty: not known.
    """

    tokens: Tokens
    model: str = ""
    cost: Decimal | None = None
    savings: Decimal | None = None

    def __add__(self, later: Usage) -> Usage:
        cost, savings = plus(self.cost, later.cost), plus(self.savings, later.savings)
        return Usage(self.tokens + later.tokens, later.model or self.model, cost, savings)

    def body(self) -> dict[str, Any]:
        """The JSON object that says it, as `UsageBody` describes it: what it has not is absent, but for the cost."""
        tokens = self.tokens
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        body |= {"input_tokens": tokens.input, "output_tokens": tokens.output}
        body |= {f"{name}_tokens": count for name in _PARTS if (count := getattr(tokens, name))}
        body["cost_usd"] = None if self.cost is None else usd_text(self.cost)
        if self.savings is not None:
            body["savings_usd"] = usd_text(self.savings)
        return body


_PARTS = ("cache_read", "cache_write", "cache_write_1h", "input_audio", "output_audio", "reasoning")


class UsageBody(BaseModel):
    """What the answers to a request were billed for, those of failed attempts too. Absent where no answer said so, and in duplicates."""

    model_config = ConfigDict(frozen=True)

    model: Annotated[str | None, Field(description="the model that answered, in its own words; else the one that was asked for")] = None
    input_tokens: Annotated[int, Field(ge=0, description="all of the input: cached tokens are among them")]
    output_tokens: Annotated[int, Field(ge=0, description="all of the output: reasoning is among it")]
    cache_read_tokens: Annotated[int, Field(ge=0, description="of the input: read from the callee's cache")] = 0
    cache_write_tokens: Annotated[int, Field(ge=0, description="of the input: written into the callee's cache")] = 0
    cache_write_1h_tokens: Annotated[int, Field(ge=0, description="of those: kept for an hour")] = 0
    input_audio_tokens: Annotated[int, Field(ge=0, description="of the input")] = 0
    output_audio_tokens: Annotated[int, Field(ge=0, description="of the output")] = 0
    reasoning_tokens: Annotated[int, Field(ge=0, description="of the output: thought, and not shown")] = 0
    cost_usd: Annotated[Decimal | None, Field(description="US dollars as a decimal in text; null where a price is not known")]
    savings_usd: Annotated[
        Decimal | None, Field(description="what the reference model would have cost more; less than 0: it would have been cheaper")
    ] = None


def read_usage(body: object) -> Usage | None:
    """What a JSON object says that `Usage.body` wrote; None for anything else."""
    if not isinstance(body, Mapping):
        return None
    counts = {name: body.get(f"{name}_tokens", 0) for name in ("input", "output", *_PARTS)}
    model, cost, savings = body.get("model", ""), body.get("cost_usd"), body.get("savings_usd")
    if not isinstance(model, str) or not all(type(count) is int and 0 <= count <= _SUM_MAX for count in counts.values()):
        return None
    try:
        return Usage(Tokens(**counts), model[:MODEL_MAX_CHARACTERS], read_usd(cost), read_usd(savings))
    except ValueError:
        return None


def plus(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """The sum; not known where one of them is not."""
    return None if one is None or other is None else one + other


def usd_text(amount: Decimal) -> str:
    """An amount in plain digits, without an exponent and without zeros that say nothing.

    >>> usd_text(Decimal("0.00250")), usd_text(Decimal("1E+2"))
    ('0.0025', '100')
    """
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def read_usd(text: object) -> Decimal | None:
    """An amount as `usd_text` wrote it, None for null; ValueError for anything else."""
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _USD_MAX_CHARACTERS or _USD.fullmatch(text) is None:
        raise ValueError("no amount of money")
    return Decimal(text)
