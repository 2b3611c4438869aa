from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From the tests of Kafka's own `Utils.murmur2`.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """The hash gives what Kafka's own tests expect (there as signed numbers)."""
    assert expected % 2**32 == murmur2(key)


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_every_key_has_a_partition(key: bytes, count: int) -> None:
    """Any key, also the empty one, has exactly one partition that exists, each time the same."""
    partition = partition_for(key, count)
    assert 0 <= partition < count
    assert partition == partition_for(bytes(bytearray(key)), count)


@given(st.binary(max_size=70))
def test_partition_follows_javas_to_positive(key: bytes) -> None:
    """The sign bit is cut, as Java does, not the absolute value taken."""
    assert (murmur2(key) & 0x7FFFFFFF) % 12 == partition_for(key, 12)
