"""What an answer costs: by the prices that are configured, else by a price list. A price that nobody knows is None, never 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from dispatcher.core.callees.tokens import Counted, counted, model_name
from dispatcher.core.messages.call import Answered, CallResult
from dispatcher.core.messages.usage import Tokens, Usage
from dispatcher.settings import ModelSettings, Settings

MILLION = 1_000_000
# What a metric shows of a model that is not configured: callees and senders must not make labels.
OTHER = "other"
# The date behind a model's name, as OpenAI (`-2025-04-14`) and Anthropic (`-20250929`) write it: the same model, and the same price.
_DATED = re.compile(r"-20\d\d-?[01]\d-?[0-3]\d$")


class PriceList(Protocol):
    """Prices that others keep (`dispatcher.adapters.prices.PriceList`). `wall`: when, seconds since 1970; US dollars, None: not known."""

    def cost(self, upstream: str, model: str, counted: Counted, wall: float) -> Decimal | None: ...
    def reference_cost(self, tokens: Tokens, wall: float) -> Decimal | None: ...


@dataclass(frozen=True, slots=True)
class Bill:
    """What one answer used. `label` is the configured model's name, `other` for all others."""

    usage: Usage
    label: str


class Billing:
    """Owned by the engine. Holds only configuration."""

    def __init__(self, settings: Settings, prices: PriceList | None = None) -> None:
        self._models = settings.models
        self._by_name = {_plain(name): name for name in settings.models} | {name.lower(): name for name in settings.models}
        self._reference = settings.usage.reference_model
        self._prices = prices

    def bill(self, upstream: str, asked: str, result: CallResult, wall: float) -> Bill | None:
        """What a call used whose request names the model `asked` (empty: none); None where its end says nothing of tokens."""
        said = counted(result) if isinstance(result, Answered) else None
        if said is None:
            return None
        asked = model_name(asked)
        configured = [self._by_name[name] for name in _names(said.model, asked) if name in self._by_name]
        cost = self._cost(configured, upstream, asked, said, wall)
        usage = Usage(said.tokens, said.model or asked, cost, self._savings(said.tokens, cost, wall))
        return Bill(usage, next(iter(configured), OTHER))

    def _cost(self, configured: list[str], upstream: str, asked: str, said: Counted, wall: float) -> Decimal | None:
        own = (cost_of(self._models[name], said.tokens) for name in configured)
        if (cost := next((cost for cost in own if cost is not None), None)) is not None or self._prices is None:
            return cost
        listed = (self._prices.cost(upstream, name, said, wall) for name in (said.model, asked) if name)
        return next((cost for cost in listed if cost is not None), None)

    def _savings(self, tokens: Tokens, cost: Decimal | None, wall: float) -> Decimal | None:
        if self._reference is None or cost is None:
            return None
        model = self._models.get(self._reference)
        reference = None if model is None else cost_of(model, tokens)
        if reference is None and self._prices is not None:
            reference = self._prices.reference_cost(tokens, wall)
        return None if reference is None else reference - cost


def cost_of(model: ModelSettings, tokens: Tokens) -> Decimal | None:
    """What tokens cost by a model's own prices, exactly; None where it has none."""
    if model.usd_per_million is not None:
        return model.usd_per_million * (tokens.input + tokens.output) / MILLION
    if model.input_usd_per_million is None or model.output_usd_per_million is None:
        return None
    prices = {
        "input": model.input_usd_per_million,
        "cache_read": model.cache_read_usd_per_million,
        "cache_write": model.cache_write_usd_per_million,
        "output": model.output_usd_per_million,
    }
    each = (prices[kind] if prices[kind] is not None else prices["input"] for kind in tokens.kinds)
    return sum((price * count for price, count in zip(each, tokens.kinds.values(), strict=True) if price is not None), Decimal(0)) / MILLION


def _names(*models: str) -> Iterator[str]:
    """The names by which a model may be configured, the most telling first."""
    for model in models:
        if model:
            yield from (model.lower(), _plain(model), _DATED.sub("", _plain(model)))


def _plain(model: str) -> str:
    """A model's name as all write it: the same one is claude-sonnet-4.5 here and claude-sonnet-4-5 there."""
    return model.lower().replace(".", "-")
