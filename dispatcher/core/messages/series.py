"""Calls that are alike: what is asked, of whom, by which model."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

MODEL_MAX_CHARACTERS = 100
# Where providers name the model in the path: Gemini's and Bedrock's `models/NAME:method` and `model/NAME/method`, Azure's deployments. A
# name may have colons of its own (Bedrock's end in `:0`): the last one before a method counts. Percent signs triple a character.
_IN_PATH = re.compile(rf"/(?:models?|deployments)/([^/?]{{1,{3 * MODEL_MAX_CHARACTERS}}}?)[/:]([A-Za-z][A-Za-z-]{{0,39}})(?=[/?]|$)")


class Series(NamedTuple):
    """Calls that are likely to take equally long. `model`: as the request names it, empty where it names none."""

    upstream: str
    model: str
    is_stream: bool


def series_of(upstream: str, path: str, body: object) -> Series:
    """What a request asks, and of whom: from the JSON body as it was decoded (None for none), or else from the path.

    >>> series_of("openai", "/chat/completions", {"model": "m-1", "stream": True})
    Series(upstream='openai', model='m-1', is_stream=True)
    """
    if isinstance(body, dict) and isinstance(model := body.get("model"), str):
        return Series(upstream, model[:MODEL_MAX_CHARACTERS], body.get("stream") is True)
    is_stream = isinstance(body, dict) and body.get("stream") is True
    if (found := _IN_PATH.search(path)) is not None and len(name := unquote(found[1])) <= MODEL_MAX_CHARACTERS:
        return Series(upstream, name, is_stream or "stream" in found[2].lower())
    return Series(upstream, "", is_stream)
