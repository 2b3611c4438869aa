from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.lanes import lane_name
from dispatcher.core.progress import headway


def test_the_examples_in_the_docstrings_hold() -> None:
    """What the documentation shows is what is done."""
    assert 0 == doctest.testmod(lane_name).failed
    assert 0 == doctest.testmod(headway).failed


@given(st.binary(min_size=1, max_size=1024))
def test_a_name_fits_into_a_header(key: bytes) -> None:
    """Whatever the key: 16 digits, always the same ones, and no byte of the key."""
    name = lane_name.lane_name(key)
    assert (16, name) == (len(name), lane_name.lane_name(key))
    assert set(name) <= set("0123456789abcdef")
