from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.request_id import CHANCE_BITS, time_ms_of, time_ordered


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**CHANCE_BITS - 1))
def test_an_id_is_a_uuid_of_version_7_that_tells_its_time(time_ms: int, chance: int) -> None:
    """It has the version and the variant of RFC 9562, and the time can be read back, in capitals too."""
    made = UUID(time_ordered(time_ms, chance))
    assert (7, "specified in RFC 4122") == (made.version, made.variant)
    assert time_ms == time_ms_of(str(made)) == time_ms_of(str(made).upper())


@given(st.integers(0, 2**48 - 2), st.integers(0), st.integers(0))
def test_ids_sort_by_their_time(time_ms: int, chance: int, other: int) -> None:
    """A later id is the greater text, whatever chance says."""
    assert time_ordered(time_ms, chance) < time_ordered(time_ms + 1, other)


@pytest.mark.parametrize("text", ["", "r-1", "123e4567-e89b-12d3-a456-426614174000", "01a22853-6bf7-7353-8577-854f6ec8a1c0 "])
def test_other_ids_tell_no_time(text: str) -> None:
    """Ids of other makers and other versions say nothing of when they were made."""
    assert time_ms_of(text) is None
