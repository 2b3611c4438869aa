"""The examples are priced to the cent, against a separate calculation: integers, by prices as the providers print them."""

from __future__ import annotations

import csv
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from dispatcher.adapters.config import load
from dispatcher.adapters.prices import open_price_list
from dispatcher.core.callees.billing import Billing
from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.usage import Usage
from dispatcher.settings import Settings
from tests.specimens import WALL

EXAMPLES = Path(__file__).parents[1] / "examples"
ENTRIES: list[dict[str, Any]] = [json.loads(line) for line in (EXAMPLES / "model-answers.jsonl").read_text().splitlines()]
# 10^-9 US dollars for each answer's tokens, by hand: count x price of one token. Prices per million as of the providers' pages on the day
# of the trace (deepseek's of the day, not of the night), which the price list 0.2.3 has.
LISTED = [
    200 * 2500 + 800 * 1250 + 100 * 10_000,  # gpt-4o: 2.50, cached 1.25, output 10
    75 * 1100 + 266 * 4400,  # o4-mini: 1.10, output 4.40, reasoning among it
    1340 * 2000 + 28_672 * 500 + 1186 * 8000,  # gpt-4.1: 2, cached 0.50, output 8
    8191 * 20,  # text-embedding-3-small: 0.02
    3 * 3000 + 12_304 * 3750 + 550 * 15_000,  # claude-sonnet-4.5: 3, written 3.75, output 15
    21 * 3000 + 12_304 * 300 + 500 * 3750 + 1000 * 6000 + 93 * 15_000,  # the same: cached 0.30, for an hour 6
    300 * 300 + 900 * 30 + 60 * 2500,  # gemini-2.5-flash: 0.30, cached 0.03, output 2.50, thoughts among it
    512 * 270 + 1536 * 70 + 512 * 1100,  # deepseek-chat: 0.27, cached 0.07, output 1.10
    None,  # deepseek-v3 of a gateway: whose price that is nobody says
    None,  # openai/gpt-oss-120b of a gateway
]
# The same where examples/prices.toml has a price for every token of a model.
OWN = {2: 31_198 * 8000, 4: 12_857 * 15_000, 5: 13_918 * 15_000, 6: 1260 * 2500, 8: 1310 * 420}
CENT = Decimal("0.01")


def configured(**changes: Any) -> Settings:
    """The settings of examples/prices.toml."""
    return load(file=EXAMPLES / "prices.toml", flags={}, properties=[], environ={}).model_copy(update=changes)


def usages(settings: Settings) -> list[Usage]:
    """What each answer of the trace was billed for."""
    billing, found = Billing(settings, open_price_list(settings)), []
    for entry in ENTRIES:
        result = Answered(200, (("content-type", "application/json"),), orjson.dumps(entry["body"]))
        bill = billing.bill(entry["upstream"], entry["model"], result, WALL)
        assert bill is not None
        found.append(bill.usage)
    return found


def nano(usage: Usage) -> int | None:
    """A cost in 10^-9 US dollars."""
    return None if usage.cost is None else int(usage.cost * 10**9)


def test_each_providers_answer_has_its_price_of_the_list() -> None:
    """To a billionth of a dollar, and so to the cent in sum: 11 of them."""
    found = usages(configured(models={}))
    assert LISTED == [nano(usage) for usage in found]
    known = sum((usage.cost for usage in found if usage.cost is not None), Decimal(0))
    assert Decimal(sum(cost for cost in LISTED if cost is not None)) / 10**9 == known
    assert Decimal("0.10") == known.quantize(CENT, ROUND_HALF_EVEN)


def test_a_price_of_ones_own_goes_before_the_list() -> None:
    """The configuration beside the trace: five answers have its prices, four the list's, and one has none."""
    found = [nano(usage) for usage in usages(configured())]
    assert [OWN.get(number, listed) for number, listed in enumerate(LISTED)] == found


def test_savings_are_the_references_cost_less_the_cost() -> None:
    """All tokens at gpt-4.1's 8 dollars, less what was paid; below nothing where it would have been cheaper."""
    for usage in usages(configured()):
        count = usage.tokens.input + usage.tokens.output
        assert (None if usage.cost is None else Decimal(count * 8) / 10**6 - usage.cost) == usage.savings


@pytest.mark.parametrize(
    ("model", "hundredths"), [("deepseek-v3", 42), ("gpt-4.1", 800), ("claude-sonnet-4.5", 1500), ("gemini-2.5-flash", 250)]
)
def test_the_recorded_load_is_priced_to_the_cent(model: str, hundredths: int) -> None:
    """The 1,500 requests of the Azure trace, each billed by itself, cost what all their tokens together do."""
    with (EXAMPLES / "azure-llm-2023-first-1500.csv").open() as file:
        counts = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    billing, total = Billing(configured()), Decimal(0)
    for prompt, output in counts:
        body = orjson.dumps({"model": model, "usage": {"prompt_tokens": prompt, "completion_tokens": output}})
        bill = billing.bill("house", model, Answered(200, (), body), WALL)
        assert bill is not None
        assert bill.usage.cost is not None
        total += bill.usage.cost
    tokens = sum(map(sum, counts))
    assert tokens * hundredths == total * 10**8
    assert len(counts) == 1500
