"""The name of a key's lane, as callees are told it: the same key, the same name; of the key itself it says nothing to read.

Calls of one name come one after another, in the order of their offsets. Who can guess a key can check the guess; a key is no secret.
"""

from __future__ import annotations

import hashlib

HEADER = "Dispatcher-Lane"
# 64 bits: among a billion keys two share a name with a chance of 3 in 100, and no harm.
NAME_DIGITS = 16


def lane_name(key: bytes) -> str:
    """The name of the lane of `key`: the beginning of its SHA-256, in hexadecimal digits.

    >>> lane_name(b"doc:42")
    'a648d79e5b8787b8'
    """
    return hashlib.sha256(key).hexdigest()[:NAME_DIGITS]
