"""Lengths of time as people write them: `500ms`, `30s`, `2m`, `1.5h`, `7d`, and bare seconds."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
# A hundred years: far beyond every use, and far below what overflows a clock.
_MAX_S = 100 * 365 * 86_400


def parse_duration(text: str) -> float:
    """Read a length of time in seconds; ValueError when it is none, or longer than a hundred years."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a length of time such as 500ms, 30s, 2m, 1h or 7d")
    seconds = float(match[1]) * _SECONDS[match[2] or ""]
    if seconds > _MAX_S:
        raise ValueError("longer than a hundred years")
    return seconds
