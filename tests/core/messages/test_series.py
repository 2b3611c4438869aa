"""Calls that are alike, by what they ask."""

from __future__ import annotations

import pytest

from dispatcher.core.messages.series import MODEL_MAX_CHARACTERS, Series, series_of

SERIES: list[tuple[str, object, tuple[str, bool]]] = [
    ("/chat/completions", {"model": "m-1", "messages": []}, ("m-1", False)),
    ("/chat/completions", {"model": "m-1", "stream": True}, ("m-1", True)),
    ("/chat/completions", {"model": "m-1", "stream": "true"}, ("m-1", False)),
    ("/chat/completions", {"model": "m" * 200}, ("m" * MODEL_MAX_CHARACTERS, False)),
    ("/chat/completions", {"model": 7, "stream": 1}, ("", False)),
    ("/chat/completions", {"model": None}, ("", False)),
    ("/chat/completions", ["model"], ("", False)),
    ("/chat/completions", "model", ("", False)),
    ("/chat/completions", None, ("", False)),
    ("/v1/orders/7", {"stream": True}, ("", True)),
    ("/v1beta/models/gemini-2.5-flash:generateContent", {"contents": []}, ("gemini-2.5-flash", False)),
    ("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", {"contents": []}, ("gemini-2.5-flash", True)),
    ("/model/anthropic.claude-v2/converse", {}, ("anthropic.claude-v2", False)),
    ("/model/anthropic.claude-v2/converse-stream", {}, ("anthropic.claude-v2", True)),
    # Names of Bedrock end in a version with a colon, which its clients write with a percent sign.
    ("/model/anthropic.claude-sonnet-4-5-v1:0/converse", {}, ("anthropic.claude-sonnet-4-5-v1:0", False)),
    ("/model/anthropic.claude-sonnet-4-5-v1%3A0/converse-stream", {}, ("anthropic.claude-sonnet-4-5-v1:0", True)),
    ("/models/ft:gpt-4:us::7/infer", {}, ("ft:gpt-4:us::7", False)),
    ("/models/%F0%9F/infer", {}, ("\ufffd", False)),
    ("/openai/deployments/mine/chat/completions?api-version=1", {"stream": True}, ("mine", True)),
    ("/openai/deployments/mine/chat/completions?api-version=1", {"model": "m-1"}, ("m-1", False)),
    ("/models/" + "m" * 200 + ":generateContent", {}, ("", False)),
]


@pytest.mark.parametrize(("path", "body", "expected"), SERIES)
def test_what_is_asked_stands_in_the_body_or_in_the_path(path: str, body: object, expected: tuple[str, bool]) -> None:
    """Model and streaming, as each provider writes them; what is written wrongly is none."""
    assert Series("up", *expected) == series_of("up", path, body)
