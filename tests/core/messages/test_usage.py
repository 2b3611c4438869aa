"""Usage: said as JSON and read back, added up, and never a price that is not known."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.usage import Tokens, Usage, UsageBody, read_usage, usd_text

COUNTS = st.integers(0, 10**12)
USD = st.decimals(0, 10**6, places=9) | st.none()
USAGES = st.builds(Usage, st.builds(Tokens, *([COUNTS] * 8)), st.sampled_from(["", "gpt-4.1", "openai/gpt-oss-120b"]), USD, USD)


@given(usage=USAGES)
def test_what_is_said_is_read(usage: Usage) -> None:
    """By the worker that reads its notes and by whoever reads the reply: the same counts, the same money to the last digit."""
    body = orjson.dumps(usage.body())
    assert usage == read_usage(orjson.loads(body))
    read = UsageBody.model_validate_json(body)
    assert (usage.cost, usage.savings, usage.tokens.input) == (read.cost_usd, read.savings_usd, read.input_tokens)


def test_an_unknown_cost_is_null_and_not_absent() -> None:
    """B42: a program that sums up costs must meet it."""
    assert {"input_tokens": 1, "output_tokens": 2, "cost_usd": None} == Usage(Tokens(1, 2)).body()


@given(one=USAGES, other=USAGES)
def test_attempts_add_up(one: Usage, other: Usage) -> None:
    """All tokens, and all money if all of it is known; the last model that is known."""
    both = one + other
    assert one.tokens.input + other.tokens.input == both.tokens.input
    assert (None if one.cost is None or other.cost is None else one.cost + other.cost) == both.cost
    assert (other.model or one.model) == both.model


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "1",
        {"input_tokens": -1},
        {"input_tokens": True},
        {"input_tokens": 1.0},
        {"model": 1},
        {"cost_usd": 0.1},
        {"cost_usd": "NaN"},
        {"cost_usd": "1" * 41},
        {"cost_usd": "1E+99999999"},
        {"cost_usd": "1e-99999999"},
        {"cost_usd": "1_0"},
        {"cost_usd": "\u0663"},
        {"cost_usd": " 1"},
        {"input_tokens": 10**16},
        {"reasoning_tokens": 2**64 - 1},
        {"savings_usd": "x"},
    ],
)
def test_what_we_did_not_write_is_not_read(body: Any) -> None:
    """Somebody else's object of that name: nothing, not a wrong sum."""
    assert read_usage(body) is None


def test_money_is_written_in_plain_digits() -> None:
    """No exponent: `1E+2` and `2.5E-7` are read as text by people and by spreadsheets."""
    assert ("100", "0.00000025", "0", "-0.5") == tuple(map(usd_text, map(Decimal, ("1E+2", "2.5E-7", "0.000", "-0.50"))))
