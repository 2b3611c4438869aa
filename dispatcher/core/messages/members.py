"""The members of a JSON object as they were written: text that is passed on must not go through a number or a dictionary.

`0.1234567890123456789`, `-0`, `1.10` and `{"a":1,"a":2}` all change when they are read and written again; a slice of the text cannot.
"""

from __future__ import annotations

import re
from json import JSONDecoder

# What JSON takes for white space; Python's `\s` takes more.
_SPACE = re.compile(r"[ \t\n\r]*")
# Numbers are only skipped: no digits are converted.
_DECODER = JSONDecoder(parse_int=len, parse_float=len)


def members(text: str) -> dict[str, str]:
    """The JSON object `text`, each member's value as its own text; the last of several members of one name counts.

    For text that is known to be a JSON object: JSONDecodeError, StopIteration or IndexError for some others.
    """
    found: dict[str, str] = {}
    at = _past(text, _past(text, 0) + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _past(text, _past(text, at) + 1)
        _, at = _DECODER.raw_decode(text, begin)
        found[name] = text[begin:at]
        at = _past(text, at)
        if text[at] == ",":
            at = _past(text, at + 1)
    return found


def _past(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
