"""The prices of models, from the library genai-prices: a list that comes with it. Nothing is fetched at run time.

The library's own `UpdatePrices`, which would, is never started. Its look-up by name keeps every name that it was ever asked for; names
come from callees, so providers and models are looked up here, in a cache that is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from dispatcher.core.callees.tokens import Counted
from dispatcher.core.messages.usage import Tokens
from dispatcher.errors import ConfigError
from dispatcher.settings import Settings, UpstreamSettings

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

# Pairs of upstream and model that are remembered; a group of workers uses some dozens.
CACHE_MAX = 1000
# What one million tokens of text are priced by, in and out. Of 81 models the list has only one of them (embeddings, and the first
# completions): what the other kind costs there is not known, and nothing is what the library would say.
_INPUT, _OUTPUT = "input_mtok", "output_mtok"


def open_price_list(settings: Settings) -> PriceList | None:
    """The price list, where it may be needed: it takes 22 MB and half a second. None where no upstream is a provider, and nothing compares.

    ConfigError where a provider or the reference model is not in it.
    """
    needed = any(upstream.provider is not None or not upstream.allow_private for upstream in settings.upstreams.values())
    return PriceList(settings) if needed or _compares(settings) else None


def _compares(settings: Settings) -> bool:
    name = settings.usage.reference_model
    return name is not None and not (name in settings.models and settings.models[name].has_price)


class PriceList:
    """See `dispatcher.core.callees.billing.PriceList`."""

    def __init__(self, settings: Settings) -> None:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - 22 MB that most commands do without

        self._list = get_snapshot()
        self._providers = {alias: _provider(self._list, alias, upstream) for alias, upstream in settings.upstreams.items()}
        self._models: dict[tuple[str, str], ModelInfo | None] = {}
        self._reference = _reference(self._list, settings)

    @property
    def providers(self) -> Mapping[str, str | None]:
        """Whose prices the upstreams have, by alias."""
        return {alias: None if provider is None else provider.id for alias, provider in self._providers.items()}

    def cost(self, upstream: str, model: str, counted: Counted, wall: float) -> Decimal | None:
        """What an answer of this upstream's model costs at the time `wall`, US dollars; None where the list does not know it."""
        provider = self._providers.get(upstream)
        if provider is None:
            return None
        found = self._found(upstream, provider, model)
        return None if found is None else _cost(provider, found, counted, wall)

    def reference_cost(self, tokens: Tokens, wall: float) -> Decimal | None:
        """What the same tokens would cost where the reference model is; None where nothing is compared."""
        return None if self._reference is None else _cost(*self._reference, Counted(tokens), wall)

    def _found(self, upstream: str, provider: Provider, model: str) -> ModelInfo | None:
        if (upstream, model) not in self._models:
            if len(self._models) >= CACHE_MAX:
                self._models.clear()
            self._models[upstream, model] = provider.find_model(model, all_providers=self._list.providers)
        return self._models[upstream, model]


def _provider(prices: DataSnapshot, alias: str, upstream: UpstreamSettings) -> Provider | None:
    """The provider of an upstream, named or known by its base URL."""
    try:
        if upstream.provider is not None:
            return prices.find_provider(None, upstream.provider, None)
        return prices.find_provider(None, None, upstream.base_url)
    except LookupError:
        if upstream.provider is None:
            return None
    known = ", ".join(sorted(provider.id for provider in prices.providers))
    raise ConfigError(f"upstreams.{alias}.provider is not in the price list", f"one of {known}; or leave it out, and price its [models]")


def _reference(prices: DataSnapshot, settings: Settings) -> tuple[Provider, ModelInfo] | None:
    """The reference model where its own provider has it, if the list has to price it."""
    if not _compares(settings):
        return None
    name = settings.usage.reference_model or ""
    try:
        return prices.find_provider_model(name, None, None, None)
    except LookupError:
        raise ConfigError(
            "usage.reference_model is not in the price list", f'give it a price: [models."{name}"] and usd_per_million'
        ) from None


def _cost(provider: Provider, model: ModelInfo, counted: Counted, wall: float) -> Decimal | None:
    from genai_prices import Usage  # noqa: PLC0415 - as above

    tokens, at = counted.tokens, datetime.fromtimestamp(wall, UTC)
    context = {"service_tier": counted.tier} if counted.tier else None
    prices = model.get_prices(at)
    needed = {name for name, count in ((_INPUT, tokens.input), (_OUTPUT, tokens.output)) if count} or {_INPUT}
    if any(getattr(prices, name) is None for name in needed):
        return None
    reported = {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_write_tokens": tokens.cache_write,
        "cache_write_1h_tokens": tokens.cache_write_1h,
        "input_audio_tokens": tokens.input_audio,
        "output_audio_tokens": tokens.output_audio,
        "output_reasoning_tokens": tokens.reasoning,
    }
    usage = Usage(**{name: count for name, count in reported.items() if count or name in {"input_tokens", "output_tokens"}})
    try:
        return model.calc_price(usage, provider, genai_request_timestamp=at, price_context=context).total_price
    except ValueError:
        # Counts that overlap in a way that it cannot tell apart (cached audio): no price is better than a wrong one.
        return None
