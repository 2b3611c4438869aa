"""Which partition a lane key belongs to: Kafka's murmur2, as Java's default partitioner and librdkafka's `murmur2_random` do it.

The constants are those of Kafka's `Utils.murmur2`; every producer of requests must agree with them, else one key has two lanes.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack_from

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
WORD = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF

# Keys whose hash is remembered: more than a worker's live lanes, about 10 MB at most for keys of usual length.
REMEMBERED_KEYS = 65_536


@lru_cache(maxsize=REMEMBERED_KEYS)
def murmur2(key: bytes) -> int:
    """Return the unsigned 32-bit murmur2 of `key`."""
    length = len(key)
    words = length >> 2
    digest = SEED ^ length
    for word in unpack_from(f"<{words}I", key):
        mixed = word * MULTIPLIER & WORD
        mixed = (mixed ^ mixed >> 24) * MULTIPLIER & WORD
        digest = digest * MULTIPLIER & WORD ^ mixed
    if rest := key[words << 2 :]:
        digest = (digest ^ int.from_bytes(rest, "little")) * MULTIPLIER & WORD
    digest = (digest ^ digest >> 13) * MULTIPLIER & WORD
    return digest ^ digest >> 15


def partition_for(key: bytes, count: int) -> int:
    """Return the partition of `key` in a topic of `count` partitions. A record without a key has no such partition: not for None."""
    return (murmur2(key) & POSITIVE) % count
