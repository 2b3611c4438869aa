"""Which lines of a flood are written: of those that differ in nothing but numbers and addresses, one in so many seconds. Pure."""

from __future__ import annotations

import re

# A broker that is away is complained about some twenty times a second; one line in ten seconds says it as well.
QUIET_S = 10.0
# Kinds of lines that are remembered at once. A client has some dozens of them; beyond that the memory starts anew.
_KINDS_MAX = 256
_THREAD = re.compile(r"\[thrd:[^\]]*\]:?\s*")
_SUPPRESSED = re.compile(r",?\s*\d+ identical error\(s\) suppressed")
_ADDRESS = re.compile(r"[^\s(]*:\d+(?:/\w+)?")
_NUMBER = re.compile(r"\d+")


class Repetition:
    """Remembers when each kind of line was last written. Its owner calls it from one thread at a time."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[float, int]] = {}  # when it was last written, and how many were left out since

    def heard(self, line: str, now: float) -> int | None:
        """Tell whether a line is to be written: None for no, else how many of its kind were left out before it. `now` in seconds."""
        kind = _kind(line)
        since, left_out = self._kinds.get(kind, (now - QUIET_S, 0))
        if now < since + QUIET_S:
            self._kinds[kind] = since, left_out + 1
            return None
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = now, 0
        return left_out


def _kind(line: str) -> str:
    """Take out of a line what differs from one to the next.

    >>> _kind("[thrd:a:9092/1]: a:9092/1: Connect to ipv4#10.0.0.1:9092 failed (after 7ms in state CONNECT)")
    '@: Connect to @ failed (after 0ms in state CONNECT)'
    """
    for pattern, instead in ((_THREAD, ""), (_SUPPRESSED, ""), (_ADDRESS, "@"), (_NUMBER, "0")):
        line = pattern.sub(instead, line)
    return line
