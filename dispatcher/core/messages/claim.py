"""What a call lays claim to at its callee: by whose credential, of which model, and how many tokens it may take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dispatcher.settings import LimitSettings

# English text has about four bytes per token with the common tokenizers; JSON around it counts as if it were text.
BYTES_PER_TOKEN = 4
# What is expected of an answer whose request does not bound it; the answer itself puts that right.
OUTPUT_TOKENS_DEFAULT = 1024
TOKENS_MAX = 10**9
# How providers name the bound: OpenAI (and before), its responses, Anthropic; Gemini and Bedrock have theirs in an object of its own.
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens")
_INSIDE = ("generationConfig", "generation_config", "inferenceConfig")


class Claim(NamedTuple):
    """See above. `model` is empty where no limit asks for it, `tokens` 0."""

    upstream: str
    credential: str | None
    model: str = ""
    tokens: int = 0


def claim_of(upstream: str, credential: str | None, model: str, body: object, size_bytes: int, limits: Collection[LimitSettings]) -> Claim:
    """The claim of a request for that model with this JSON body (None for none) of so many bytes, as far as a limit asks for it."""
    if not limits:
        return Claim(upstream, credential)
    tokens = expected_tokens(body, size_bytes) if any(limit.tokens is not None for limit in limits) else 0
    return Claim(upstream, credential, model if any(limit.model is not None for limit in limits) else "", tokens)


def expected_tokens(body: object, size_bytes: int) -> int:
    """How many tokens a call may take: its input by the size of its body, and the output that it allows.

    >>> expected_tokens({"max_tokens": 100}, 400), expected_tokens({"max_tokens": 100, "n": 2}, 400), expected_tokens(None, 0)
    (200, 300, 0)
    """
    read = -(-size_bytes // BYTES_PER_TOKEN)
    if not isinstance(body, Mapping):
        return min(read, TOKENS_MAX)
    bounds = [bound for table in (body, *(body.get(name) for name in _INSIDE)) for bound in _bounds(table)]
    written = min(bounds) if bounds else OUTPUT_TOKENS_DEFAULT
    return min(read + written * max(1, _whole(body.get("n"))), TOKENS_MAX)


def _bounds(table: Any) -> list[int]:  # noqa: ANN401 - whatever somebody sent
    if not isinstance(table, Mapping):
        return []
    return [bound for name in _BOUNDS if (bound := _whole(table.get(name))) > 0]


def _whole(given: object) -> int:
    return given if type(given) is int and 0 < given <= TOKENS_MAX else 0
