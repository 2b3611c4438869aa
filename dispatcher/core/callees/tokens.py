"""How many tokens an answer says that it will be billed for, in the shapes of model providers, and by which model.

Providers count differently. OpenAI's cached tokens are among those of the prompt, and its reasoning among those of the completion;
Anthropic's cached tokens are beside `input_tokens`, and Gemini's thoughts beside the candidates. Here all of them are made alike: what
is among the input is counted there, once. A shape is known by its names, not by the upstream: gateways speak for others.

A body is anything that a callee sends: what is not understood says nothing. An event stream that came whole is read to its last word,
since counts are cumulative: a later one takes the place of an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.usage import COUNT_MAX, MODEL_MAX_CHARACTERS, Tokens

# Looked for before any parse: most answers of other services have neither.
_MARKS = (b'"usage"', b'"usageMetadata"')
_MODEL = re.compile(rf"[A-Za-z0-9._:/@+ -]{{1,{MODEL_MAX_CHARACTERS}}}")
_TIER = re.compile(r"[a-z_]{1,32}")

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens; the `model` in the answer's own words, and the service tier that it was billed as, each empty where it does not say it."""

    tokens: Tokens
    model: str = ""
    tier: str = ""


def counted(answer: Answered) -> Counted | None:
    """What the answer says, whatever its status: errors are billed, too. None where it says nothing of tokens, or is not whole."""
    if answer.truncated or not any(mark in answer.body for mark in _MARKS):
        return None
    usage: dict[str, Any] = {}
    model = tier = ""
    for part in _parts(answer):
        said = part.get("usage") or part.get("usageMetadata")
        if isinstance(said, dict):
            usage |= {name: count for name, count in said.items() if count is not None}
            tier = _name(said.get("service_tier"), _TIER) or tier
        model = model_name(part.get("model") or part.get("modelVersion")) or model
        tier = _name(part.get("service_tier"), _TIER) or tier
    tokens = _tokens(usage)
    return None if tokens is None else Counted(tokens, model, tier)


def model_name(given: object) -> str:
    """The name of a model, if it is one that can be told and kept: short, and of plain letters; else empty."""
    return _name(given, _MODEL)


def _parts(answer: Answered) -> Iterator[Object]:
    """The objects of an answer that may name tokens or a model, in order."""
    kind = next((text for name, text in answer.headers if name == "content-type"), "")
    if kind.partition(";")[0].strip().lower() == "text/event-stream":
        for event in _events(answer.body):
            # Anthropic's message_start and the end of OpenAI's responses carry the whole answer so far.
            yield from (part for part in (event, event.get("message"), event.get("response")) if isinstance(part, dict))
        return
    top = _json(answer.body)
    # Gemini streams an array where nobody asks for events.
    yield from (part for part in (top if isinstance(top, list) else [top]) if isinstance(part, dict))


def _events(body: bytes) -> Iterator[Object]:
    """The data of server-sent events, where it is a JSON object."""
    for block in re.split(rb"(?:\r\n|\n|\r){2}", body):
        lines = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
        if isinstance(event := _json(b"\n".join(lines)), dict):
            yield event


def _json(text: bytes) -> Any:  # noqa: ANN401 - whatever somebody sent
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _tokens(usage: Object) -> Tokens | None:
    if "promptTokenCount" in usage or "candidatesTokenCount" in usage:
        return _gemini(usage)
    if "prompt_tokens" in usage:
        return _chat(usage)
    if "input_tokens" in usage:
        return _messages(usage)
    return _converse(usage) if "inputTokens" in usage else None


def _chat(usage: Object) -> Tokens | None:
    """OpenAI's chat, and who speaks like it; embeddings have no completion.

    DeepSeek names cached tokens by a name of its own. xAI counts reasoning beside the completion: its total says so.
    """
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens", absent=0)
    if prompt is None or output is None:
        return None
    of_prompt, of_output = _details(usage, "prompt_tokens_details"), _details(usage, "completion_tokens_details")
    read = max(_part(of_prompt, "cached_tokens"), _part(usage, "prompt_cache_hit_tokens"))
    reasoning = _part(of_output, "reasoning_tokens")
    if reasoning and reasoning <= output and _part(usage, "total_tokens") == prompt + output + reasoning:
        output += reasoning
    return _whole(
        Tokens(
            prompt,
            output,
            cache_read=read,
            cache_write=_part(of_prompt, "cache_write_tokens"),
            input_audio=_part(of_prompt, "audio_tokens"),
            output_audio=_part(of_output, "audio_tokens"),
            reasoning=reasoning,
        )
    )


def _messages(usage: Object) -> Tokens | None:
    """Anthropic's messages, whose cached tokens are beside the input; and OpenAI's responses, where they are among it."""
    fresh, output = _count(usage, "input_tokens"), _count(usage, "output_tokens", absent=0)
    if fresh is None or output is None:
        return None
    of_input, of_output = _details(usage, "input_tokens_details"), _details(usage, "output_tokens_details")
    read, written = _part(usage, "cache_read_input_tokens"), _part(usage, "cache_creation_input_tokens")
    return _whole(
        Tokens(
            fresh + read + written,
            output,
            cache_read=read or _part(of_input, "cached_tokens"),
            cache_write=written or _part(of_input, "cache_write_tokens"),
            cache_write_1h=min(written, _part(_details(usage, "cache_creation"), "ephemeral_1h_input_tokens")),
            reasoning=_part(of_output, "reasoning_tokens") or _part(of_output, "thinking_tokens"),
        )
    )


def _gemini(usage: Object) -> Tokens | None:
    """Gemini: cached tokens are among the prompt's, results of its own tools beside them, and thoughts beside the candidates."""
    prompt, shown = _count(usage, "promptTokenCount", absent=0), _count(usage, "candidatesTokenCount", absent=0)
    if prompt is None or shown is None:
        return None
    thoughts = _part(usage, "thoughtsTokenCount")
    return _whole(
        Tokens(
            prompt + _part(usage, "toolUsePromptTokenCount"),
            shown + thoughts,
            cache_read=_part(usage, "cachedContentTokenCount"),
            input_audio=_audio(usage, "promptTokensDetails"),
            output_audio=_audio(usage, "candidatesTokensDetails"),
            reasoning=thoughts,
        )
    )


def _converse(usage: Object) -> Tokens | None:
    """Bedrock's Converse, which counts as Anthropic does."""
    fresh, output = _count(usage, "inputTokens"), _count(usage, "outputTokens", absent=0)
    if fresh is None or output is None:
        return None
    read, written = _part(usage, "cacheReadInputTokens"), _part(usage, "cacheWriteInputTokens")
    return _whole(Tokens(fresh + read + written, output, cache_read=read, cache_write=written))


def _whole(tokens: Tokens) -> Tokens:
    """The same; where more is said to be cached, or reasoned, than there is, it was counted beside the rest, as some gateways do."""
    cached = tokens.cache_read + tokens.cache_write
    beside_input = cached if cached > tokens.input else 0
    beside_output = tokens.reasoning if tokens.reasoning > tokens.output else 0
    return tokens + Tokens(input=beside_input, output=beside_output) if beside_input or beside_output else tokens


def _count(usage: Object, name: str, absent: int | None = None) -> int | None:
    """A count that there has to be; None where it is none."""
    found = usage.get(name, absent)
    return found if type(found) is int and 0 <= found <= COUNT_MAX else None


def _part(usage: Object, name: str) -> int:
    """A count that there may be; 0 where it is none."""
    return _count(usage, name) or 0


def _details(usage: Object, name: str) -> Object:
    found = usage.get(name)
    return found if isinstance(found, dict) else {}


def _audio(usage: Object, name: str) -> int:
    found = usage.get(name)
    entries = [entry for entry in found[:20] if isinstance(entry, dict)] if isinstance(found, list) else []
    return sum(_part(entry, "tokenCount") for entry in entries if entry.get("modality") == "AUDIO")


def _name(found: object, form: re.Pattern[str]) -> str:
    return found if isinstance(found, str) and form.fullmatch(found) else ""
