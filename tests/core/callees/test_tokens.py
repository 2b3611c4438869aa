"""Tokens of answers: each provider's way of counting, made alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from genai_prices import extract_usage
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.tokens import Counted, counted
from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.usage import Tokens

TRACE = Path(__file__).parents[3] / "examples" / "model-answers.jsonl"
# How the library's own extractors are told which of a provider's APIs an answer is of.
FLAVOURS = {"chat.completion": "chat", "response": "responses", "list": "embeddings"}

NAMES = (
    *("usage", "usageMetadata", "model", "message", "response", "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens"),
    *("output_tokens", "prompt_tokens_details", "cached_tokens", "completion_tokens_details", "reasoning_tokens", "promptTokenCount"),
    *("candidatesTokenCount", "thoughtsTokenCount", "promptTokensDetails", "modality", "tokenCount", "inputTokens", "service_tier"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=20,
)


def of(body: Any, status: int = 200, kind: str = "application/json") -> Counted | None:
    """What an answer with this body says."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return counted(Answered(status, (("content-type", kind),), raw))


def chat(**usage: Any) -> Tokens:
    """The tokens of a chat completion with this usage."""
    found = of({"model": "m", "usage": usage})
    assert found is not None
    return found.tokens


def test_cached_tokens_of_a_chat_are_among_its_prompt() -> None:
    """B38: 1,000 with 800 of them cached are 1,000, of which 200 are fresh."""
    found = chat(prompt_tokens=1000, completion_tokens=100, prompt_tokens_details={"cached_tokens": 800})
    assert Tokens(1000, 100, cache_read=800) == found
    assert {"input": 200, "cache_read": 800, "cache_write": 0, "output": 100} == found.kinds


def test_cached_tokens_of_a_message_are_beside_its_input() -> None:
    """B38: Anthropic's 3 and 12,304 written into the cache are 12,307; those for an hour are known apart."""
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 50, "output_tokens": 9}
    found = of({"type": "message", "usage": usage | {"cache_creation": {"ephemeral_1h_input_tokens": 304}}})
    assert Counted(Tokens(12357, 9, cache_read=50, cache_write=12304, cache_write_1h=304)) == found


def test_reasoning_is_counted_once() -> None:
    """B39: a completion of 266 with 261 of them reasoning is 266; Gemini's 10 candidates and 50 thoughts are 60."""
    assert Tokens(1, 266, reasoning=261) == chat(
        prompt_tokens=1, completion_tokens=266, completion_tokens_details={"reasoning_tokens": 261}
    )
    found = of({"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 10, "thoughtsTokenCount": 50}})
    assert Counted(Tokens(5, 60, reasoning=50)) == found


def test_reasoning_beside_the_completion_is_added() -> None:
    """So does xAI, and says it by the total; and more reasoning than completion cannot be among it."""
    details = {"reasoning_tokens": 300}
    assert 309 == chat(prompt_tokens=20, completion_tokens=9, total_tokens=329, completion_tokens_details=details).output
    assert 309 == chat(prompt_tokens=20, completion_tokens=9, completion_tokens_details=details).output
    assert 400 == chat(prompt_tokens=20, completion_tokens=400, total_tokens=420, completion_tokens_details=details).output
    responses = of({"usage": {"input_tokens": 20, "output_tokens": 9, "output_tokens_details": details}})
    assert Counted(Tokens(20, 309, reasoning=300)) == responses


def test_more_cached_than_there_is_was_counted_beside_it() -> None:
    """Some gateways pass on another provider's way of counting."""
    assert Tokens(830, 1, cache_read=800) == chat(prompt_tokens=30, completion_tokens=1, prompt_tokens_details={"cached_tokens": 800})


def test_a_streams_last_word_counts() -> None:
    """B40: Anthropic's counts are cumulative: of 25 in and 1 out, then 15, then 40, there are 25 and 40."""
    events = [
        {"type": "message_start", "message": {"model": "claude-x", "usage": {"input_tokens": 25, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 15}},
    ]

    def streamed(*sent: Any) -> Counted | None:
        body = b"".join(b"event: e\r\ndata: " + orjson.dumps(event) + b"\r\n\r\n" for event in sent)
        return of(b": ping\r\n\r\n" + body, kind="text/event-stream; charset=utf-8")

    assert Counted(Tokens(25, 15), "claude-x") == streamed(*events)
    assert Counted(Tokens(25, 40), "claude-x") == streamed(*events, {"type": "message_delta", "usage": {"output_tokens": 40}})
    chunk: dict[str, Any] = {"model": "gpt-x", "choices": [], "usage": None}
    assert Counted(Tokens(7, 2), "gpt-x") == streamed(chunk, chunk | {"usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    done = {"type": "response.completed", "response": {"model": "o9", "usage": {"input_tokens": 7, "output_tokens": 2}}}
    assert Counted(Tokens(7, 2), "o9") == streamed({"type": "response.created", "response": {"model": "o9", "usage": None}}, done)
    gemini = [{"usageMetadata": {"promptTokenCount": 3}}, {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 8}}]
    assert Counted(Tokens(3, 8)) == of(gemini)


def test_errors_are_billed_too() -> None:
    """The status says nothing of the tokens; and the tier that was billed is told."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1}
    assert Counted(Tokens(9, 1), "m", "flex") == of({"error": {"message": "no"}, "model": "m", "service_tier": "flex", "usage": usage}, 500)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"usage',
        b'{"usage": {}}',
        b'{"usage": "1"}',
        {"usage": {"prompt_tokens": -1}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"prompt_tokens": 1.5, "completion_tokens": 1}},
        {"usage": {"prompt_tokens": 10**13, "completion_tokens": 1}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": "2"}},
        {"usage": {"seconds": 3}},
        {"disk": {"usage": 3}},
        [{"usage": {"prompt_tokens": None}}],
    ],
)
def test_what_is_no_count_says_nothing(body: Any) -> None:
    """None, and not a count of zero: what is not known costs nobody nothing."""
    assert of(body) is None


def test_an_answer_that_was_cut_says_nothing() -> None:
    """Its end, where the counts stand, may be missing."""
    body = b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    assert counted(Answered(200, (), body)) is not None
    assert counted(Answered(200, (), body, truncated=True)) is None


def test_a_strange_name_is_no_model() -> None:
    """Names go into metrics, lists and topics: only short and plain ones are taken."""
    for name in ("a\nb", "x" * 101, "\u2028", "", 7, None, {"a": 1}):
        found = of({"model": name, "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
        assert found is not None
        assert found.model == ""


@given(body=JSON, kind=st.sampled_from(["application/json", "text/event-stream"]))
def test_no_body_raises(body: Any, kind: str) -> None:
    """Whatever a callee sends: either whole counts, none of them below zero, or nothing."""
    raw = (b"" if kind == "application/json" else b"data: ") + json.dumps(body).encode()
    found = of(raw, kind=kind)
    if found is not None:
        assert all(count >= 0 for count in found.tokens.kinds.values())
        assert found.tokens.input == sum(found.tokens.kinds.values()) - found.tokens.output


@pytest.mark.parametrize("line", TRACE.read_text().splitlines(), ids=lambda line: json.loads(line)["body"].get("id", "-"))
def test_the_library_counts_alike(line: str) -> None:
    """genai-prices has extractors of its own, for providers that it is told of: on the answers of the examples both say the same."""
    entry = json.loads(line)
    found = of(entry["body"])
    assert found is not None
    provider = {"house": "openai"}.get(entry["upstream"], entry["upstream"])
    flavour = "default" if provider in {"anthropic", "google"} else FLAVOURS[entry["body"]["object"]]
    body = entry["body"] if entry["upstream"] != "house" else entry["body"] | {"model": "gpt-4o"}
    theirs = extract_usage(body, provider_id=provider, api_flavor=flavour).usage
    ours = found.tokens
    assert (theirs.input_tokens, theirs.reported_value("output_tokens")) == (ours.input, ours.output)
    assert (theirs.reported_value("cache_read_tokens"), theirs.reported_value("cache_write_tokens")) == (ours.cache_read, ours.cache_write)
    assert (theirs.reported_value("output_reasoning_tokens"), theirs.reported_value("cache_write_1h_tokens")) == (
        ours.reasoning,
        ours.cache_write_1h,
    )
