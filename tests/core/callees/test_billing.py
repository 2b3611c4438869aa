"""Bills: configured prices before listed ones, a model that nobody knows, and what another one would have cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.billing import OTHER, Bill, Billing, cost_of
from dispatcher.core.callees.tokens import Counted
from dispatcher.core.messages.call import Ambiguous
from dispatcher.core.messages.usage import Tokens
from dispatcher.settings import ModelSettings
from tests.specimens import WALL, answer, settings

SEEDS = {
    "deepseek-v3": {"usd_per_million": 0.42},
    "gpt-4.1": {"usd_per_million": 8},
    "claude-sonnet-4.5": {"usd_per_million": 15},
    "gemini-2.5-flash": {"usd_per_million": 2.50},
}


class Listed:
    """A price list of one model, `listed`, at a dollar for each token, where `upstream` is openai."""

    def cost(self, upstream: str, model: str, counted: Counted, wall: float) -> Decimal | None:
        """As PriceList."""
        assert wall == WALL
        return Decimal(counted.tokens.input + counted.tokens.output) if (upstream, model) == ("openai", "listed") else None

    def reference_cost(self, tokens: Tokens, wall: float) -> Decimal | None:
        """As PriceList: two dollars for each."""
        assert wall == WALL
        return Decimal(2 * (tokens.input + tokens.output))


def bill(model: str | None = None, asked: str = "", upstream: str = "openai", count: int = 1_000_000, **sections: Any) -> Bill:
    """What an answer of a million tokens costs, of the model that it names."""
    body: dict[str, Any] = {"usage": {"prompt_tokens": count, "completion_tokens": 0}} | ({"model": model} if model else {})
    made = Billing(settings(**{"models": SEEDS, **sections}), Listed()).bill(upstream, asked, answer(body=orjson.dumps(body)), WALL)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("model", "cost"),
    [("deepseek-v3", "0.42"), ("gpt-4.1", "8"), ("claude-sonnet-4.5", "15"), ("gemini-2.5-flash", "2.5")],
)
def test_a_configured_price_is_the_price(model: str, cost: str) -> None:
    """In US dollars per million tokens, to the last digit; whoever the upstream is."""
    assert (Decimal(cost), model) == (bill(model).usage.cost, bill(model, upstream="bare").label)


@pytest.mark.parametrize(
    ("answered", "asked", "label"),
    [
        ("gpt-4.1-2025-04-14", "", "gpt-4.1"),
        ("claude-sonnet-4-5-20250929", "", "claude-sonnet-4.5"),
        ("GPT-4.1", "", "gpt-4.1"),
        (None, "gpt-4.1", "gpt-4.1"),
        ("deepseek-chat", "deepseek-v3", "deepseek-v3"),
        ("gpt-4.1-mini", "", OTHER),
        ("openai/gpt-4.1", "", OTHER),
    ],
)
def test_a_model_is_known_by_its_names(answered: str | None, asked: str, label: str) -> None:
    """With a date behind it, with dashes for dots, or as it was asked for; and never by a part of another one's name."""
    made = bill(answered, asked)
    assert label == made.label
    assert (made.usage.cost is None) == (label == OTHER)


@pytest.mark.parametrize("model", ["openai/gpt-oss-120b", "no-such-model", None])
def test_a_price_that_nobody_knows_is_not_zero(model: str | None) -> None:
    """B42: the cost is None, and the tokens are told all the same; a metric shows no name that is not configured."""
    made = bill(model, "a\nb")
    assert made.usage.cost is None
    assert (1_000_000, OTHER, model or "") == (made.usage.tokens.input, made.label, made.usage.model)


def test_the_list_prices_what_is_not_configured() -> None:
    """Of a provider's own upstream; a model that is configured without a price is named, and priced by the list."""
    assert (Decimal(3), OTHER) == (bill("listed", count=3).usage.cost, bill("listed").label)
    assert bill("listed", upstream="bare").usage.cost is None
    made = bill("listed", count=3, models={"listed": {}})
    assert (Decimal(3), "listed") == (made.usage.cost, made.label)
    assert Decimal("0.000001") == bill("listed", count=1, models={"listed": {"usd_per_million": 1}}).usage.cost


def test_savings_are_what_the_reference_would_have_cost_more() -> None:
    """By its configured price, or the list's; less than nothing where it would have been cheaper, nothing known of an unknown cost."""
    by_price = {"reference_model": "gpt-4.1"}
    assert Decimal("7.58") == bill("deepseek-v3", usage=by_price).usage.savings
    assert Decimal(-7) == bill("claude-sonnet-4.5", usage=by_price).usage.savings
    assert Decimal(3) == bill("listed", count=3, usage={"reference_model": "other-model"}).usage.savings
    assert bill("no-such-model", usage=by_price).usage.savings is None
    assert bill("deepseek-v3").usage.savings is None


def test_each_kind_of_token_has_its_price() -> None:
    """What has none of its own costs as other input; reasoning is output."""
    prices = ModelSettings(
        input_usd_per_million=Decimal("2.5"), output_usd_per_million=Decimal(10), cache_read_usd_per_million=Decimal("1.25")
    )
    assert Decimal("0.0025") == cost_of(prices, Tokens(1000, 100, cache_read=800, reasoning=60))
    assert Decimal("0.0035") == cost_of(prices, Tokens(1000, 100, cache_write=800))
    assert cost_of(ModelSettings(), Tokens(1, 1)) is None


@given(
    price=st.decimals(0, 1000, places=4),
    counts=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
)
def test_no_cent_is_lost_in_a_sum(price: Decimal, counts: list[int]) -> None:
    """The sum of many bills is the bill of their sum."""
    model = ModelSettings(usd_per_million=price)
    each = [cost_of(model, Tokens(count, 0)) or Decimal(0) for count in counts]
    assert sum(each, Decimal(0)) == cost_of(model, Tokens(sum(counts), 0))


def test_who_says_nothing_of_tokens_is_not_billed() -> None:
    """Neither an answer without counts, nor a call without an answer."""
    billing = Billing(settings(models=SEEDS))
    assert billing.bill("openai", "gpt-4.1", answer(), WALL) is None
    assert billing.bill("openai", "gpt-4.1", Ambiguous("timeout", "late"), WALL) is None
