"""Request ids that sort by the time they were made: UUID version 7 (RFC 9562), as text. Pure: time and chance are arguments."""

from __future__ import annotations

import re

CHANCE_BITS = 74
_LOW_BITS = 62
_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


def time_ordered(time_ms: int, chance: int) -> str:
    """Make an id of a time (milliseconds since 1970, 48 bits) and 74 bits of chance; of more, the lowest count."""
    high, low = chance >> _LOW_BITS & 0xFFF, chance & (1 << _LOW_BITS) - 1
    digits = f"{time_ms << 80 | 7 << 76 | high << 64 | 0b10 << _LOW_BITS | low:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def time_ms_of(request_id: str) -> int | None:
    """Tell when an id was made, milliseconds since 1970; None for an id that does not say."""
    match = _UUID7.fullmatch(request_id)
    return None if match is None else int(match[1] + match[2], 16)
