"""The price list: whose prices an upstream has, what it does not know, and that it asks nobody."""

from __future__ import annotations

import socket
from decimal import Decimal
from typing import Any, NoReturn

import pytest

from dispatcher.adapters.prices import CACHE_MAX, PriceList, open_price_list
from dispatcher.core.callees.tokens import Counted
from dispatcher.core.messages.usage import Tokens
from dispatcher.errors import ConfigError
from tests.specimens import WALL, settings


def price_list(base_url: str = "https://api.openai.com/v1", **upstream: Any) -> PriceList:
    """The list, for an upstream `openai` like this."""
    return PriceList(settings({"base_url": base_url, **upstream}))


def cost(model: str, *, of: PriceList | None = None, tier: str = "", **tokens: int) -> Decimal | None:
    """What these tokens cost at upstream `openai`."""
    return (of or price_list()).cost("openai", model, Counted(Tokens(**tokens), model, tier), WALL)


def test_cached_tokens_are_charged_once() -> None:
    """B38: gpt-4o at 2.5, 1.25 cached and 10: 200 fresh ones, 800 cached and 100 out are a quarter of a cent."""
    assert Decimal("0.0025") == cost("gpt-4o", input=1000, cache_read=800, output=100)


def test_what_is_written_for_an_hour_costs_more() -> None:
    """Anthropic's two caches: 3.75 and 6 dollars per million, where fresh input is 3."""
    anthropic = price_list("https://api.anthropic.com/v1")
    assert Decimal("0.00375") == cost("claude-sonnet-4-5", of=anthropic, input=1000, cache_write=1000)
    assert Decimal("0.006") == cost("claude-sonnet-4-5", of=anthropic, input=1000, cache_write=1000, cache_write_1h=1000)


def test_a_tier_has_its_price() -> None:
    """The answer says what it is billed as."""
    standard, flex = (cost("gpt-5", tier=tier, input=1_000_000) for tier in ("default", "flex"))
    assert standard is not None
    assert flex is not None
    assert flex < standard


@pytest.mark.parametrize(
    ("base_url", "provider", "known"),
    [
        ("https://api.openai.com/v1", None, "openai"),
        ("https://generativelanguage.googleapis.com/v1beta", None, "google"),
        ("https://api.deepseek.com", None, "deepseek"),
        ("http://127.0.0.1:4000/v1", None, None),
        ("http://127.0.0.1:4000/v1", "openrouter", "openrouter"),
        ("https://llm.example.org", "anthropic", "anthropic"),
    ],
)
def test_a_provider_is_known_by_its_address_or_by_name(base_url: str, provider: str | None, known: str | None) -> None:
    """What a gateway of one's own passes on is priced only where somebody says whose prices those are."""
    assert known == price_list(base_url, provider=provider).providers["openai"]


@pytest.mark.parametrize("model", ["openai/gpt-oss-120b", "no-such-model", "gpt", ""])
def test_a_model_that_is_not_listed_has_no_price(model: str) -> None:
    """B42: None, and not 0."""
    assert cost(model, input=1000, output=1000) is None


def test_a_model_that_is_not_paid_by_the_token_has_no_price() -> None:
    """The list has models that are priced by the second or the picture: their tokens are not free."""
    found = [cost(model, input=1000, output=1000) for model in ("whisper-1", "gpt-4o")]
    assert found[0] is None
    assert found[1] is not None


def test_a_kind_of_tokens_without_a_price_has_none() -> None:
    """Embeddings have no output, and no price for it; of a model that writes all the same, and whose output has none, it is not known."""
    azure = price_list("http://127.0.0.1:4000", provider="azure", allow_private=True)
    assert Decimal("0.00002") == cost("text-embedding-3-small", of=azure, input=1000)
    assert Decimal("0.002") == cost("davinci", of=azure, input=1000)
    assert cost("davinci", of=azure, input=1000, output=1) is None


def test_names_that_callees_make_up_do_not_fill_the_memory() -> None:
    """As many are remembered as there may be."""
    prices = price_list()
    for number in range(CACHE_MAX + 10):
        assert cost(f"made-up-{number}", of=prices, input=1) is None
    assert len(prices._models) <= CACHE_MAX


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"upstream": {"provider": "opnai"}}, "upstreams.openai.provider is not in the price list"),
        ({"usage": {"reference_model": "no-such-model"}}, "usage.reference_model is not in the price list"),
    ],
)
def test_what_the_list_has_not_is_told_at_the_start(given: dict[str, Any], said: str) -> None:
    """And not by a cost that is null for ever."""
    with pytest.raises(ConfigError, match=said) as error:
        open_price_list(settings(given.pop("upstream", None), **given))
    assert error.value.hint


def test_it_is_opened_only_where_it_is_needed() -> None:
    """For a provider, for a public address, and to compare with; an upstream of one's own and prices of one's own need none."""
    private = {"allow_private": True}
    own: dict[str, Any] = {"models": {"m": {"usd_per_million": 1}}, "usage": {"reference_model": "m"}, "upstreams": {"bare": BARE}}
    assert open_price_list(settings(private, **own)) is None
    assert open_price_list(settings(private | {"provider": "openai"}, **own)) is not None
    assert open_price_list(settings(private, **own | {"usage": {"reference_model": "gpt-4o"}})) is not None
    assert open_price_list(settings()) is not None


BARE = {"base_url": "http://127.0.0.1:2", "allow_private": True}


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices come with the library: a worker that may not reach the internet has them, and none asks there."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("somebody opens a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    prices = PriceList(settings({"base_url": "https://api.openai.com/v1"}, usage={"reference_model": "gpt-4.1"}))
    assert cost("gpt-4o", of=prices, input=1000) is not None
    assert prices.reference_cost(Tokens(1_000_000), WALL) == 2
