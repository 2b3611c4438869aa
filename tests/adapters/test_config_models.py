"""Settings of models and their prices: how they are written, and what cannot be meant."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from dispatcher.adapters.config import describe
from tests.adapters.test_config import UPSTREAM, Given


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Sources with their own directory."""
    return Given(tmp_path)


def test_models_and_their_prices(given: Given) -> None:
    """Decimals as they are written, names as providers have them; a variable finds the file's model by its letters."""
    toml = (
        UPSTREAM
        + """
[models."gpt-4.1"]
usd_per_million = 8
[models."openai/gpt-oss-120b"]
input_usd_per_million = 0.1
output_usd_per_million = 0.50
[models.gpt-4o]
[usage]
reference_model = "gpt-4.1"
"""
    )
    made = given.settings(toml, environ={"DISPATCHER_MODELS__GPT_4_1__USD_PER_MILLION": "8.25"})
    assert Decimal("8.25") == made.models["gpt-4.1"].usd_per_million
    assert Decimal("0.1") == made.models["openai/gpt-oss-120b"].input_usd_per_million
    assert not made.models["gpt-4o"].has_price
    shown = {one.dotted: one.value for one in describe(given.loaded(toml))}
    assert (0.5, 8.0) == (shown["models.openai/gpt-oss-120b.output_usd_per_million"], shown["models.gpt-4.1.usd_per_million"])


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[models.m]\nusd_per_million = true", "models.m.usd_per_million must be a number"),
        ('[models.m]\nusd_per_million = "x"', "models.m.usd_per_million: must be a number"),
        ("[models.m]\nusd_per_million = nan", "models.m.usd_per_million must be a finite number"),
        ("[models.m]\nusd_per_million = -1", "models.m.usd_per_million must be at least 0"),
        ("[models.m]\nusd_per_million = 1\noutput_usd_per_million = 2", "models.m: usd_per_million is the price of every token"),
        ("[models.m]\noutput_usd_per_million = 2", "models.m: needs both input_usd_per_million and output_usd_per_million"),
        ("[models.m]\nusd_per_mil = 2", "did you mean usd_per_million?"),
        ('[models."m n"]\nusd_per_million = 1', "each name under models must be a model's name"),
        ('[usage]\nreference_model = "m n"', "usage.reference_model must be a model's name"),
        ('[upstreams.x]\nbase_url = "http://a"\nprovider = "Open AI"', "upstreams.x.provider must be a provider's id"),
    ],
)
def test_a_price_that_cannot_be_meant_is_refused(given: Given, toml: str, said: str) -> None:
    """A price of nothing would make calls look free."""
    assert said in given.refused(toml)
