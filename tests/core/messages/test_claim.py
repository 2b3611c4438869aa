"""What a call is expected to take, before it is made."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dispatcher.core.messages.claim import OUTPUT_TOKENS_DEFAULT, TOKENS_MAX, Claim, claim_of, expected_tokens
from dispatcher.settings import LimitSettings
from tests.specimens import decoder, record, request, settings, value

CHAT = {"model": "m-1", "max_tokens": 50}


def limits(**fields: Any) -> list[LimitSettings]:
    """One limit."""
    return [LimitSettings.model_validate({"upstream": "u", "window_s": 60, **fields})]


def test_nothing_is_looked_for_that_no_limit_asks_for() -> None:
    """No model without a limit of one, and no tokens without a limit of them."""
    of = ("u", "a", "m-1", CHAT, 400)
    assert Claim("u", "a") == claim_of(*of, [])
    assert Claim("u", "a") == claim_of(*of, limits(requests=1))
    assert Claim("u", "a", "m-1") == claim_of(*of, limits(requests=1, model="m-2"))
    assert Claim("u", "a", "", 150) == claim_of(*of, limits(tokens=1))


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_completion_tokens": 50, "n": 3}, 150),
        ({"max_output_tokens": 50}, 50),
        ({"generationConfig": {"maxOutputTokens": 50}}, 50),
        ({"inferenceConfig": {"maxTokens": 50}}, 50),
        ({"max_tokens": 80, "max_completion_tokens": 50}, 50),
        ({}, OUTPUT_TOKENS_DEFAULT),
        ({"max_tokens": "many"}, OUTPUT_TOKENS_DEFAULT),
        ({"max_tokens": -1, "n": True}, OUTPUT_TOKENS_DEFAULT),
        ({"max_tokens": True, "generationConfig": [1]}, OUTPUT_TOKENS_DEFAULT),
        ([1, 2], 0),
        ("text", 0),
        (None, 0),
    ],
)
def test_output_is_bounded_as_providers_write_it(body: object, output: int) -> None:
    """Beside a quarter of a body of 401 bytes; what is no JSON object asks for no output."""
    assert 101 + output == expected_tokens(body, 401)


def test_no_sender_makes_a_number_that_is_too_large() -> None:
    """A thousand million is what a limit may hold."""
    assert TOKENS_MAX == expected_tokens({"max_tokens": TOKENS_MAX, "n": TOKENS_MAX}, 1 << 20)


@pytest.mark.parametrize("written", [{"body": CHAT}, {"body_base64": base64.b64encode(b' {"model": "m-1", "max_tokens": 50}').decode()}])
def test_a_model_is_seen_however_its_body_is_written(written: dict[str, Any]) -> None:
    """As JSON, and as bytes that are JSON to the callee: who could choose would choose whether a limit counts."""
    of = decoder(settings(limits={"m": {"model": "m-1", "tokens": 1000, "window_s": 60}}))
    made = request(record(value(**written)), of)
    assert made.call.body is not None
    assert Claim("openai", None, "m-1", -(-len(made.call.body) // 4) + 50) == made.claim
    assert "m-1" == made.model


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b'{"model": NaN}', b"{" * 100_000, b'{"a":' * 100_000])
def test_bytes_that_are_no_json_object_name_no_model(content: bytes) -> None:
    """They are sent as they are, and nothing raises."""
    of = decoder(settings(limits={"m": {"model": "m-1", "tokens": 1000, "window_s": 60}}))
    made = request(record(value(body_base64=base64.b64encode(content).decode())), of)
    assert Claim("openai", None, "", -(-len(content) // 4)) == made.claim


def test_a_request_carries_its_claim() -> None:
    """With the credential that its key or its message names, and by the size of the body alone."""
    of = decoder(settings(limits={"team-a": {"credential": "team-a", "tokens": 1000, "window_s": 60}}))
    made = request(record(value(credential="team-a", body=CHAT, metadata={"a": "b" * 1000})), of)
    assert made.call.body is not None
    assert Claim("openai", "team-a", "", -(-len(made.call.body) // 4) + 50) == made.claim
    assert Claim("openai", "team-a") == request(record(value(), key=b"apikey:team-a")).claim
