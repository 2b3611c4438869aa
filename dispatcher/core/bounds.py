"""What a number or a name read from an internal topic, or from a commit's metadata, may be: all that this program ever writes, and no more.

Everybody with the right to write may have written there. What is beyond these bounds is taken for corrupt where it is read, since further
on a time would leave the calendar, a count its field, a name what Kafka's client takes, and each of these ends an owner.
"""

from __future__ import annotations

import re

# Retries are counted in tens; a reader in another language has 31 bits for it.
COUNT_MAX = 2**31 - 1
# Kafka counts partitions in 31 bits, offsets and the milliseconds of a record in 63.
PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
# Epochs and transaction numbers are counted on from seconds since 1970: this leaves room to count on, in fields of 64 bits.
EPOCH_MAX = 2**62
# The last second of the year 9999: what RFC 3339 can say, and the latest deadline that a request may have.
TIME_MAX_S = 253_402_300_799
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


def is_count(value: object) -> bool:
    """Whether JSON gave a count of calls or the like.

    >>> is_count(3), is_count(-1), is_count(True), is_count(2**31), is_count(1.0)
    (True, False, False, False, False)
    """
    return _is_within(value, COUNT_MAX)


def is_partition(value: object) -> bool:
    """Whether it is the number of a partition."""
    return _is_within(value, PARTITION_MAX)


def is_offset(value: object) -> bool:
    """Whether it is an offset, or the milliseconds of a record."""
    return _is_within(value, OFFSET_MAX)


def is_time(value: object) -> bool:
    """Whether JSON gave a time in seconds since 1970.

    >>> is_time(0), is_time(1.5e9), is_time(-1e308), is_time(float("nan")), is_time(1e300)
    (True, True, False, False, False)
    """
    return type(value) in {int, float} and 0 <= value <= TIME_MAX_S  # type: ignore[operator] # it is one of the two


def is_topic(value: object) -> bool:
    """Whether it can be the name of a topic: others the client does not even ask for.

    >>> is_topic("dispatcher.replies"), is_topic(""), is_topic(".."), is_topic("bad name!/"), is_topic("a" * 250)
    (True, False, False, False, False)
    """
    return isinstance(value, str) and _TOPIC.fullmatch(value) is not None


def _is_within(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
